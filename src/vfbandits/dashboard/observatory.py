"""The data of the dashboard: an observer that counts in bounded memory and returns views."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from vfbandits.campaign.events import Decided, Event
from vfbandits.campaign.observer import Guarded, Ranked, Reconfigured, RewardSeen
from vfbandits.client.schemas import GuardrailView
from vfbandits.dashboard import build
from vfbandits.dashboard.campaign import Campaign
from vfbandits.dashboard.marks import link_marks, settings_mark
from vfbandits.dashboard.measure import rewards_of
from vfbandits.dashboard.replay import ranked_of
from vfbandits.dashboard.series import step_of
from vfbandits.dashboard.view import DashboardView, Facts, Mark, SharesView
from vfbandits.errors import SettingError

MAX_MINUTES = 24 * 60


class Observatory:
    """An observer of all campaigns of a server.

    Counting a decision or a reward takes a few microseconds, however long the process runs: counts
    are kept in five-second buckets for five minutes, in minutes for an hour, in quarters of an hour
    for a day.  Of each campaign the last 200 decisions are kept whole, and the estimates of the
    last 100,000 until their reward comes.

    Parameters
    ----------
    federation
        Name of the federation, for the page.
    campaigns
        Campaigns that can be selected before their first decision; others appear with theirs.
    participants
        The state of each participant's link: width, connected, circuit, asks, answers, bytes,
        latency_ms, as far as they are known.
    waiting
        Number of pending events of a campaign.
    norm
        The norm of a campaign's theta; called at most once in five seconds.
    facts
        The versions that decide in a campaign.
    guardrail
        The state of a campaign's guardrail.
    shares
        The helper and the dealt words, on secret shares.
    link_changes
        Times, participants and events of links, oldest first (``serving.presence``).
    clock
        Seconds since 1970.

    >>> observatory = Observatory("retail", ["ads"], clock=lambda: 100.0)
    >>> seen = RewardSeen("ads", "a", "tea", "policy", "learnt", 1.0, at=99.0, waited_s=2.0)
    >>> observatory.on_reward(seen)
    >>> observatory.view("ads", minutes=5).totals.statuses
    {'learnt': 1}
    """

    def __init__(  # noqa: PLR0913  (sources of facts, each by keyword)
        self,
        federation: str,
        campaigns: Iterable[str] = (),
        *,
        participants: Callable[[], Mapping[str, Mapping[str, object]]] = dict,
        waiting: Callable[[str], int] = lambda _: 0,
        norm: Callable[[str], float | None] = lambda _: None,
        facts: Callable[[str], Facts | None] = lambda _: None,
        guardrail: Callable[[str], GuardrailView | None] = lambda _: None,
        shares: Callable[[], SharesView | None] = lambda: None,
        link_changes: Callable[[], Iterable[tuple[float, str, str]]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._federation = federation
        self._campaigns = {name: Campaign() for name in campaigns}
        self._participants = participants
        self._waiting = waiting
        self._norm = norm
        self._facts = facts
        self._guardrail = guardrail
        self._shares = shares
        self._link_changes = link_changes
        self._clock = clock

    @property
    def campaigns(self) -> list[str]:
        """Names of the campaigns."""
        return list(self._campaigns)

    def on_ranked(self, seen: Sequence[Ranked]) -> None:
        """Count decisions."""
        campaign = seen[0].campaign
        bucket = self._campaign(campaign).on_ranked(seen)
        if bucket is not None and bucket.norm is None:
            bucket.norm = self._norm(campaign)

    def on_reward(self, seen: RewardSeen) -> None:
        """Count a reward, or the end of a wait without one."""
        self._campaign(seen.campaign).on_reward(seen)

    def on_configured(self, seen: Reconfigured) -> None:
        """Mark a change of settings."""
        self._campaign(seen.campaign).marks.append(settings_mark(seen))

    def on_guardrail(self, seen: Guarded) -> None:
        """Mark a trip or a re-arming of the guardrail."""
        self._campaign(seen.campaign).marks.append(Mark(seen.at, "guardrail", seen.text))

    def replay(self, campaign: str, events: Iterable[tuple[int, Event]]) -> None:
        """Take records of a campaign's journal, in its order: first its end, then new ones.

        What the journal does not hold stays empty.
        """
        for seen in self._campaign(campaign).replay.seen(campaign, events, self._owners()):
            if isinstance(seen, Ranked):
                self.on_ranked([seen])
            elif isinstance(seen, RewardSeen):
                self.on_reward(seen)
            elif isinstance(seen, Guarded):
                self.on_guardrail(seen)
            else:
                self.on_configured(seen)

    def entered(self, campaign: str, events: Iterable[Decided]) -> None:
        """Count decisions of other processes; their rewards come by ``on_reward``."""
        names = self._owners()
        for event in events:
            self.on_ranked([ranked_of(campaign, event, names)])

    def view(
        self, campaign: str = "", *, minutes: int, lists_decisions: bool = True
    ) -> DashboardView:
        """The last minutes of a campaign; without a name, of the first one.

        Without ``lists_decisions`` there is no user and no event in it.

        Rewards count when they are settled: learnt, also as a default or a sum, or logged by a
        frozen model.
        """
        if not 1 <= minutes <= MAX_MINUTES:
            raise SettingError(f"minutes are 1 to {MAX_MINUTES}, got {minutes}")
        name = campaign or next(iter(self._campaigns), "")
        if name and name not in self._campaigns:
            raise SettingError(f"campaign must be one of {self.campaigns}, got {name!r}")
        kept = self._campaigns.get(name, Campaign())
        now = self._clock()
        step_s, _ = step_of(minutes)
        steps, before = kept.series.steps(now, minutes=minutes)
        total = build.whole(steps)
        waiting = self._waiting(name) if name else 0
        return DashboardView(
            federation=self._federation,
            campaigns=self.campaigns,
            campaign=name,
            now=now,
            minutes=minutes,
            step_s=step_s,
            times=[float(step.start) for step in steps],
            totals=build.totals(total, per_second=build.lately(kept.series, now), waiting=waiting),
            rewards=rewards_of(total, steps, before),
            per_second=build.rates(steps, now, step_s),
            p50_ms=[build.milliseconds(step, 0.5) for step in steps],
            p99_ms=[build.milliseconds(step, 0.99) for step in steps],
            arms=build.arms(total, steps),
            participants=build.participants(total, self._participants()),
            drift=build.drift(steps),
            marks=self._marks(kept, since=steps[0].start),
            last=kept.decisions() if lists_decisions else [],
            lists_decisions=lists_decisions,
            facts=self._facts(name) if name else None,
            guardrail=self._guardrail(name) if name else None,
            shares=self._shares(),
        )

    def _owners(self) -> list[str]:
        """Participants that have features; a helper of secret shares may have none."""
        return [name for name, link in self._participants().items() if link.get("width") != 0]

    def _marks(self, kept: Campaign, *, since: float) -> list[Mark]:
        marks = [*kept.marks, *link_marks(self._link_changes())]
        return sorted((one for one in marks if one.at >= since), key=lambda one: one.at)

    def _campaign(self, name: str) -> Campaign:
        found = self._campaigns.get(name)
        if found is None:
            found = self._campaigns[name] = Campaign()
        return found
