"""Our errors as gRPC's status, and back: one table.

A peer receives our own message only for an error about its own request.  Of any other error it
learns that there was one, and our log has the details.
"""

from dataclasses import dataclass
from typing import Final

import grpc

from vfbandits.errors import (
    ArmError,
    ConfigError,
    ContextError,
    EnvelopeError,
    HandshakeError,
    IdentityError,
    LinkError,
    MaskError,
    RewardError,
    SettingError,
    UnknownDecisionError,
    VFBanditsError,
    WireError,
)

ERROR_KEY: Final = "vfb-error"
INTERNAL: Final = "internal error, see the log"
MAX_SENTENCE_LENGTH: Final = 1_000

_CODES: Final[dict[type[VFBanditsError], grpc.StatusCode]] = {
    ArmError: grpc.StatusCode.INVALID_ARGUMENT,
    ConfigError: grpc.StatusCode.FAILED_PRECONDITION,
    ContextError: grpc.StatusCode.INVALID_ARGUMENT,
    EnvelopeError: grpc.StatusCode.INVALID_ARGUMENT,
    HandshakeError: grpc.StatusCode.FAILED_PRECONDITION,
    IdentityError: grpc.StatusCode.PERMISSION_DENIED,
    LinkError: grpc.StatusCode.UNAVAILABLE,
    MaskError: grpc.StatusCode.INVALID_ARGUMENT,
    RewardError: grpc.StatusCode.INVALID_ARGUMENT,
    SettingError: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownDecisionError: grpc.StatusCode.NOT_FOUND,
    WireError: grpc.StatusCode.INVALID_ARGUMENT,
}
_NAMES: Final = {kind.__name__: kind for kind in _CODES}


@dataclass(frozen=True, slots=True)
class Status:
    """What a peer receives; ``kind`` names our error and is empty for an internal one."""

    code: grpc.StatusCode
    sentence: str
    kind: str


def status_of(error: BaseException) -> Status:
    """The status that a peer receives for an error.

    >>> status_of(RewardError("a reward is a finite number, got nan")).sentence
    'a reward is a finite number, got nan'
    >>> status_of(ZeroDivisionError("3.5 / 0")).sentence
    'internal error, see the log'
    """
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Status(code, str(error)[:MAX_SENTENCE_LENGTH], kind.__name__)
    return Status(grpc.StatusCode.INTERNAL, INTERNAL, "")


def is_told(failure: grpc.aio.AioRpcError) -> bool:
    """Whether the other end's program sent this status, and not gRPC on either side."""
    return ERROR_KEY in dict(failure.trailing_metadata() or ())


def told_error(kind: str, sentence: str) -> VFBanditsError:
    """The error of this name; LinkError for one that the other end did not disclose.

    >>> told_error("ArmError", "arms must differ")
    ArmError('arms must differ')
    >>> told_error("", "internal error, see the log")
    LinkError('the other end failed: internal error, see the log')
    """
    known = _NAMES.get(kind)
    if known is None:
        known, sentence = LinkError, f"the other end failed: {sentence}"
    return known(sentence[:MAX_SENTENCE_LENGTH])


def error_of(failure: grpc.aio.AioRpcError) -> VFBanditsError:
    """The error that the other end reported; LinkError if it could not, or did not disclose it."""
    sentence = (failure.details() or "")[:MAX_SENTENCE_LENGTH]
    if is_told(failure):
        return told_error(str(dict(failure.trailing_metadata())[ERROR_KEY]), sentence)
    match failure.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return LinkError("there was no answer before the deadline")
        case grpc.StatusCode.UNIMPLEMENTED:
            return LinkError("the other end does not take such calls")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return WireError(f"a message was too large: {sentence}")
    return LinkError(sentence)
