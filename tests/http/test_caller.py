"""Callers: what their scopes, campaigns and certificates let them do."""

import pytest

from vfbandits.http.access.caller import RIGHTS, Caller, caller_of_certificate
from vfbandits.http.refusals import Forbidden


def test_admin_may_all_and_others_what_they_were_given():
    admin = Caller("ops", frozenset({"admin"}))
    web = Caller("web", frozenset({"rank", "read"}))
    assert all(admin.may(right, "any") and admin.may(right) for right in RIGHTS)
    assert [right for right in RIGHTS if web.may(right, "any")] == ["rank", "figures", "read"]


def test_a_caller_of_some_campaigns_may_nothing_in_others_nor_in_all():
    caller = Caller("web", frozenset({"admin"}), frozenset({"a"}))
    assert [caller.may("rank", "a"), caller.may("rank", "b"), caller.may("rank")] == [
        True, False, False,
    ]  # fmt: skip


def test_a_certificate_gives_what_its_role_may():
    assert caller_of_certificate("web", "application") == Caller(
        "web", frozenset({"rank", "reward", "read"})
    )
    assert caller_of_certificate("ops", "operator") == Caller("ops", frozenset({"admin"}))
    for role in ("passive", "active", "generator", ""):
        with pytest.raises(Forbidden, match="wanted a certificate of role"):
            caller_of_certificate("x", role)
