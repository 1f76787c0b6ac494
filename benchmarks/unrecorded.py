"""``vfb serve`` without an access record, to time what the record costs; no setting does this."""

from collections.abc import Sequence

from vfbandits.cli.serve import serve_app
from vfbandits.participant.access.gate import AccessGate, Admission
from vfbandits.participant.access.record import AccessRecord
from vfbandits.protocol.messages import Ask


def _note(self: AccessGate, ask: Ask, admission: Admission, absent: Sequence[int]) -> None:
    """Write nothing down."""
    del self, ask, admission, absent


def _user(self: AccessRecord, name: str) -> str:
    """Hash nothing."""
    del self
    return name


if __name__ == "__main__":
    AccessGate.note = _note  # type: ignore[method-assign]
    AccessRecord.user = _user  # type: ignore[method-assign]
    serve_app()
