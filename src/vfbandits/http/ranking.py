"""A ranker with its HTTP interface: it decides, keeps nothing, and there may be many of them."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vfbandits.dashboard.observatory import Observatory
from vfbandits.dashboard.view import Facts
from vfbandits.errors import JournalError
from vfbandits.http.access.gate import PUBLIC, guarded, limits_of
from vfbandits.http.access.guard import Guard
from vfbandits.http.app import Parts, build_app
from vfbandits.http.dashboard import PAGE, dashboard_routes
from vfbandits.http.front import SwappableApp
from vfbandits.http.handlers import Handlers, ModelFacts
from vfbandits.http.serve import EVENTS_REPLAYED, facts_of, model_gauges, require_read
from vfbandits.serving.replica import Replica
from vfbandits.serving.replicas import Replicas, open_replicas
from vfbandits.serving.warm_up import warm_up_all
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.services import ActiveSettings
from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.gauges import CampaignGauges, ParticipantGauges, Readings
from vfbandits.telemetry.log import Logger
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.telemetry.tracer import NoTracer
from vfbandits.transport.event_loop import signalled

TRY_EVERY_S = 0.5


async def run_ranker(
    settings: ActiveSettings,
    http: HttpSettings,
    *,
    address: str,
    log: Logger,
    on_ready: Callable[[int], None],
) -> None:
    """Serve until SIGTERM or SIGINT; ``on_ready`` hears the port as soon as it is there."""
    supervisor = Supervisor(log)
    supervisor.watch_loop()
    front = SwappableApp(http, reason="waiting for the log", supervisor=supervisor)
    on_ready(await front.start())
    stopping = asyncio.create_task(supervisor.until(signalled()))
    rankers = await _open(settings, address, log, stopping, supervisor)
    if rankers is not None:
        app = await _app(rankers, http, front.counts)  # before what follows in the journal
        rankers.start()
        await warm_up_all([ranker.model.bandit for ranker in rankers], log)
        front.app = app
        log.info("ranking", campaigns=", ".join(rankers.names), leader=address)
        await asyncio.wait({stopping})
        rankers.is_stopping = True
    await front.stop()
    if rankers is not None:
        await rankers.stop()
    log.info("stopped")
    await stopping  # which raises if the process could not go on


async def _open(
    settings: ActiveSettings,
    address: str,
    log: Logger,
    stopping: "asyncio.Task[None]",
    supervisor: Supervisor,
) -> Replicas | None:
    """Wait until some trainer has made the logs; None if we are to stop before."""
    told = ""
    while not stopping.done():
        try:
            return await open_replicas(settings, address=address, supervisor=supervisor)
        except JournalError as error:
            if str(error) != told:
                told = str(error)
                log.warning("waiting_for_log", reason=told)
        await asyncio.wait({stopping}, timeout=TRY_EVERY_S)
    return None


async def _app(rankers: Replicas, http: HttpSettings, counts: ConnectionCounts) -> Guard:
    metrics, dashboard = Metrics(_readings(rankers, counts)), await _observatory(rankers)
    for ranker in rankers:
        ranker.observe([metrics])
    limits = limits_of(http)

    def facts() -> ModelFacts:
        return facts_of(rankers.roster.terms, rankers.leader.participants())

    handlers = Handlers(rankers, model_facts=facts, limits=limits)
    pages = dashboard_routes(dashboard, require=require_read)
    app = build_app(handlers, Parts(metrics, NoTracer(), pages))
    return guarded(app, http, limits, public=PUBLIC | PAGE.keys())


async def _observatory(rankers: Replicas) -> Observatory:
    """What the page shows: all decisions of each campaign, as the journal has them."""
    dashboard = Observatory(
        rankers.roster.federation,
        rankers.names,
        participants=rankers.leader.participants,
        waiting=lambda name: rankers[name].n_waiting,
        norm=lambda name: rankers[name].model.bandit.estimate_norm(),
        facts=lambda name: _facts(rankers, name),
        link_changes=rankers.leader.link_changes,
    )
    for ranker in rankers:
        dashboard.replay(ranker.name, await ranker.tail.read_end(EVENTS_REPLAYED))
        ranker.tail.on_events = partial(dashboard.replay, ranker.name)
    return dashboard


def _facts(rankers: Replicas, name: str) -> Facts:
    ranker, roster = rankers[name], rankers.roster
    return Facts(
        process="ranker",
        mode=ranker.settings.mode,
        mask_epoch=ranker.model.epoch,
        roster=roster.number,
        protection=roster.terms.protection,
        model_version=ranker.model.n_learnt,
        settings_version=ranker.config_version,
        journal_position=ranker.model.position,
        journal_lag_s=ranker.tail.lag_s,
    )


def _readings(rankers: Replicas, counts: ConnectionCounts) -> Readings:
    return Readings(
        lambda: [_gauges(ranker) for ranker in rankers],
        lambda: [
            ParticipantGauges.of(name, facts)
            for name, facts in rankers.leader.participants().items()
        ],
        lambda: next(iter(rankers)).model.epoch,
        lambda: not rankers.problems(),
        lambda: rankers.supervisor.failures,
        counts,
    )


def _gauges(ranker: Replica) -> CampaignGauges:
    commits, events = ranker.journal.commits
    return replace(
        model_gauges(ranker),
        commits=commits,
        committed_events=events,
        journal_lag_s=ranker.tail.lag_s,
    )
