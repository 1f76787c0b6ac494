"""A collector of traces on this machine: takes OTLP over HTTP and keeps the spans."""

import gzip
import http.server
import threading
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(http.server.ThreadingHTTPServer):
    """Where to send spans to, and the requests that came."""

    daemon_threads = True

    def __init__(self, status=200):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.status = status
        self.paths = []
        self.headers = []
        self.requests = []

    @property
    def spans(self):
        """By name."""
        return {
            span.name: span
            for request in self.requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        }

    @property
    def resource(self):
        (attributes,) = (each.resource.attributes for each in self.requests[0].resource_spans)
        return {each.key: each.value.string_value for each in attributes}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.paths.append(self.path)
        self.server.headers.append(dict(self.headers))
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


@contextmanager
def collecting(**settings):
    collector = Collector(**settings)
    thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()
