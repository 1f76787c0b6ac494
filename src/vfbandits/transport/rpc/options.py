"""How both ends set gRPC up."""

from typing import Final, TypeAlias

from vfbandits.errors import ConfigError
from vfbandits.protocol.messages import MAX_BYTES
from vfbandits.settings.address import is_loopback

Options: TypeAlias = tuple[tuple[str, int | str], ...]

# The codec refuses a message over MAX_BYTES and says why; gRPC cuts the stream at this size.
MAX_RECEIVED: Final = MAX_BYTES + (1 << 20)
SENT_AHEAD_BYTES: Final = 4 << 20
PING_EVERY_MS: Final = 10_000
PING_TIMEOUT_MS: Final = 10_000
MIN_BETWEEN_PINGS_MS: Final = 5_000

_BOTH: Final[Options] = (
    ("grpc.max_receive_message_length", MAX_RECEIVED),
    ("grpc.max_send_message_length", MAX_RECEIVED),
    # A peer that vanished is noticed within 20 s even if nobody sends.  The third setting is the
    # one that counts: its default is a minute, whatever the second says.
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # A probe of the line's width goes with nearly every message: a tenth of a decision's work.
    # Without it the window of a stream must be set.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", SENT_AHEAD_BYTES),
)
SERVER: Final[Options] = (
    *_BOTH,
    # Two services on one port would each get some of the streams.
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_BETWEEN_PINGS_MS),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_BETWEEN_PINGS_MS),
)


def channel_options(address: str, *, server_name: str, back_off_ms: int) -> Options:
    """The options of a channel with a connection of its own.

    A server is known by the name in its certificate, whatever its address is.  On loopback a
    proxy that the environment names would only be in the way.
    """
    options: Options = (
        *_BOTH,
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", back_off_ms),
        ("grpc.max_reconnect_backoff_ms", 10 * back_off_ms),
        # In spite of its name this is the time that one attempt to connect is given.
        ("grpc.min_reconnect_backoff_ms", 20_000),
    )
    if server_name:
        options = (*options, ("grpc.ssl_target_name_override", server_name))
    if is_loopback(address):
        options = (*options, ("grpc.enable_http_proxy", 0))
    return options


def refuse_plain(address: str) -> None:
    """Without TLS, an address must be on loopback."""
    if not is_loopback(address):
        raise ConfigError(f"without TLS an address must be on loopback, got {address!r}")
