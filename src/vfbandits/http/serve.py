"""An active participant with its HTTP interface: a configuration becomes a running process."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from starlette.types import Scope

from vfbandits.campaign.events import Decided
from vfbandits.client.schemas import ParticipantView
from vfbandits.dashboard.observatory import Observatory
from vfbandits.dashboard.view import Facts
from vfbandits.errors import ConfigError
from vfbandits.http.access.caller import Caller, Right
from vfbandits.http.access.gate import PUBLIC, guarded, limits_of
from vfbandits.http.access.guard import Guard, require
from vfbandits.http.app import Parts, build_app
from vfbandits.http.dashboard import PAGE, dashboard_routes
from vfbandits.http.front import SwappableApp
from vfbandits.http.handlers import Handlers, ModelFacts
from vfbandits.http.server import HttpServer
from vfbandits.journal.crypto import JournalKey, read_key
from vfbandits.journal.inbox.open import open_inbox
from vfbandits.journal.open import is_database
from vfbandits.protocol.roster import Terms
from vfbandits.serving.build import Active, build_active, listener_of, open_campaigns
from vfbandits.serving.consumer import Consumer, ConsumerCallbacks
from vfbandits.serving.leader import Leader
from vfbandits.serving.served import Served
from vfbandits.serving.warm_up import warm_up_all
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.services import ActiveSettings
from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.gauges import CampaignGauges, ParticipantGauges, Readings
from vfbandits.telemetry.log import Logger, logger_for
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.tracer import Tracer
from vfbandits.telemetry.tracing import TracingSettings, make_tracer
from vfbandits.transport.event_loop import signalled

EVENTS_REPLAYED = 5_000  # so that the page is not empty after a restart


class ServedActive:
    """An active participant, its campaigns and its HTTP server; ``start`` and ``stop`` it."""

    def __init__(
        self,
        settings: ActiveSettings,
        http: HttpSettings,
        active: Active,
        log: Logger,
        *,
        front: SwappableApp | None = None,
    ) -> None:
        self.active = active
        self.service = active.service
        self._settings = settings
        self._http = http
        self._log = log
        self._front = front
        self._counts = ConnectionCounts() if front is None else front.counts
        self._server: HttpServer | None = None
        self._consumers: list[Consumer] = []
        self._tracer: Tracer = make_tracer(TracingSettings(http.traces))

    async def start(self) -> tuple[int, int]:
        """Listen for participants and for applications; returns both ports."""
        service, settings = self.service, self._settings
        self.campaigns = await open_campaigns(settings, self.active, self._log, tracer=self._tracer)
        await warm_up_all([campaign.model.bandit for campaign in self.campaigns], self._log)
        app = await self._app()
        try:
            port = await service.start(listener_of(settings.place, service))
        except ConfigError:
            await self.stop()
            raise
        await self._consume()
        self.campaigns.start()
        http_port = await self._serve(app)
        self._log.info("http_listening", port=http_port, campaigns=", ".join(self.campaigns.names))
        return port, http_port

    async def stop(self) -> None:
        """Finish what is under way, then close everything."""
        self.campaigns.is_stopping = True
        if self._server is not None:
            await self._server.stop()
        for consumer in self._consumers:
            await consumer.stop()
        await self.service.stop()
        await self.campaigns.stop()
        self._tracer.close()

    def reasons_to_give_way(self) -> list[str]:
        """Why this process should lead no more; a task that is started again is no reason yet."""
        return [*self.campaigns.problems(), *self.service.supervisor.problems(stuck=True)]

    def problems(self) -> list[str]:
        """Why this process should be sent no traffic, if there is a reason."""
        return [*self.campaigns.problems(), *self.service.supervisor.problems()]

    async def _serve(self, app: Guard) -> int:
        if self._front is not None:
            self._front.app = app
            return self._front.port
        self._server = HttpServer(
            app, self._http, supervisor=self.service.supervisor, counts=self._counts
        )
        return await self._server.start()

    async def _consume(self) -> None:
        """Take in what rankers promise, where several processes can share a log."""
        target = self._settings.journal_target
        if not target or not is_database(target):
            return
        key = journal_key_of(self._settings)
        for campaign in self.campaigns:
            open_one = partial(open_inbox, target, name=campaign.name, key=key)
            inbox = await asyncio.to_thread(open_one)
            callbacks = ConsumerCallbacks(self._entered, self._refused, self._failed)
            consumer = Consumer(
                campaign,
                inbox,
                callbacks,
                is_in_use=self._has_rankers,
                supervisor=self.service.supervisor,
            )
            self._consumers.append(consumer)
            consumer.start()

    def _has_rankers(self) -> bool:
        return self.service.counts["gathered"] > 0

    def _entered(self, campaign: str, events: Sequence[Decided]) -> None:
        self._dashboard.entered(campaign, events)

    def _refused(self, campaign: str, reason: str) -> None:
        self._log.error("arrival_refused", campaign=campaign, reason=reason)

    def _failed(self, campaign: str, reason: str) -> None:
        self._log.error("inbox_failed", campaign=campaign, reason=reason)

    async def _app(self) -> Guard:
        campaigns, service = self.campaigns, self.service
        self._dashboard = dashboard = Observatory(
            service.role.roster.federation,
            campaigns.names,
            participants=service.participants,
            waiting=lambda name: campaigns[name].n_waiting,
            norm=lambda name: campaigns[name].model.bandit.estimate_norm(),
            facts=self._facts,
            link_changes=service.presence.changes,
        )
        for campaign in campaigns:
            dashboard.replay(campaign.name, await campaign.durable.read_end(EVENTS_REPLAYED))
        metrics = Metrics(self._readings())
        for campaign in campaigns:
            campaign.observe((metrics, dashboard))
        limits = limits_of(self._http)
        handlers = Handlers(
            campaigns,
            model_facts=self._model_facts,
            limits=limits,
            decides=self._front is None,
            problems=self.problems,
        )
        pages = dashboard_routes(dashboard, require=require_read)
        app = build_app(handlers, Parts(metrics, self._tracer, pages))
        return guarded(app, self._http, limits, public=PUBLIC | PAGE.keys())

    def _facts(self, name: str) -> Facts:
        campaign, roster = self.campaigns[name], self.service.role.roster
        return Facts(
            process="active" if self._front is None else "trainer",
            mode=campaign.settings.mode,
            mask_epoch=campaign.model.epoch,
            roster=roster.number,
            protection=roster.terms.protection,
            model_version=campaign.model.n_learnt,
            settings_version=campaign.config_version,
            journal_position=campaign.model.position,
            journal_lag_s=self._lag_s(name),
        )

    def _lag_s(self, name: str) -> float:
        return max((one.lag_s for one in self._consumers if one.campaign == name), default=0.0)

    def _readings(self) -> Readings:
        return Readings(
            lambda: [_gauges(each, lag_s=self._lag_s(each.name)) for each in self.campaigns],
            lambda: [
                ParticipantGauges.of(name, facts)
                for name, facts in self.service.participants().items()
            ],
            lambda: self.service.role.epoch,
            lambda: not self.problems(),
            lambda: self.service.supervisor.failures,
            self._counts,
        )

    def _model_facts(self) -> ModelFacts:
        return facts_of(self.service.role.roster.terms, self.service.participants())


def facts_of(terms: Terms, participants: Mapping[str, Mapping[str, object]]) -> ModelFacts:
    """What all campaigns share, from what the active participant says of the others."""
    views = [
        ParticipantView(
            name, int(str(facts["width"])), facts["connected"] is True, str(facts["circuit"])
        )
        for name, facts in participants.items()
    ]
    return ModelFacts(terms.mask, terms.aggregation, views)


async def run_served(settings: ActiveSettings, *, on_ready: Callable[[int, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``on_ready`` hears both ports."""
    http = settings.http
    if http is None:
        raise ConfigError("wanted a table [http], got none")
    http.refuse_unless_safe()
    place = settings.place
    log = logger_for(place.name, place.role)
    active = build_active(settings, log)
    service = active.service
    service.supervisor.watch_loop()
    served = ServedActive(settings, http, active, log)
    on_ready(*await served.start())
    await service.supervisor.until(signalled())
    await served.stop()


def require_read(scope: Scope, right: Right) -> Caller:
    """Refuse a request for figures that has no key with the scope to read."""
    return require(scope, right)


def _gauges(leader: Leader, *, lag_s: float) -> CampaignGauges:
    durable = leader.durable
    return replace(
        model_gauges(leader),
        recalled=durable.n_recalled,
        unsnapshotted_events=durable.since_snapshot,
        commits=durable.commits[0],
        committed_events=durable.commits[1],
        journal_lag_s=lag_s,
    )


def model_gauges(campaign: Served) -> CampaignGauges:
    """What a leader and a replica have to tell alike."""
    model, bandit = campaign.model, campaign.model.bandit
    return CampaignGauges(
        campaign.name,
        waiting=campaign.n_waiting,
        waiting_in_memory=len(model.pending),
        max_pending=bandit.pending.max_open,
        log_position=model.position,
        model_version=model.n_learnt,
        model_norm=bandit.estimate_norm(),
        model_repairs=bandit.n_repairs,
        model_arms=bandit.n_arms,
        model_arms_dropped=bandit.n_arms_dropped,
    )


def journal_key_of(settings: ActiveSettings) -> JournalKey | None:
    """The key that the log is encrypted with, if any."""
    return None if settings.journal_key is None else read_key(settings.journal_key)
