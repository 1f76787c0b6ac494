"""The paper's cost model: naive counts of operations, and numbers sent (its appendices C.1, C.2).

One addition, multiplication, comparison or random number costs 1, so a product of an (n, m) matrix
with a vector costs n·m + n·(m − 1).  Inverse, Cholesky factor and Gram-Schmidt cost d³, as the
paper sets them.  The paper gives orders only; the constants are ours, from these rules.
"""

BYTES = 8


def product(n: int, m: int) -> int:
    """A matrix (n, m) times a vector."""
    return n * m + n * (m - 1)


def drawing_the_mask(dim: int) -> int:
    """Stage 1, once: d² random numbers, then Gram-Schmidt."""
    return dim**2 + dim**3


def masking(dim: int, n_arms: int, n_participants: int) -> int:
    """Stage 2, each round: every participant's Q_j x_j for every arm, then the sum of them.

    Σ_j (2·d·d_j − d) + (M − 1)·d = 2d² − d for each arm: counted so, M drops out.
    """
    per_arm = 2 * dim**2 - n_participants * dim + (n_participants - 1) * dim
    return n_arms * per_arm


def linucb(dim: int, n_arms: int) -> int:
    """Each round: rewards, Λ⁻¹, widths √(x'Λ⁻¹x), β·width + reward, argmax; then the update."""
    rewards = n_arms * product(1, dim)
    widths = n_arms * (product(dim, dim) + product(1, dim) + 3)
    return rewards + dim**3 + widths + n_arms + _update(dim)


def lints(dim: int, n_arms: int) -> int:
    """Each round: v²Λ⁻¹, its Cholesky factor times d normals plus θ, scores, argmax; the update."""
    sample = dim**2 + dim**3 + dim + product(dim, dim) + dim
    return sample + n_arms * product(1, dim) + n_arms + dim**3 + _update(dim)


def relative(plain: int, *, dim: int, n_arms: int, n_participants: int, horizon: int) -> float:
    """Cost of the masked bandit over that of the plain one, which costs ``plain`` a round."""
    extra = drawing_the_mask(dim) + horizon * masking(dim, n_arms, n_participants)
    return 1.0 + extra / (horizon * plain)


def bytes_per_step(dim: int, n_arms: int, n_participants: int) -> int:
    """K·M·d doubles: every participant's masked row for every arm, the active one's included."""
    return BYTES * n_arms * n_participants * dim


def bytes_in_all(dim: int, n_arms: int, n_participants: int, horizon: int) -> int:
    """All steps, and the mask once: 8·(d² + T·K·M·d)."""
    return BYTES * dim**2 + horizon * bytes_per_step(dim, n_arms, n_participants)


def _update(dim: int) -> int:
    """Λ + xx', u + rx, Λ⁻¹u."""
    return 2 * dim**2 + 2 * dim + product(dim, dim)
