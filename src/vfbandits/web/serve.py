"""An active participant with its HTTP interface: a configuration becomes a running process."""

from collections.abc import Callable

from starlette.types import ASGIApp, Scope

from vfbandits.errors import ConfigError
from vfbandits.service.active import ActiveService
from vfbandits.service.campaign import Campaign
from vfbandits.service.campaigns import Campaigns
from vfbandits.service.http_settings import HttpSettings
from vfbandits.service.log import Logger, logger_for
from vfbandits.service.run import build_active, listener_of, open_models, signalled
from vfbandits.service.settings import ActiveSettings
from vfbandits.service.tracer import Tracer
from vfbandits.web.app import Parts, build_app
from vfbandits.web.asking import answer_of
from vfbandits.web.client_certificate import NoKeys
from vfbandits.web.dashboard import PAGE, dashboard_routes
from vfbandits.web.gauges import CampaignGauges, ParticipantGauges, Readings
from vfbandits.web.guard import PROBES, Guard, require
from vfbandits.web.handlers import Handlers, ModelFacts
from vfbandits.web.keys import KeyRing
from vfbandits.web.limits import Buckets, Limits, Rate
from vfbandits.web.metrics import Metrics
from vfbandits.web.observed.observatory import Observatory
from vfbandits.web.server import HttpServer
from vfbandits.web.tracing import TracingSettings, make_tracer
from vfbandits.web.types import ParticipantView

PUBLIC = PROBES | PAGE.keys() | {"/openapi.json"}
EVENTS_REPLAYED = 5_000  # so that the page is not empty after a restart


class ServedActive:
    """An active participant, its campaigns and its HTTP server; ``start`` and ``stop`` it."""

    def __init__(
        self, settings: ActiveSettings, http: HttpSettings, service: ActiveService, log: Logger
    ) -> None:
        self.service = service
        self._settings = settings
        self._http = http
        self._log = log
        self._tracer: Tracer = make_tracer(TracingSettings(http.traces))

    async def start(self) -> tuple[int, int]:
        """Listen for participants and for applications; returns both ports."""
        service, settings = self.service, self._settings
        self.campaigns = await self._open_campaigns()
        self._server = HttpServer(await self._app(), self._http)
        port = await service.start(listener_of(settings.place, service))
        http_port = await self._server.start()
        self.campaigns.start()
        self._log.info("http_listening", port=http_port, campaigns=", ".join(self.campaigns.names))
        return port, http_port

    async def stop(self) -> None:
        """Finish what is under way, then close everything."""
        self.campaigns.is_stopping = True
        await self._server.stop()
        await self.service.stop()
        await self.campaigns.stop()
        self._tracer.close()

    async def _open_campaigns(self) -> Campaigns:
        models = await open_models(self._settings, self.service)
        campaigns = [
            Campaign(
                plan.name,
                models[plan.name],
                self.service.decisions,
                plan.settings,
                encode=answer_of,
                tracer=self._tracer,
            )
            for plan in self._settings.campaigns
        ]
        every = self._settings.snapshot_every
        return Campaigns(campaigns, log=self._log, snapshot_every=every)

    async def _app(self) -> ASGIApp:
        campaigns, service = self.campaigns, self.service
        sky = Observatory(
            service.role.roster.federation,
            campaigns.names,
            participants=service.participants,
            waiting=lambda name: campaigns[name].n_waiting,
            norm=lambda name: campaigns[name].model.bandit.estimate_norm(),
        )
        for campaign in campaigns:
            sky.replay(campaign.name, await campaign.model.read_end(EVENTS_REPLAYED))
        metrics = Metrics(self._readings())
        for campaign in campaigns:
            campaign.observe((metrics, sky))
        limits = _limits(self._http)
        handlers = Handlers(campaigns, model_facts=self._model_facts, limits=limits)
        pages = dashboard_routes(sky, require=_require_read)
        app = build_app(handlers, Parts(metrics, self._tracer, pages))
        return Guard(app, self._ring(), limits, public=PUBLIC)

    def _ring(self) -> KeyRing | NoKeys | None:
        if self._http.keys is not None:
            ring = KeyRing.load(self._http.keys)
            if not len(ring) and self._http.clients is None:
                raise ConfigError(
                    f"wanted an API key in {self._http.keys}, got none: vfb keys create makes one"
                )
            return ring
        return None if self._http.insecure else NoKeys()

    def _readings(self) -> Readings:
        return Readings(
            lambda: [_gauges(campaign) for campaign in self.campaigns],
            lambda: [
                ParticipantGauges.of(name, facts)
                for name, facts in self.service.participants().items()
            ],
            lambda: self.service.role.epoch,
            lambda: not self.campaigns.problems(),
        )

    def _model_facts(self) -> ModelFacts:
        terms = self.service.role.roster.terms
        participants = [
            ParticipantView(
                name,
                int(str(facts["width"])),
                facts["connected"] is True,
                str(facts["circuit"]),
            )
            for name, facts in self.service.participants().items()
        ]
        return ModelFacts(terms.mask, terms.aggregation, participants)


async def run_served(settings: ActiveSettings, *, on_ready: Callable[[int, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``on_ready`` hears both ports."""
    http = settings.http
    if http is None:
        raise ConfigError("wanted a table [http], got none")
    http.refuse_unless_safe()
    place = settings.place
    log = logger_for(place.name, place.role)
    served = ServedActive(settings, http, build_active(settings, log), log)
    on_ready(*await served.start())
    await signalled()
    await served.stop()


def _require_read(scope: Scope, right: str) -> None:
    del right
    require(scope, "read")


def _limits(http: HttpSettings) -> Limits:
    callers = Rate(http.rate, burst=int(http.burst))
    addresses = Rate(2.0 * http.rate, burst=int(2 * http.burst))
    return Limits(Buckets(callers), Buckets(addresses), http.body_limit_bytes)


def _gauges(campaign: Campaign) -> CampaignGauges:
    model = campaign.model
    commits, events = model.commits
    return CampaignGauges(
        campaign.name,
        waiting=campaign.n_waiting,
        log_position=model.position,
        unsnapshotted_events=model.since_snapshot,
        commits=commits,
        committed_events=events,
        model_version=model.book.n_learnt,
        model_norm=model.bandit.estimate_norm(),
    )
