"""Parity runs on a live federation: separate campaigns of which nothing is kept."""

from vfbandits.campaign.settings import CampaignSettings
from vfbandits.journal.recent import RecentJournal
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import ContextSource, Leader
from vfbandits.settings.model import ModelSettings

MAX_TRIALS = 4


class Trials:
    """The leaders of trials by their numbers, which seed them; the oldest is dropped first."""

    def __init__(
        self, model: ModelSettings, source: ContextSource, role: ActiveParticipant
    ) -> None:
        self._model = model
        self._source = source
        self._role = role
        self._leaders: dict[int, Leader] = {}

    def __getitem__(self, trial: int) -> Leader:
        """The leader of a trial, which begins when it is first asked for."""
        if trial not in self._leaders:
            if len(self._leaders) >= MAX_TRIALS:
                del self._leaders[next(iter(self._leaders))]
            roster, epoch = self._role.roster, self._role.epoch
            durable = DurableBandit.open(
                RecentJournal(), lambda: self._model.build(roster, seed=trial), epoch=epoch
            )
            settings = CampaignSettings(self._model.policy, self._model.floor, reward_wait_s=None)
            self._leaders[trial] = Leader(f"trial {trial}", durable, self._source, settings)
        return self._leaders[trial]

    def clear(self) -> None:
        """Drop all trials: they end with the masks that they began behind."""
        self._leaders.clear()
