"""Spans by the OpenTelemetry SDK; import it only where the extra ``otel`` is installed."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import Token
from importlib.metadata import version
from threading import Thread
from types import TracebackType
from typing import Final, Unpack

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from vfbandits.telemetry.tracer import Attributes, Span

PREFIX: Final = "vfb."
NAMES: Final = {name: PREFIX + name for name in Attributes.__annotations__}
PATH: Final = "/v1/traces"
MAX_CLOSING_S: Final = 3.0


def otlp_provider(*, endpoint: str, service_name: str) -> TracerProvider:
    """The provider that sends spans to ``endpoint``, or to the endpoint in the environment.

    It is not set as the provider of the process: spans of other libraries are not affected.
    """
    ours = {"service.name": service_name, "service.version": version("vfbandits")}
    # The environment takes precedence over our defaults.
    resource = Resource.create(ours).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    address = endpoint.rstrip("/").removesuffix(PATH) + PATH if endpoint else None
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return provider


class OtelTracer:
    """A ``Tracer`` whose spans go through ``provider``, which belongs to it."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("vfbandits", version("vfbandits"))
        self._propagator = TraceContextTextMapPropagator()

    def incoming(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """Continue the trace of a request; one without a valid ``traceparent`` begins its own."""
        # Not the current context: a request is independent of earlier work in this task.
        return _Incoming(self._propagator.extract(headers, Context()))

    def span(self, name: str, **attributes: Unpack[Attributes]) -> AbstractContextManager[Span]:
        """Time what is within; an error within marks the span with its class, never its text."""
        return _OtelSpan(self._tracer, name, _named(attributes))

    def close(self) -> None:
        """Send the remaining spans, for at most ``MAX_CLOSING_S`` if the collector hangs."""
        ending = Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        ending.start()
        ending.join(MAX_CLOSING_S)


class _Incoming:
    __slots__ = ("_around", "_token")

    def __init__(self, around: Context) -> None:
        self._around = around

    def __enter__(self) -> None:
        self._token: Token[Context] = context.attach(self._around)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        context.detach(self._token)


class _OtelSpan:
    __slots__ = ("_attributes", "_name", "_span", "_token", "_tracer")

    def __init__(
        self, tracer: trace.Tracer, name: str, attributes: dict[str, str | int | bool]
    ) -> None:
        self._tracer, self._name, self._attributes = tracer, name, attributes

    def __enter__(self) -> "_OtelSpan":
        parent = trace.get_current_span().get_span_context()
        is_inner = parent.is_valid and not parent.is_remote
        self._span = self._tracer.start_span(
            self._name,
            kind=SpanKind.INTERNAL if is_inner else SpanKind.SERVER,
            attributes=self._attributes,
        )
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._span.set_attribute("error.type", kind.__name__)
            self._span.set_status(Status(StatusCode.ERROR))
        context.detach(self._token)
        self._span.end()

    def set(self, **attributes: Unpack[Attributes]) -> None:
        self._span.set_attributes(_named(attributes))


def _named(attributes: Attributes) -> dict[str, str | int | bool]:
    """Attributes by the collector's names; names that ``Attributes`` does not list are refused."""
    unknown = [name for name in attributes if name not in NAMES]
    if unknown:
        raise TypeError(f"a span may carry {', '.join(NAMES)}, got {', '.join(unknown)}")
    return {NAMES[name]: value for name, value in attributes.items()}  # type: ignore[misc]
