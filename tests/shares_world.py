"""Federations on secret shares for tests: roles in one process, a plain twin, recorded messages."""

import numpy as np

import vfbandits as vfb
from vfbandits.core.mask import MaskShare, deal_blockwise
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.terms import ShareTerms


class GivenDraws:
    """Normals that a test sets before each decision of a plain twin."""

    normals = np.zeros(0)

    def standard_normal(self, size):
        assert size == len(self.normals)
        return self.normals

    def random(self):
        return 0.5


class Recorder:
    """Every message with its sender and receiver, in order."""

    def __init__(self):
        self.messages = []

    def __call__(self, sender, receiver, message):
        self.messages.append((sender, receiver, message))

    def view(self, receiver, *senders):
        return [m for s, r, m in self.messages if r == receiver and (not senders or s in senders)]


def small_terms(**changes):
    values = {"widths": (2, 3), "max_arms": 4, "ridge": 0.5, "posterior_scale": 0.3}
    return ShareTerms(**{**values, "window": 3, "decisions": 4, **changes})


def covariance_terms(reads, release, **changes):
    """Terms of a policy whose state is kept as Lambda⁻¹."""
    beta = 0.5 if reads == "widths" else 0.0
    values = {"posterior_scale": 0.0, "reads": reads, "release": release, "beta": beta}
    return small_terms(**{**values, **changes})


COVARIANCE_FORMS = [
    ("means", "arm"),
    ("widths", "arm"),
    ("means", "statistics"),
    ("widths", "statistics"),
    ("covariance", "statistics"),
]


def local_shares(terms, *, seed=0, rotate=False, on_message=None):
    rng = np.random.default_rng(seed)
    turned = deal_blockwise(terms.widths, entropy=rng.bytes)
    rotations = turned if rotate else [MaskShare(np.eye(width)) for width in terms.widths]
    return LocalShares(terms, rotations=rotations, entropy=rng.bytes, on_message=on_message)


def event_id_of(active, blocks):
    """The whole exchange of server A with the helper for a decision in its next slot."""
    ready = yield from active.prepare(active.next_place())
    return (yield from active.decide(ready, blocks))


def unit_rows(rng, n_arms, dim):
    X = rng.standard_normal((n_arms, dim))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def split_rows(X, terms):
    return np.split(X, np.cumsum(terms.widths)[:-1], axis=1)


def plain_twin(terms):
    policy = vfb.LinTS(terms.posterior_scale, space="parameter")
    if not terms.is_noisy:
        policy = vfb.LinUCB(terms.beta) if terms.reads == "widths" else vfb.LinGreedy()
    twin = vfb.Bandit(policy, dim=terms.dim, ridge=terms.ridge)
    draws = GivenDraws()
    twin.draw_from(draws)
    return twin, draws
