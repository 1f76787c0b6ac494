"""The caller that a client certificate names.

TLS has already verified the chain.  The subject has the format of a federation's certificates,
``vfb://<federation>/<role>/<name>``.
"""

from typing import Final

import structlog
from cryptography import x509

from vfbandits.errors import IdentityError
from vfbandits.http.access.caller import Caller, caller_of_certificate
from vfbandits.http.refusals import Forbidden, Unauthorized
from vfbandits.protocol.identity import subject_of

_log: Final = structlog.get_logger(__name__)


def caller_from(certificate: bytes | None) -> Caller | None:
    """The caller that a certificate (DER) names; None, and a line in the log, if it names none."""
    if certificate is None:
        return None
    try:
        subject = subject_of(x509.load_der_x509_certificate(certificate))
        return caller_of_certificate(subject.name, subject.role)
    except (IdentityError, Forbidden, ValueError) as error:
        _log.warning("http_request_refused", reason=str(error))
        return None


class NoKeys:
    """The ring of a server without API keys: callers are known by their certificates only."""

    def check(self, presented: str) -> Caller:
        """Refuse any key."""
        del presented
        raise Unauthorized("wanted a client certificate, got an API key")
