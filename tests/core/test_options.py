"""Options are real keywords: editors show them, and a misspelt one is an error with a hint."""

import inspect

import pytest

import vfbandits as vfb
from vfbandits.core.bandit import BanditOptions

FEDERATION = {"widths": {"shop": 1, "bank": 1}}


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (vfb.Bandit, {"dim": 2, "layot": "outer"}, "'layot'; did you mean 'layout'?"),
        (vfb.Bandit, {"dim": 2, "rigde": 5.0}, "'rigde'; did you mean 'ridge'?"),
        (vfb.Bandit, {"dim": 2, "zzz": 5.0}, "'zzz'; it takes dim, layout, arm_dim"),
        (vfb.Federation, {**FEDERATION, "max_opened": 5}, "'max_opened'; did you mean 'max_open'?"),
        (vfb.Federation, {**FEDERATION, "agregation": "secure"}, "did you mean 'aggregation'?"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_right_name(kind, given, said):
    with pytest.raises(TypeError) as refused:
        kind(vfb.LinUCB(), **given)
    assert str(refused.value).startswith(f"{kind.__name__}() got an unknown option ")
    assert said in str(refused.value)


def test_every_wrong_name_is_told():
    with pytest.raises(TypeError, match=r"(?s)'layout'.*'ridge'"):
        vfb.Bandit(vfb.LinUCB(), dim=1, layot="outer", rigde=1.0)


def test_bandit_and_federation_show_the_same_options_with_the_same_defaults():
    bandit, federation = (
        inspect.signature(kind).parameters for kind in (vfb.Bandit, vfb.Federation)
    )
    for name in BanditOptions.__annotations__:
        assert bandit[name].default == federation[name].default is not inspect.Parameter.empty
        assert bandit[name].annotation == federation[name].annotation
    assert "options" not in bandit
    assert set(bandit) - {"policy", "dim", "unknown"} == set(BanditOptions.__annotations__)


def test_the_options_of_a_bandit_make_another_one():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2, layout="outer", arm_dim=3, ridge=2.0, floor=0.1)
    again = vfb.Bandit(vfb.LinUCB(), dim=2, **bandit.options)
    assert again.options == bandit.options
    federation = vfb.Federation(vfb.LinUCB(), **FEDERATION, ridge=3.0, floor=0.2, seed=4)
    assert federation.bandit.options["ridge"] == 3.0
    assert federation.twin().options == federation.bandit.options
