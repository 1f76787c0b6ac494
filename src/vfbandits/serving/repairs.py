"""A warning, once for each campaign, that its model met numbers too large for float64."""

from vfbandits.core.bandit import Bandit
from vfbandits.telemetry.log import Logger


class RepairWatch:
    """Looks at models now and then; ``vfb_model_repairs_total`` has the count."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._warned: set[str] = set()

    def look(self, campaign: str, bandit: Bandit) -> None:
        """Warn if this model was repaired and nobody was warned before."""
        repairs = bandit.n_repairs
        if repairs and campaign not in self._warned:
            self._warned.add(campaign)
            self._log.warning(
                "model_repaired",
                campaign=campaign,
                repairs=repairs,
                reason="contexts outweigh the ridge beyond what float64 can carry; scale features",
            )
