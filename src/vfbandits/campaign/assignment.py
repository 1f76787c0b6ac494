"""Which arm an event gets whatever the policy chooses: shadow mode, guardrail and holdback."""

from typing import Final

from vfbandits.campaign.settings import GUARDRAIL, SHADOW, CampaignSettings
from vfbandits.core.arrays import Vector

POLICY: Final = "policy"
HOLDBACK: Final = "holdback"


def assign(
    settings: CampaignSettings, *, fraction: float, baseline: int, is_tripped: bool = False
) -> tuple[str, int | None]:
    """The group of an event, and the arm that it is shown unless the policy's is.

    ``fraction`` is the event's own number in [0, 1); ``is_tripped`` says that the guardrail has
    switched the campaign to its baseline.

    >>> from vfbandits import LinUCB
    >>> settings = CampaignSettings(LinUCB(), holdback=0.1)
    >>> assign(settings, fraction=0.05, baseline=2), assign(settings, fraction=0.5, baseline=2)
    (('holdback', 2), ('policy', None))
    """
    if settings.mode == SHADOW:
        return SHADOW, baseline
    if is_tripped:
        return GUARDRAIL, baseline
    if fraction < settings.holdback:
        return HOLDBACK, baseline
    return POLICY, None


def shown_probabilities(
    settings: CampaignSettings, probabilities: Vector, *, baseline: int, is_tripped: bool = False
) -> list[float]:
    """Probability of each arm to be shown: the policy's, and more for the baseline."""
    to_baseline = 1.0 if is_tripped or settings.mode == SHADOW else settings.holdback
    if to_baseline:
        probabilities = (1.0 - to_baseline) * probabilities
        probabilities[baseline] += to_baseline
    shown: list[float] = probabilities.tolist()
    return shown
