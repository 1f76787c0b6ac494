"""A bandit that decides and stays as it is: the decision is entered where the log is written.

A ranker's model is the fold of a log that another process writes.  A decision made with it comes
back through that log, and only then may it leave a trace.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from vfbandits.core.bandit import Bandit
from vfbandits.core.reward import Ledger


class StandIn(Bandit):
    """A ``Bandit`` whose decisions may be made aside.

    >>> import vfbandits as vfb
    >>> bandit = StandIn(vfb.LinUCB(), dim=1)
    >>> with bandit.aside():
    ...     decision = bandit.decide([[1.0], [2.0]], decision_id="a")
    ...     seen = bandit.observation(decision)
    >>> bandit.n_decisions, bandit.open_decisions, seen.x
    (0, (), array([2.]))
    """

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Until the end of the block decisions may be made and looked at; then none was made."""
        ledger, number = self._ledger, self._n_decisions
        # LinTS in parameter space has the state keep a root from its first decision on; arms that
        # have states of their own never keep one.
        shared = self.state_of(None)
        form = None if shared is None else shared.form
        self._ledger = Ledger(max_open=1, max_settled=1)
        try:
            yield
        finally:
            self._ledger, self._n_decisions = ledger, number
            if shared is not None and form is not None:
                shared.form = form
