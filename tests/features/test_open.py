"""Settings to features: what is opened, what is refused, and how long a row may be."""

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import servers
from feature_tables import write_hashes, write_table
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import ConfigError, FeatureError
from vfbandits.features import FeatureSettings, Lookup, Scaling, open_features
from vfbandits.features.fit import fit_scaling, hash_scaling
from vfbandits.features.open import clip, open_names
from vfbandits.features.table_file import read_table
from vfbandits.settings.decode import decode

ROWS = {("u1",): (30.0, 1.0), ("u2",): (50.0, 3.0)}


@pytest.fixture
def folder(tmp_path):
    columns = {"user": ["u1", "u2"], "age": [30.0, 50.0], "pay": [1.0, 3.0], "city": ["x", "y"]}
    pl.DataFrame(columns).write_parquet(tmp_path / "bank.parquet")
    return tmp_path


def settings_of(folder, text):
    return decode(tomllib.loads(text), FeatureSettings, folder=folder)


FILE = """
kind = "file"
path = "bank.parquet"
key = ["user"]
"""


def fit_bank(folder, **more):
    wanted = {"numbers": ("age", "pay"), "categories": ("city",)}
    table = read_table(folder / "bank.parquet", key=("user",), **wanted)
    return fit_scaling(table.raw, **wanted, **more).save(folder / "scaling.json")


def test_a_file_opens_as_it_is(folder):
    with open_features(settings_of(folder, FILE + 'columns = ["pay", "age"]\nwidth = 2')) as opened:
        answer = opened.block([("u2",), ("u9",)])
        assert_array_equal(answer.values, [[3.0, 50.0], [0.0, 0.0]])
        assert (answer.missing, answer.clipped) == (1, 0)
        assert (opened.width, opened.columns) == (2, ("pay", "age"))
        assert opened.describe() == {
            "kind": "file",
            "rows": 2,
            "columns": ["pay", "age"],
            "width": 2,
            "scaling": Scaling.identity(["pay", "age"]).digest,
            "clip_norm": None,
        }


def test_a_closed_store_holds_no_features_any_more(folder):
    opened = open_features(settings_of(folder, FILE + 'columns = ["pay", "age"]'))
    opened.close()
    opened.close()
    assert opened.block([("u2",)]).missing == 1


def test_a_scaling_brings_its_columns_its_width_and_its_digest(folder):
    path = fit_bank(folder)
    opened = open_features(settings_of(folder, FILE + 'scaling = "scaling.json"\nwidth = 4'))
    assert opened.digest == Scaling.load(path).digest
    assert_allclose(opened.block([("u1",), ("u2",)]).values, [[-1, -1, 1, 0], [1, 1, 0, 1]])


@pytest.mark.parametrize("kind", ["sql", "redis"])
def test_servers_are_found_through_the_environment(folder, kind, monkeypatch):
    scaling = Scaling.identity(["age", "pay"])
    if kind == "sql":
        url = servers.postgres().url
        write_table(url, f"open_{folder.name}", ROWS, key=("user",), scaling=scaling)
        place = f'table = "open_{folder.name}"'
    else:
        url = servers.redis().url
        write_hashes(url, folder.name, ROWS, columns=scaling.columns)
        place = f'prefix = "{folder.name}"'
    monkeypatch.setenv("BANK_URL", url)
    text = f'kind = "{kind}"\nurl_env = "BANK_URL"\nkey = ["user"]\ncolumns = ["age", "pay"]\n'
    settings = settings_of(folder, text + place + "\nclip_norm = 31\ntimeout_s = 5")
    with open_features(settings) as opened:
        opened.check()
        answer = opened.block([("u1",), ("u2",), ("u3",)])
        assert (answer.missing, answer.clipped) == (1, 1)
        assert_array_equal(answer.values[0], [30.0, 1.0])
        assert_allclose(np.linalg.norm(answer.values[1]), 31.0)
        assert "://" not in f"{settings!r} {opened.describe()}"


def test_a_server_need_not_be_there_when_features_are_opened(folder):
    port = servers.free_port()
    for text in (
        f'kind = "redis"\nurl = "redis://127.0.0.1:{port}"\nprefix = "p"\n',
        f'kind = "sql"\nurl = "postgresql+psycopg://me:hidden@127.0.0.1:{port}/x"\ntable = "t"\n',
    ):
        settings = settings_of(folder, text + 'key = ["user"]\ncolumns = ["age"]')
        assert "hidden" not in repr(settings)
        with open_features(settings) as opened:
            with pytest.raises(FeatureError, match="within 1 s, got") as caught:
                opened.check()
            assert "hidden" not in str(caught.value)


def test_another_width_is_refused_with_both(folder):
    fit_bank(folder)
    with pytest.raises(FeatureError, match="must be 3 wide, got 4 from 3 columns"):
        open_features(settings_of(folder, FILE + 'scaling = "scaling.json"\nwidth = 3'))


def test_other_columns_than_the_scalings_are_refused(folder):
    fit_bank(folder)
    both = FILE + 'scaling = "scaling.json"\n'
    open_features(settings_of(folder, both + 'columns = ["age", "pay", "city"]'))
    with pytest.raises(FeatureError, match=r"of scaling.json, age, pay, city, got pay, age, city"):
        open_features(settings_of(folder, both + 'columns = ["pay", "age", "city"]'))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('kind = "file"', "^key is missing, wanted a list"),
        (
            'kind = "oracle"\nkey = ["user"]\ncolumns = ["a"]',
            "kind must be one of file, redis, request, sql, got 'oracle'",
        ),
        (FILE, "columns or a scaling, got neither"),
        (FILE.replace('["user"]', "[]") + 'columns = ["a"]', "one or two columns, each once"),
        (FILE.replace('["user"]', '["u", "u"]') + 'columns = ["a"]', "one or two columns"),
        (FILE.replace('["user"]', '"user"') + 'columns = ["a"]', "key must be a list, got text"),
        (FILE + 'columns = ["a"]\nwidht = 3', r"^widht is not a key, but width is"),
        (
            FILE + 'columns = ["a"]\nwidth = 3.0',
            "width must be a whole number of at least 1, got 3.0",
        ),
        (FILE + 'columns = ["a"]\ntimeout_s = 0', "timeout_s must be a number above 0, got 0"),
        (FILE + 'columns = ["a"]\nclip_norm = -1', "clip_norm must be a number above 0, got -1"),
        (FILE + 'columns = ["a"]\ntimeout_s = inf', "timeout_s must be a finite number, got inf"),
        (FILE + 'columns = ["a"]\nurl = "x"', "kind file need path, got path and url"),
        ('kind = "sql"\nkey = ["u"]\ncolumns = ["a"]\nurl = "x"', "need url and table, got url"),
        ('kind = "redis"\nkey = ["u"]\ncolumns = ["a"]', "need url and prefix, got none"),
        (
            'kind = "redis"\nkey = ["u"]\ncolumns = ["a"]\nprefix = ""',
            "prefix must be text, not empty, got empty text",
        ),
        (
            'kind = "redis"\nkey = ["u"]\ncolumns = ["a"]\nprefix = "p"\nurl = "x"\nurl_env = "X"',
            "need url or url_env, got both",
        ),
    ],
)
def test_settings_that_open_nothing_are_refused(text, says):
    with pytest.raises(ConfigError, match=says):
        settings_of(Path(), text)


def test_an_environment_without_the_url_is_refused(monkeypatch):
    monkeypatch.delenv("BANK_URL", raising=False)
    text = 'kind = "redis"\nkey = ["u"]\ncolumns = ["a"]\nprefix = "p"\nurl_env = "BANK_URL"'
    with pytest.raises(ConfigError, match="a url in BANK_URL, got nothing"):
        open_features(settings_of(Path(), text))


@pytest.mark.parametrize(
    ("text", "package", "extra"),
    [
        (FILE, "polars", "rpc"),
        ('kind = "sql"\nkey = ["u"]\nurl = "sqlite:///x"\ntable = "t"\n', "sqlalchemy", "sql"),
        ('kind = "redis"\nkey = ["u"]\nurl = "redis://x"\nprefix = "p"\n', "redis", "redis"),
    ],
)
def test_a_missing_extra_is_named(folder, monkeypatch, text, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FeatureError, match=f"needs {package}, .* 'vfbandits\\[{extra}\\]'"):
        open_features(settings_of(folder, text + 'columns = ["age"]'))


@given(
    X=arrays(np.float64, (5, 3), elements=st.floats(-1e6, 1e6)),
    longest=st.floats(1e-3, 1e6),
)
def test_no_row_is_longer_than_the_longest_and_short_ones_are_not_touched(X, longest):
    answer = clip(Lookup(PlainBlock(X), absent=[0, 1]), longest)
    lengths = np.linalg.norm(X, axis=1)
    assert (np.linalg.norm(answer.values, axis=1) <= longest * (1.0 + 1e-15)).all()
    short = lengths <= longest * (1.0 - 1e-12)
    assert_array_equal(answer.values[short], X[short])
    # up to rounding: a long row keeps its direction
    assert_allclose(answer.values * lengths[:, None], X * np.minimum(lengths, longest)[:, None],
                    rtol=1e-12, atol=1e-300)  # fmt: skip
    assert answer.missing == 2
    assert answer.values.flags.c_contiguous


REQUEST = 'kind = "request"\nscaling = "scaling.json"\n'


def roster_of(folder, *, layout="disjoint", arm_dim=0, width=4, digest=""):
    active = SimpleNamespace(width=width, scaling=digest)
    return SimpleNamespace(active=active, terms=SimpleNamespace(layout=layout, arm_dim=arm_dim))


def test_features_of_requests_have_scalings_and_no_store(folder):
    scaling = Scaling.load(fit_bank(folder))
    hash_scaling(rest=3).save(folder / "arms.json")
    settings = settings_of(folder, REQUEST + 'arm_scaling = "arms.json"')
    roster = roster_of(folder, layout="outer", arm_dim=3, digest=scaling.digest)
    names = open_names(settings, roster)
    assert (names.own.scaling.digest, names.arms.scaling.width) == (scaling.digest, 3)
    assert open_names(None, roster).own is None


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"layout": "per_arm"}, "arm_scaling under .features. goes with layout 'outer'"),
        ({"layout": "outer", "arm_dim": 2}, "have arm_dim 2, arms.json gives 3"),
        ({"layout": "outer", "arm_dim": 3, "width": 5}, "the roster has 5, .features. give 4"),
        ({"layout": "outer", "arm_dim": 3, "digest": "0"}, "scaling: the roster has '0'"),
    ],
)
def test_scalings_of_requests_that_are_not_the_rosters_are_refused(folder, terms, says):
    fit_bank(folder)
    hash_scaling(rest=3).save(folder / "arms.json")
    settings = settings_of(folder, REQUEST + 'arm_scaling = "arms.json"')
    with pytest.raises(ConfigError, match=says):
        open_names(settings, roster_of(folder, **terms))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (REQUEST + 'key = ["user"]', "so key must be left out, got 1 columns"),
        (REQUEST + 'path = "x.csv"', "kind request need no place, got path"),
        ('kind = "request"', "features need columns or a scaling, got neither"),
    ],
)
def test_settings_of_requests_are_checked(text, says):
    with pytest.raises(ConfigError, match=says):
        decode(tomllib.loads(text), FeatureSettings)
