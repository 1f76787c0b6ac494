"""Which words hide what in the covariance form: their names and shapes, server by server."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vfbandits.core.shares.terms import Shapes, ShareTerms


def n_forms(terms: "ShareTerms") -> int:
    """How many of x_a'Lambda⁻¹x_b are opened at most: none, one for each arm, or each pair."""
    K = terms.max_rows
    return {"means": 0, "widths": K, "covariance": K * (K + 1) // 2}[terms.reads]


def n_triangles(terms: "ShareTerms") -> int:
    """How many numbers the lower triangles of all blocks of Lambda have."""
    return terms.n_blocks * terms.row_dim * (terms.row_dim + 1) // 2


def products(terms: "ShareTerms") -> tuple[int, ...]:
    """The shape of the products of a decision that are masked again."""
    if terms.reads == "means":
        return (1, terms.dim)
    return (terms.max_rows, terms.row_dim + terms.window)


def active_decision(terms: "ShareTerms") -> "Shapes":
    """Words of server A for a decision."""
    shapes: Shapes = {"rho_products": products(terms)} | terms.active_lift_words()
    if not terms.has_units:
        shapes |= {"mask_choice": (terms.max_arms,)}
    if terms.release == "arm":
        shapes |= {"mask_ranks": (terms.max_arms,), "order": (terms.max_arms,)}
    return shapes


def helper_decision(terms: "ShareTerms") -> "Shapes":
    """Words of server B for a decision."""
    shapes: Shapes = {"rho_products": products(terms), "mask_products": products(terms)}
    shapes |= terms.helper_lift_words()
    if terms.reads == "means":
        shapes |= {"blind_rows": (terms.window, terms.dim), "blind_means": (1, terms.max_rows)}
    else:
        shapes |= {
            "blind_forms": (1 + terms.window, n_forms(terms)),
            "blind_means": (1 + terms.window, terms.max_rows),
        }
    if terms.release == "arm":
        shapes |= {
            "rho_scores": (terms.max_arms,),
            "tables": (terms.n_pairs, 8),
            "flips": (terms.n_pairs,),
        }
    return shapes if terms.has_units else shapes | {"blind_context": (terms.dim,)}


def active_reward(terms: "ShareTerms") -> "Shapes":
    """Words of server A for a reward."""
    d, n = terms.dim, terms.window
    return {
        "mask_context": (d,),
        "rho_overlaps": (d + n,),
        "rho_gain": (d + 1,),
        "rho_square": (1,),
        "rho_scale": (1,),
        "rho_row": (d + 1,),
    }


def helper_reward(terms: "ShareTerms") -> "Shapes":
    """Words of server B for a reward."""
    d, n = terms.dim, terms.window
    return active_reward(terms) | {
        "mask_overlaps": (d + n,),
        "mask_gain": (d + 1,),
        "coefficients": terms.scale_table.shape,
        "mask_scale": (1,),
        "mask_row": (d + 1,),
    }


def active_fold(terms: "ShareTerms") -> "Shapes":
    """Words of server A for a fold."""
    return {"rho_inverse": (n_triangles(terms),), "rho_theta": (terms.dim,)}


def helper_fold(terms: "ShareTerms") -> "Shapes":
    """Words of server B for a fold."""
    shapes: Shapes = {"mask_inverse": (n_triangles(terms),), "mask_theta": (terms.dim,)}
    return active_fold(terms) | shapes
