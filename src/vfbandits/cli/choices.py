"""Names that flags choose from: the library's own lists, as enumerations."""

from enum import StrEnum


class PolicyName(StrEnum):
    """How to explore."""

    linucb = "linucb"
    lints = "lints"
    lingreedy = "lingreedy"
    inverse_gap = "inverse_gap"


class LayoutName(StrEnum):
    """Where the arm enters."""

    per_arm = "per_arm"
    outer = "outer"
    disjoint = "disjoint"


class TablesLayoutName(StrEnum):
    """Layouts that tables of users can have; outer is refused with the reason."""

    auto = "auto"
    disjoint = "disjoint"
    per_arm = "per_arm"
    outer = "outer"


class MaskName(StrEnum):
    """Which rotations."""

    blockwise = "blockwise"
    dense = "dense"


class AggregationName(StrEnum):
    """What the active participant sees: the parts or the sum."""

    plain = "plain"
    secure = "secure"


class ProtectionName(StrEnum):
    """What is hidden from the active participant."""

    mask = "mask"
    sum = "sum"
    shares = "shares"


class ReleaseName(StrEnum):
    """What the active participant learns of a decision on secret shares."""

    arm = "arm"
    statistics = "statistics"


class UsersName(StrEnum):
    """How passive participants are asked for users."""

    pseudonyms = "pseudonyms"
    clear = "clear"


class SpaceName(StrEnum):
    """Where LinTS draws."""

    auto = "auto"
    arm = "arm"
    parameter = "parameter"


class PlotFormat(StrEnum):
    """What a plot is written as."""

    png = "png"
    svg = "svg"
    none = "none"


class SharedPolicyName(StrEnum):
    """Policies for which words of secret shares can be dealt."""

    lints = "lints"
    lingreedy = "lingreedy"
    linucb = "linucb"
