"""Traces: what a collector gets, and what it never gets."""

import asyncio
import socket
import subprocess
import sys
import time

import pytest
from collectors import collecting
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from vfbandits.errors import ConfigError
from vfbandits.telemetry.otel import OtelTracer
from vfbandits.telemetry.tracer import Attributes
from vfbandits.telemetry.tracing import ENDPOINTS, TracingSettings, make_tracer, otel_tracer

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "shop=1"}


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch):
    for name in (*ENDPOINTS, "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def kept():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(kept):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = OtelTracer(provider)
    yield tracer
    tracer.close()


def by_name(kept):
    return {span.name: span for span in kept.get_finished_spans()}


def rank(tracer, event_id="e1"):
    with tracer.span("rank", campaign="news", event_id=event_id, n_arms=3) as span:
        with tracer.span("contexts") as inner:
            inner.set(contributors=2)
        with tracer.span("decide"):
            pass
        with tracer.span("log"):
            pass
        span.set(contributors=2, degraded=True, model_version=7)


def test_a_request_is_one_trace_of_a_span_with_three_children(tracer, kept):
    rank(tracer)
    spans = by_name(kept)
    outer = spans.pop("rank")
    assert outer.parent is None
    assert list(spans) == ["contexts", "decide", "log"]
    assert {span.parent.span_id for span in spans.values()} == {outer.context.span_id}
    assert {span.context.trace_id for span in spans.values()} == {outer.context.trace_id}
    assert outer.start_time <= spans["contexts"].start_time <= spans["log"].end_time


def test_a_span_tells_what_was_known_at_its_beginning_and_what_came_later(tracer, kept):
    rank(tracer)
    assert dict(by_name(kept)["rank"].attributes) == {
        "vfb.campaign": "news",
        "vfb.event_id": "e1",
        "vfb.n_arms": 3,
        "vfb.contributors": 2,
        "vfb.degraded": True,
        "vfb.model_version": 7,
    }


def test_the_outermost_span_is_the_servers_and_the_others_are_inner_ones(tracer, kept):
    with tracer.incoming(HEADERS):
        rank(tracer)
    kinds = {name: span.kind for name, span in by_name(kept).items()}
    assert kinds.pop("rank") == SpanKind.SERVER
    assert set(kinds.values()) == {SpanKind.INTERNAL}


def test_the_trace_of_a_request_is_continued(tracer, kept):
    with tracer.incoming(HEADERS):
        rank(tracer)
    for span in kept.get_finished_spans():
        assert f"{span.context.trace_id:032x}" == TRACE_ID
    outer = by_name(kept)["rank"]
    assert f"{outer.parent.span_id:016x}" == PARENT_ID
    assert outer.context.trace_state == {"shop": "1"}


@pytest.mark.parametrize("headers", [
    {}, {"traceparent": ""}, {"traceparent": "00-zz-zz-01"}, {"tracestate": "shop=1"},
    {"traceparent": f"00-{'0' * 32}-{PARENT_ID}-01"}, {"traceparent": f"00-{TRACE_ID}-01"},
])  # fmt: skip
def test_a_request_without_a_valid_parent_begins_a_trace(tracer, kept, headers):
    with tracer.incoming(headers):
        rank(tracer)
    outer = by_name(kept)["rank"]
    assert outer.parent is None
    assert f"{outer.context.trace_id:032x}" != TRACE_ID


def test_a_caller_that_does_not_sample_is_not_traced(tracer, kept):
    with tracer.incoming({"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"}):
        rank(tracer)
    assert kept.get_finished_spans() == ()


def test_after_a_request_nothing_of_its_trace_is_left(tracer, kept):
    with tracer.incoming(HEADERS):
        rank(tracer)
    kept.clear()
    rank(tracer)
    assert by_name(kept)["rank"].parent is None


def test_requests_at_the_same_time_do_not_mix(tracer, kept):
    async def one(event_id):
        with tracer.incoming({}), tracer.span("rank", event_id=event_id):
            await asyncio.sleep(0.001)
            with tracer.span("log", event_id=event_id):
                await asyncio.sleep(0.001)

    async def many():
        await asyncio.gather(*(one(f"e{n}") for n in range(20)))

    asyncio.run(many())
    outer, inner = {}, {}
    for span in kept.get_finished_spans():
        {"rank": outer, "log": inner}[span.name][span.attributes["vfb.event_id"]] = span
    assert len(outer) == 20
    assert len({span.context.trace_id for span in outer.values()}) == 20
    for event_id, span in inner.items():
        assert span.parent.span_id == outer[event_id].context.span_id


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
def test_an_error_marks_its_span_with_its_class_and_not_with_its_text(tracer, kept, kind):
    with pytest.raises(kind), tracer.span("rank"):
        raise kind("user u1 has features 1.5, 2.5")
    (span,) = kept.get_finished_spans()
    assert span.status.status_code == StatusCode.ERROR
    assert span.attributes["error.type"] == kind.__name__
    assert span.events == ()
    assert "u1" not in span.to_json()


@pytest.mark.parametrize("name", ["user", "features", "scores", "key", "arm"])
def test_a_span_refuses_what_it_may_not_tell(tracer, kept, name):
    with pytest.raises(TypeError, match=f"got {name}"):
        tracer.span("rank", **{name: "secret"})
    with tracer.span("rank") as span, pytest.raises(TypeError, match=f"got {name}"):
        span.set(**{name: "secret"})
    assert "secret" not in kept.get_finished_spans()[0].to_json()


def test_no_user_feature_score_or_key_is_among_what_a_span_may_tell():
    assert set(Attributes.__annotations__) == {
        *("campaign", "event_id", "n_arms", "contributors", "degraded", "model_version", "status")
    }


def test_a_collector_gets_the_spans_over_http():
    with collecting() as collector:
        tracer = otel_tracer(TracingSettings(collector.address))
        with tracer.incoming(HEADERS):
            rank(tracer)
        tracer.close()
        assert set(collector.paths) == {"/v1/traces"}
        assert set(collector.spans) == {"rank", "contexts", "decide", "log"}
        assert collector.spans["rank"].trace_id.hex() == TRACE_ID
        assert collector.resource["service.name"] == "vfbandits"
        assert collector.resource["service.version"]


@pytest.mark.parametrize("tail", ["", "/", "/v1/traces", "/v1/traces/"])
def test_an_endpoint_may_be_given_with_the_path_or_without(tail):
    with collecting() as collector:
        tracer = otel_tracer(TracingSettings(collector.address + tail))
        rank(tracer)
        tracer.close()
        assert set(collector.paths) == {"/v1/traces"}


def test_what_the_environment_says_holds(monkeypatch):
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "ranker-3")
        tracer = make_tracer()
        rank(tracer)
        tracer.close()
        assert set(collector.spans) == {"rank", "contexts", "decide", "log"}
        assert collector.resource["service.name"] == "ranker-3"
        sent = {name.lower(): value for name, value in collector.headers[0].items()}
        assert (sent["x-key"], sent["content-encoding"]) == ("abc", "gzip")


def test_a_collector_that_is_away_neither_raises_nor_holds_up_a_request(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tracer = otel_tracer(TracingSettings(f"http://127.0.0.1:{port}"))
    started = time.perf_counter()
    for n in range(200):
        rank(tracer, f"e{n}")
    assert time.perf_counter() - started < 20.0  # each of them would wait for a second
    tracer.close()
    assert time.perf_counter() - started < 60.0


def test_a_collector_that_hangs_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setattr("vfbandits.telemetry.otel.MAX_CLOSING_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        tracer = otel_tracer(TracingSettings(f"http://127.0.0.1:{server.getsockname()[1]}"))
        rank(tracer)
        started = time.perf_counter()
        tracer.close()
        assert time.perf_counter() - started < 20.0


def test_a_tracer_leaves_the_spans_of_other_libraries_alone():
    with collecting() as collector:
        tracer = otel_tracer(TracingSettings(collector.address))
        with trace.get_tracer("another").start_as_current_span("theirs"):
            pass
        rank(tracer)
        tracer.close()
        assert "theirs" not in collector.spans


def test_without_an_endpoint_there_is_no_tracer():
    assert make_tracer() is None
    assert make_tracer(TracingSettings()) is None


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://", "4318"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint):
    with pytest.raises(ConfigError, match="http://host:port"):
        TracingSettings(endpoint)


WITHOUT_THE_EXTRA = """
import sys
sys.modules["opentelemetry"] = None
from vfbandits.errors import ConfigError
from vfbandits.telemetry.tracing import TracingSettings, make_tracer
make_tracer()
try:
    make_tracer(TracingSettings("http://127.0.0.1:1"))
except ConfigError as error:
    print(error)
"""


def test_without_the_extra_one_error_says_how_to_install_it():
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=True
    )
    assert ran.stdout == (
        "traces need opentelemetry, which is not installed; it comes with the extra 'otel': "
        "pip install 'vfbandits[otel]'\n"
    )
