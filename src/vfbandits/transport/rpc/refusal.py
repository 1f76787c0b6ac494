"""What gRPC's core says of a connection that failed, in our words."""

from typing import Final

_HANDSHAKE: Final = (
    ("certificate has expired", "its certificate has expired"),
    ("certificate is not yet valid", "its certificate is not valid yet"),
    ("unable to get local issuer", "its certificate is of another authority"),
    ("unable to verify the first certificate", "its certificate is of another authority"),
    ("self signed certificate", "its certificate is of another authority"),
    ("self-signed certificate", "its certificate is of another authority"),
    ("certificate signature failure", "its certificate is of another authority"),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "it showed no certificate"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate was not accepted"),
    ("Hostname Verification Check failed", "its certificate has another name"),
    ("is not in peer certificate", "its certificate has another name"),
    ("NO_SHARED_CIPHER", "it does not speak TLS 1.3"),
    ("UNSUPPORTED_PROTOCOL", "it does not speak TLS 1.3"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("HTTP_REQUEST", "it does not speak TLS"),
)
_CONNECTION: Final = (
    ("Connection refused", "nobody listens there"),
    ("DNS resolution failed", "its host is not known"),
    ("errors resolving", "its host is not known"),
    ("Network is unreachable", "its network cannot be reached"),
    ("No route to host", "its host cannot be reached"),
    ("imeout occurred", "it did not answer in time"),
    ("imed out", "it did not answer in time"),
)


def connection_reason(said: str) -> str:
    """Why a dialled connection failed; empty if the core did not say.

    >>> connection_reason("SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: certificate has expired: OK")
    'its certificate has expired'
    """
    for part, reason in _HANDSHAKE + _CONNECTION:
        if part in said:
            return reason
    return ""
