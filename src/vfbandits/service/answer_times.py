"""How long each participant takes to answer."""

from collections import OrderedDict
from typing import Final

WEIGHT: Final = 0.05  # of the newest: the last twenty or so count
MOST_OPEN: Final = 256


class AnswerTimes:
    """A moving average of one participant's time from ask to answer.

    >>> times = AnswerTimes()
    >>> times.asked(1, now=10.0)
    >>> times.answered(1, now=10.2)
    >>> round(times.mean_s, 3)
    0.2
    """

    def __init__(self) -> None:
        self.mean_s: float | None = None
        self._asked: OrderedDict[int, float] = OrderedDict()

    def asked(self, round_number: int, *, now: float) -> None:
        """It was asked in this round."""
        self._asked[round_number] = now
        if len(self._asked) > MOST_OPEN:  # those were never answered
            self._asked.popitem(last=False)

    def answered(self, round_number: int, *, now: float) -> None:
        """It has answered in this round."""
        asked = self._asked.pop(round_number, None)
        if asked is None:
            return
        took = now - asked
        self.mean_s = took if self.mean_s is None else self.mean_s + WEIGHT * (took - self.mean_s)
