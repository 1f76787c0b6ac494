"""The status port of a process that only dials out: three read-only paths for monitoring."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from vfbandits.client.schemas import Health
from vfbandits.http.access.gate import guarded, limits_of
from vfbandits.http.refuse import problem_for
from vfbandits.http.request import JSON
from vfbandits.http.router import Router
from vfbandits.http.server import HttpServer
from vfbandits.participant.access.gate import UNKNOWN
from vfbandits.participant.access.limits import ANSWERED, LIMITS
from vfbandits.participant.helper import HelperService
from vfbandits.participant.passive import PassiveService
from vfbandits.settings.status import StatusSettings
from vfbandits.telemetry.log import Logger
from vfbandits.telemetry.passive_metrics import (
    HelperReading,
    PassiveReading,
    StatusMetrics,
    of_helper,
    of_passive,
)
from vfbandits.telemetry.supervised import Supervisor

OUTCOMES: Final = (ANSWERED, UNKNOWN, *LIMITS)

_encode: Final = msgspec.json.Encoder().encode


class Probed(Protocol):
    """A service that reports its problems."""

    def problems(self) -> list[str]:
        """Why it cannot answer now."""
        ...


class StatusFront:
    """Implements ``participant.run.Front``; ``metrics`` are read at each scrape."""

    def __init__(
        self,
        settings: StatusSettings,
        service: Probed,
        supervisor: Supervisor,
        log: Logger,
        *,
        metrics: StatusMetrics,
    ) -> None:
        self._service = service
        self._supervisor = supervisor
        self._log = log
        self._logged: list[str] = []
        http = settings.http
        app = status_app(self.problems, metrics)
        self._server = HttpServer(guarded(app, http, limits_of(http)), http, supervisor=supervisor)

    async def start(self) -> int:
        """Listen; returns the port."""
        port = await self._server.start()
        self._log.info("status_listening", port=port)
        return port

    async def stop(self) -> None:
        """Take no more requests, and finish those under way."""
        await self._server.stop()

    def problems(self) -> list[str]:
        """What /readyz says; changes are logged."""
        problems = [*self._service.problems(), *self._supervisor.problems()]
        if problems != self._logged:
            self._logged = problems
            for reason in problems:
                self._log.warning("status_not_ready", reason=reason)
        return problems


def passive_front(
    settings: StatusSettings, service: PassiveService, supervisor: Supervisor, log: Logger
) -> StatusFront:
    """The port of a passive participant."""

    def read() -> PassiveReading:
        record, counts = service.gate.record, service.gate.counts
        return PassiveReading(
            is_ready=not front.problems(),
            is_connected=service.is_connected,
            epoch=service.epoch,
            asks=counts.asks,
            users=counts.users,
            rows=counts.rows,
            held_rows=service.gate.n_held,
            record_entries=record.chain.count,
            record_bytes=record.size_bytes,
            record_unsynced=record.n_unsynced,
            record_synced_at=record.synced_at,
            task_failures=supervisor.failures,
        )

    metrics = StatusMetrics(lambda: of_passive(read(), users=OUTCOMES))
    front = StatusFront(settings, service, supervisor, log, metrics=metrics)
    return front


def helper_front(
    settings: StatusSettings, service: HelperService, supervisor: Supervisor, log: Logger
) -> StatusFront:
    """The port of a helper without features."""

    def read() -> HelperReading:
        return HelperReading(
            is_ready=not front.problems(),
            is_connected=service.is_connected,
            epoch=service.epoch,
            window=service.window,
            messages=service.counts,
            task_failures=supervisor.failures,
        )

    front = StatusFront(
        settings, service, supervisor, log, metrics=StatusMetrics(lambda: of_helper(read()))
    )
    return front


def status_app(problems: Callable[[], list[str]], metrics: StatusMetrics) -> ASGIApp:
    """/healthz: the process lives; /readyz: it can answer, or why not; /metrics."""

    def healthz() -> Response:
        return _health([])

    def readyz() -> Response:
        return _health(problems())

    def scrape() -> Response:
        return Response(metrics.render(), media_type=metrics.content_type)

    handlers: Mapping[str, Callable[[], Response]] = {
        "/healthz": healthz,
        "/readyz": readyz,
        "/metrics": scrape,
    }
    router = Router([("GET", path, handler) for path, handler in handlers.items()])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            match = router.find(scope["method"], scope["path"])
            if match is None:
                raise HTTPException(404)
            response = match.found()
        except Exception as error:  # noqa: BLE001  (answered as a problem; logged if ours)
            response = problem_for(scope, error)
        await response(scope, receive, send)

    return app


def _health(problems: list[str]) -> Response:
    health = Health("unavailable", problems) if problems else Health("ok")
    return Response(_encode(health), status_code=503 if problems else 200, media_type=JSON)
