"""Callers and their rights."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from vfbandits.http.refusals import Forbidden
from vfbandits.protocol.roster import APPLICATION, OPERATOR

Right: TypeAlias = Literal["rank", "reward", "figures", "read", "admin"]
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
CALLER: Final = "vfb.caller"  # where a request's scope holds it

_OF_ROLES: Final[dict[str, frozenset[Right]]] = {
    APPLICATION: frozenset({"rank", "reward", "read"}),
    OPERATOR: frozenset({"admin"}),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    Attributes
    ----------
    name
        For logs and limits: keys of the same name share a limit.
    scopes
        What it may: "rank", "reward", "figures" (models, settings, metrics and the page, without
        a user or an event), "read" (these, and events), or "admin", all.
    campaigns
        Campaigns that it may use; None for all.
    """

    name: str
    scopes: frozenset[Right]
    campaigns: frozenset[str] | None = None

    def may(self, right: Right, campaign: str | None = None) -> bool:
        """Whether it has a right in one campaign, or, without one, in the server as a whole.

        >>> web = Caller("web", frozenset({"rank"}), frozenset({"front page"}))
        >>> web.may("rank", "front page"), web.may("reward", "front page"), web.may("rank")
        (True, False, False)
        """
        return self.has(right) and self.sees(campaign)

    def has(self, right: Right) -> bool:
        """Whether it has a right anywhere.

        >>> board = Caller("board", frozenset({"figures"}))
        >>> board.has("figures"), board.has("read")
        (True, False)
        """
        if right == "figures" and "read" in self.scopes:
            return True
        return right in self.scopes or "admin" in self.scopes

    def sees(self, campaign: str | None) -> bool:
        """Whether it may ask about a campaign, or, with None, about all of them."""
        return self.campaigns is None or campaign in self.campaigns


EVERYBODY: Final = Caller("everybody", frozenset({"admin"}))  # any caller of an insecure server


def caller_of_certificate(name: str, role: str) -> Caller:
    """The caller that a certificate names.

    >>> sorted(caller_of_certificate("web", "application").scopes)
    ['rank', 'read', 'reward']
    """
    scopes = _OF_ROLES.get(role)
    if scopes is None:
        wanted = " or ".join(repr(known) for known in _OF_ROLES)
        raise Forbidden(f"wanted a certificate of role {wanted}, got one of {role!r}")
    return Caller(name, scopes)
