"""Traces: their destination, and the tracer of a server.

They are sent as OTLP over HTTP, by the extra ``otel``.  Everything that the OpenTelemetry SDK reads
from the environment applies: headers, certificates, sampling, sizes of batches.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from vfbandits.errors import ConfigError
from vfbandits.settings.address import describe_url
from vfbandits.telemetry.tracer import Tracer

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Where traces go.

    Attributes
    ----------
    endpoint
        Address of a collector, such as ``http://127.0.0.1:4318``; empty to take it from the
        environment.
    service_name
        Name of the server in traces, unless ``OTEL_SERVICE_NAME`` sets another one.
    """

    endpoint: str = ""
    service_name: str = "vfbandits"

    def __post_init__(self) -> None:
        """Refuse what is not an address."""
        if not self.endpoint:
            return
        address = urlsplit(self.endpoint)
        # The address itself may hold a password.
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(
                "traces go to http://host:port or https://host:port, got "
                f"{describe_url(self.endpoint)}"
            )


def make_tracer(
    settings: TracingSettings | None = None, *, environ: Mapping[str, str] = os.environ
) -> Tracer | None:
    """The tracer of a server: None, unless the settings or the environment name a collector.

    >>> make_tracer(environ={}) is None
    True
    """
    settings = TracingSettings() if settings is None else settings
    if settings.endpoint or any(environ.get(name) for name in ENDPOINTS):
        return otel_tracer(settings)
    return None


def otel_tracer(settings: TracingSettings) -> Tracer:
    """A tracer that sends spans to a collector, in the background; ``close`` it at the end."""
    try:
        from vfbandits.telemetry.otel import OtelTracer, otlp_provider  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ConfigError(
            f"traces need {error.name}, which is not installed; it comes with the extra 'otel': "
            "pip install 'vfbandits[otel]'"
        ) from error
    return OtelTracer(otlp_provider(endpoint=settings.endpoint, service_name=settings.service_name))
