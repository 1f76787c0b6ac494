"""What is served over HTTP: a campaign, be it the leader's or a ranker's view of it."""

from collections.abc import Sequence
from typing import Protocol

from vfbandits.campaign.history import History
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.serving.deciding import Asked, Learnt
from vfbandits.serving.in_groups import Told


class ServedModel(Learnt, Protocol):
    """A model, for reading."""

    @property
    def epoch(self) -> int:
        """Of the masks."""
        ...

    @property
    def position(self) -> int:
        """Of the last event in it."""
        ...


class Served(Protocol):
    """One campaign: ``Campaign`` or ``Ranker``."""

    @property
    def name(self) -> str:
        """Of the campaign."""
        ...

    @property
    def settings(self) -> CampaignSettings:
        """In force now."""
        ...

    @property
    def config_version(self) -> int:
        """How often the settings were changed."""
        ...

    @property
    def layout(self) -> str:
        """Of the contexts."""
        ...

    @property
    def n_waiting(self) -> int:
        """Events that wait for a reward."""
        ...

    @property
    def model(self) -> ServedModel:
        """What was learnt."""
        ...

    async def rank(self, asked: Asked) -> bytes:
        """Decide, durably."""
        ...

    async def rank_many(self, asked: Sequence[Asked]) -> list[Told]:
        """As ``rank`` does for each; where one fails, its error."""
        ...

    async def reward(self, event_id: str, value: float, *, reward_id: str = "") -> str:
        """Take a reward, durably."""
        ...

    async def activate(self, event_id: str) -> bool:
        """The arm is shown now."""
        ...

    async def retract(self, event_id: str, *, by: str) -> float:
        """Take back a learnt reward, durably."""
        ...

    async def history(self, event_id: str) -> History:
        """All that is known of an event."""
        ...

    async def configure(self, changes: dict[str, object]) -> CampaignSettings:
        """Change settings, durably."""
        ...


class ServedCampaigns(Protocol):
    """All campaigns of one process."""

    def __getitem__(self, name: str, /) -> Served:
        """The campaign of this name."""
        ...

    @property
    def names(self) -> list[str]:
        """Their names."""
        ...

    def problems(self) -> list[str]:
        """Why no traffic should come, if there is a reason."""
        ...
