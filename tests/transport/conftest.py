"""Settings of gRPC's core must be made before any test imports it."""

import vfbandits.transport.rpc  # noqa: F401
