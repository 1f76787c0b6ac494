"""The HTTP side of a process of the active participant: server, guard, handlers and page.

``serving/build.py`` builds the rest of a process.
"""

from collections.abc import Mapping
from functools import partial

from vfbandits.client.schemas import ParticipantView
from vfbandits.dashboard.observatory import Observatory
from vfbandits.dashboard.view import Facts, SharesView
from vfbandits.http.access.gate import PUBLIC, guarded, limits_of
from vfbandits.http.access.guard import Guard, require
from vfbandits.http.app import Parts, build_app
from vfbandits.http.dashboard import PAGE, dashboard_routes
from vfbandits.http.handlers import Handlers, ModelFacts, guardrail_of
from vfbandits.http.personalizer import Personalizer, build_personalizer
from vfbandits.http.refusals import Unavailable
from vfbandits.http.server import HttpServer
from vfbandits.serving.build import Process, Serve
from vfbandits.serving.campaigns import Campaigns
from vfbandits.serving.leader import Leader
from vfbandits.serving.replica import Replica
from vfbandits.serving.served import Served
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.log import Logger
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.readings import CampaignGauges, ParticipantGauges, Readings
from vfbandits.telemetry.supervised import Supervisor

EVENTS_REPLAYED = 5_000  # so that the page is not empty after a restart
ENDS_SOON_S = 86_400.0  # as the alert VfbSharesStockLow


class HttpFront:
    """An HTTP server, which may listen before there is a campaign; implements ``build.Front``."""

    def __init__(self, http: HttpSettings, supervisor: Supervisor, log: Logger) -> None:
        self._http = http
        self._supervisor = supervisor
        self._log = log
        self._limits = limits_of(http)
        self._counts = ConnectionCounts()
        self._server: HttpServer | None = None

    async def start(self, reason: str) -> int:
        """Listen before there is anything to serve, and ``wait``; returns the port."""
        return await self._use(self._waiting(reason))

    async def stop(self) -> None:
        """Take no more requests, and finish those under way."""
        if self._server is not None:
            await self._server.stop()

    def wait(self, reason: str) -> None:
        """Answer probes, and refuse everything else for this reason."""
        if self._server is not None:
            self._server.use(self._waiting(reason))

    async def _use(self, app: Guard) -> int:
        """Answer with this application from the next request on, which may be the first."""
        if self._server is None:
            self._server = HttpServer(
                app, self._http, supervisor=self._supervisor, counts=self._counts
            )
            self._port = await self._server.start()
        else:
            self._server.use(app)
        return self._port

    def _waiting(self, reason: str) -> Guard:
        failures = self._failures
        readings = Readings(
            campaigns=list,
            participants=list,
            epoch=lambda: 0,
            is_ready=lambda: False,
            task_failures=failures,
            connections=self._counts,
        )
        handlers = Handlers(NotReady(reason), model_facts=_no_facts, limits=self._limits)
        app = build_app(handlers, Parts(Metrics(readings)))
        return guarded(app, self._http, self._limits)

    def _failures(self) -> Mapping[str, int]:
        return self._supervisor.failures

    async def prepare(self, process: Process) -> Serve:
        """Observe from the first decision on; the function that is returned starts to serve."""
        metrics, dashboard = Metrics(self._readings(process)), await _dashboard_of(process)
        for campaign in process.campaigns:
            campaign.observe([metrics])
        handlers = Handlers(
            process.campaigns,
            model_facts=partial(_model_facts, process),
            limits=self._limits,
            decides=process.kind != "trainer",
            names=process.names,
            warnings=partial(_warnings, process),
        )
        pages = dashboard_routes(dashboard, require=require)
        facade = self._personalizer(handlers, process)
        app = build_app(handlers, Parts(metrics, process.tracer, pages, facade))
        guard = guarded(app, self._http, self._limits, public=PUBLIC | PAGE.keys())

        async def serve() -> int:
            port = await self._use(guard)
            names = ", ".join(process.campaigns.names)
            self._log.info("http_listening", port=port, campaigns=names)
            return port

        return serve

    def _personalizer(self, handlers: Handlers, process: Process) -> Personalizer | None:
        settings = self._http.personalizer
        if settings is None:
            return None
        return build_personalizer(
            settings,
            find_campaign=handlers.campaign,
            names=process.names,
            roster=process.roster(),
        )

    def _readings(self, process: Process) -> Readings:
        campaigns = process.campaigns
        return Readings(
            campaigns=lambda: [
                _gauges(each, lag_s=campaigns.lag_s(each.name)) for each in campaigns
            ],
            participants=lambda: [
                ParticipantGauges.of(name, facts) for name, facts in process.participants().items()
            ],
            epoch=lambda: next(iter(campaigns)).model.epoch,
            is_ready=lambda: not campaigns.problems(),
            task_failures=self._failures,
            connections=self._counts,
            shares=process.shares,
        )


class NotReady:
    """Campaigns that are not there yet, and why; implements ``ServedCampaigns``."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getitem__(self, name: str) -> Served:
        """There is none."""
        raise Unavailable(self._reason)

    @property
    def names(self) -> list[str]:
        """There are none."""
        raise Unavailable(self._reason)

    def problems(self) -> list[str]:
        """Why the process is not ready."""
        return [self._reason]


async def _dashboard_of(process: Process) -> Observatory:
    """The page's data: the end of each journal, and all later records."""
    campaigns = process.campaigns
    dashboard = Observatory(
        process.roster().federation,
        campaigns.names,
        participants=process.participants,
        waiting=lambda name: campaigns[name].n_waiting,
        norm=lambda name: campaigns[name].model_norm,
        facts=partial(_facts, process),
        guardrail=lambda name: guardrail_of(campaigns[name], campaigns[name].settings),
        shares=partial(_shares, process),
        link_changes=process.link_changes,
    )
    for campaign in campaigns:
        name = campaign.name
        if isinstance(campaign, Replica):  # what other processes decide counts as well
            dashboard.replay(name, await campaign.tail.read_end(EVENTS_REPLAYED))
            campaign.tail.on_events = partial(dashboard.replay, name)
        else:
            dashboard.replay(name, await campaign.durable.read_end(EVENTS_REPLAYED))
            campaign.observe([dashboard])
    if isinstance(campaigns, Campaigns):
        for consumer in campaigns.consumers:
            consumer.on_entered = dashboard.entered
    return dashboard


def _facts(process: Process, name: str) -> Facts:
    campaign, roster = process.campaigns[name], process.roster()
    return Facts(
        process=process.kind,
        mode=campaign.settings.mode,
        mask_epoch=campaign.model.epoch,
        roster=roster.number,
        protection=roster.terms.protection,
        model_version=campaign.model.n_learnt,
        settings_version=campaign.config_version,
        journal_position=campaign.model.position,
        journal_lag_s=process.campaigns.lag_s(name),
    )


def _shares(process: Process) -> SharesView | None:
    shares = process.shares()
    if shares is None:
        return None
    return SharesView(
        helper=shares.helper,
        has_features=shares.helper in process.roster().split.names,
        learns=shares.learns,
        away=shares.away,
        is_helper_away=shares.is_helper_away,
        released=shares.released,
        alone=shares.alone,
        queued=shares.queued,
        windows=shares.windows,
        decisions=shares.decisions,
        lasts_s=shares.lasts_s,
        is_ending=shares.is_low or (shares.lasts_s is not None and shares.lasts_s < ENDS_SOON_S),
    )


def _warnings(process: Process) -> list[str]:
    shares = process.shares()
    return [] if shares is None else shares.problems()


def _model_facts(process: Process) -> ModelFacts:
    """What all campaigns share, and what is known of the participants."""
    terms = process.roster().terms
    views = [
        ParticipantView(
            name, int(str(facts["width"])), facts["connected"] is True, str(facts["circuit"])
        )
        for name, facts in process.participants().items()
    ]
    return ModelFacts(terms.mask, terms.aggregation, terms.protection, views)


def _gauges(campaign: Leader | Replica, *, lag_s: float) -> CampaignGauges:
    model, bandit = campaign.model, campaign.model.bandit
    durable = campaign.durable if isinstance(campaign, Leader) else None
    source = campaign.journal if isinstance(campaign, Replica) else campaign.durable
    commits, events = source.commits
    guardrail = guardrail_of(campaign, campaign.settings)
    return CampaignGauges(
        campaign.name,
        waiting=campaign.n_waiting,
        waiting_in_memory=len(model.pending),
        max_pending=bandit.pending.max_open,
        recalled=0 if durable is None else durable.n_recalled,
        retired=0 if durable is None else durable.n_retired,
        log_position=model.position,
        unsnapshotted_events=0 if durable is None else durable.since_snapshot,
        commits=commits,
        committed_events=events,
        journal_lag_s=lag_s,
        model_version=model.n_learnt,
        model_norm=campaign.model_norm,
        model_repairs=bandit.n_repairs,
        model_arms=bandit.n_arms,
        model_arms_dropped=bandit.n_arms_dropped,
        guardrail_tripped=guardrail.state == "tripped",
        guardrail_difference=guardrail.difference,
        guardrail_low=guardrail.low,
        guardrail_high=guardrail.high,
    )


def _no_facts() -> ModelFacts:
    raise Unavailable("there is no model yet")
