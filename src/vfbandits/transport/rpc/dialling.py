"""How a process opens a connection, and explains why one failed."""

from dataclasses import dataclass

import grpc

from vfbandits.errors import IdentityError, LinkError, VFBanditsError
from vfbandits.transport.rpc.caller import Metadata, introduction
from vfbandits.transport.rpc.options import channel_options, refuse_plain
from vfbandits.transport.rpc.refusal import connection_reason
from vfbandits.transport.rpc.status import error_of, is_told
from vfbandits.transport.rpc.tls import TlsFiles, channel_credentials, own_fault


@dataclass(frozen=True, slots=True)
class Route:
    """The address to dial, our identity, and the host that must answer.

    Attributes
    ----------
    address
        ``host:port``; without ``tls`` on loopback only.
    tls
        Our files, read again for each connection, so that a renewed certificate is soon in use.
    name, role
        Our identity where no certificate has it.
    server_name
        The host that the certificate of the other end must have, whatever its address is.
    """

    address: str
    tls: TlsFiles | None
    name: str
    role: str
    server_name: str = ""

    def __post_init__(self) -> None:
        """Refuse what could never be dialled."""
        if self.tls is None:
            refuse_plain(self.address)
        else:
            channel_credentials(self.tls)

    @property
    def metadata(self) -> Metadata:
        """The metadata by which we name ourselves."""
        return introduction(self.name, self.role, tls=self.tls is not None)

    def open(self, *, back_off_ms: int) -> grpc.aio.Channel:
        """A channel that connects with its first call, and again after a while if it breaks."""
        options = channel_options(
            self.address, server_name=self.server_name, back_off_ms=back_off_ms
        )
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, options)
        try:
            credentials = channel_credentials(self.tls)
        except IdentityError as error:
            raise LinkError(f"cannot dial {self.address}: {error}") from error
        return grpc.aio.secure_channel(self.address, credentials, options)

    def failure(self, error: grpc.aio.AioRpcError) -> VFBanditsError:
        """What went wrong with a call: what the other end said, or why it could not be reached."""
        if is_told(error) or error.code() is not grpc.StatusCode.UNAVAILABLE:
            return error_of(error)
        said = error.details() or ""
        reason = connection_reason(said) or self._hung_up()
        return LinkError(f"no connection to {self.address}: {reason} [{said}]")

    def _hung_up(self) -> str:
        """Why the other end closed: in TLS 1.3 it does not say why it refuses a certificate."""
        if self.tls is None:
            return "it closed the connection"
        return own_fault(self.tls) or (
            "it closed the connection, as a server does that refuses our certificate; "
            "`vfb preflight` shows the reason that it gives"
        )
