"""Random draws that belong to an event: the same id, the same draws."""

from hashlib import blake2b

import numpy as np

from vfbandits.core.bandit import Bandit

_ODD = 1
FOR_HOLDBACK = b"share"
FOR_CONTEXTS = b"contexts"


class EventDraws:
    """A generator that is reseeded for every event; one object, since making one takes longer.

    >>> draws = EventDraws(7)
    >>> draws.seed("a")
    >>> first = draws.generator.random()
    >>> draws.seed("b")
    >>> second = draws.generator.random()
    >>> draws.seed("a")
    >>> draws.generator.random() == first, first == second
    (True, False)
    """

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self._key = blake2b(str(seed).encode(), digest_size=32).digest()

    def seed(self, event_id: str) -> None:
        """Make the draws those of this event."""
        drawn = blake2b(event_id.encode(errors="surrogatepass"), key=self._key, digest_size=32)
        digest = drawn.digest()
        self.generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {
                "state": int.from_bytes(digest[:16]),
                "inc": int.from_bytes(digest[16:]) | _ODD,
            },
            "has_uint32": 0,
            "uinteger": 0,
        }

    def lend_to(self, bandit: Bandit) -> None:
        """Let a bandit that makes the same decisions take the same draws."""
        bandit.draw_from(self.generator)

    def fraction(self, event_id: str, purpose: bytes) -> float:
        """A number in [0, 1) of the event's own for one purpose; nothing else depends on it."""
        text = event_id.encode(errors="surrogatepass")
        digest = blake2b(text, key=self._key, person=purpose, digest_size=7).digest()
        return int.from_bytes(digest) / 2.0**56
