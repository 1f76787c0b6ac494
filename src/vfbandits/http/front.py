"""A port that is there before what stands behind it: probes are answered from the start."""

from starlette.types import Receive, Scope, Send

from vfbandits.http.access.gate import guarded, limits_of
from vfbandits.http.access.guard import Guard
from vfbandits.http.app import Parts, build_app
from vfbandits.http.handlers import Handlers, ModelFacts
from vfbandits.http.refusals import Unavailable
from vfbandits.http.server import HttpServer
from vfbandits.serving.served import Served
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.gauges import Readings
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.telemetry.tracer import NoTracer


class NotReady:
    """Campaigns that are not there yet, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __getitem__(self, name: str) -> Served:
        """There is none."""
        raise Unavailable(self.reason)

    @property
    def names(self) -> list[str]:
        """There are none."""
        raise Unavailable(self.reason)

    def problems(self) -> list[str]:
        """Why no traffic should come."""
        return [self.reason]


class SwappableApp:
    """An HTTP server whose application may be another one from one request to the next."""

    def __init__(self, http: HttpSettings, *, reason: str, supervisor: Supervisor) -> None:
        self._http = http
        self._supervisor = supervisor
        self._server = HttpServer(self, http, supervisor=supervisor)
        self.counts = self._server.counts
        self.wait(reason)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        await self.app(scope, receive, send)

    async def start(self) -> int:
        """Listen; returns the port."""
        self.port = await self._server.start()
        return self.port

    async def stop(self) -> None:
        """Take no more requests, and finish those under way."""
        await self._server.stop()

    def wait(self, reason: str) -> None:
        """Answer probes, and refuse everything else for this reason."""
        not_ready, limits = NotReady(reason), limits_of(self._http)
        readings = Readings(
            list,
            list,
            lambda: 0,
            lambda: False,
            lambda: self._supervisor.failures,
            self.counts,
        )
        handlers = Handlers(not_ready, model_facts=_no_facts, limits=limits)
        app = build_app(handlers, Parts(Metrics(readings), NoTracer()))
        self.app: Guard = guarded(app, self._http, limits)


def _no_facts() -> ModelFacts:
    raise Unavailable("there is no model yet")
