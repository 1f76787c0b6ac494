"""Noise of a served participant: its key, its terms, and what the active participant hears."""

import asyncio
import json
import stat

import numpy as np
import pytest
from live_world import LiveWorld
from numpy.testing import assert_array_equal
from served_federation import ServedFederation
from typer.testing import CliRunner

from vfbandits.admin.preflight import preflight
from vfbandits.cli.main import app
from vfbandits.core.noise import KEY_BYTES
from vfbandits.errors import ConfigError
from vfbandits.participant.noise import KEY_FILE, TERMS_FILE, open_noise
from vfbandits.protocol.messages import Answer
from vfbandits.protocol.roster import Terms
from vfbandits.settings.noise import NoiseSettings
from vfbandits.settings.services import load_passive

WIDTHS = {"shop": 3, "bank": 2, "news": 2}
PASSIVE = ("bank", "news")
SETTINGS = NoiseSettings(epsilon=10.0, delta=1e-6, clip=1.0, unit="vector")
TABLE = '\n[noise]\nepsilon = 10.0\ndelta = 1e-6\nclip = 1.0\nunit = "vector"\n'
ROW, WHOSE = np.array([[0.25, 0.5]]), [("ann",)]


# --- the key ------------------------------------------------------------------------------------


def test_the_key_survives_a_restart_and_with_it_the_noise(tmp_path):
    first = open_noise(SETTINGS, tmp_path / "noise").add(ROW, WHOSE)
    again = open_noise(SETTINGS, tmp_path / "noise").add(ROW, WHOSE)
    assert_array_equal(first[0], again[0])
    for name in (KEY_FILE, TERMS_FILE):
        assert stat.S_IMODE((tmp_path / "noise" / name).stat().st_mode) == 0o600


def test_a_lost_key_is_an_error_and_is_not_replaced(tmp_path):
    """With a new key every vector would be released, and paid for, once more."""
    open_noise(SETTINGS, tmp_path / "noise")
    (tmp_path / "noise" / KEY_FILE).unlink()
    with pytest.raises(ConfigError, match=r"noise\.key is not there.*costs its epsilon again"):
        open_noise(SETTINGS, tmp_path / "noise")
    assert not (tmp_path / "noise" / KEY_FILE).exists()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            bytes(range(KEY_BYTES)),
            r"must be the key with digest \w{12}…, as in terms.json .* got one with digest",
        ),
        (b"short", f"must have {KEY_BYTES} bytes, got 5"),
    ],
)
def test_another_or_a_damaged_key_is_refused(tmp_path, key, said):
    open_noise(SETTINGS, tmp_path / "noise")
    (tmp_path / "noise" / KEY_FILE).write_bytes(key)
    with pytest.raises(ConfigError, match=said):
        open_noise(SETTINGS, tmp_path / "noise")


def test_a_process_killed_between_key_and_terms_starts_again(tmp_path):
    open_noise(SETTINGS, tmp_path / "noise")
    (tmp_path / "noise" / TERMS_FILE).unlink()
    key = (tmp_path / "noise" / KEY_FILE).read_bytes()
    assert open_noise(SETTINGS, tmp_path / "noise").key == key


def test_all_terms_that_vectors_were_released_under_are_kept(tmp_path):
    """Each is another release; the file holds a digest of the key and not the key."""
    noise = open_noise(SETTINGS, tmp_path / "noise")
    open_noise(NoiseSettings(epsilon=3.0, delta=1e-6, clip=1.0, unit="vector"), tmp_path / "noise")
    open_noise(NoiseSettings(epsilon=3.0, delta=1e-6, clip=1.0, unit="vector"), tmp_path / "noise")
    text = (tmp_path / "noise" / TERMS_FILE).read_text()
    assert [one["noise"]["epsilon"] for one in json.loads(text)["terms"]] == [10.0, 3.0]
    assert {one["noise"]["unit"] for one in json.loads(text)["terms"]} == {"vector"}
    assert noise.key.hex() not in text


def test_damaged_terms_are_told(tmp_path):
    open_noise(SETTINGS, tmp_path / "noise")
    (tmp_path / "noise" / TERMS_FILE).write_text("{")
    with pytest.raises(ConfigError, match=r"terms\.json must be JSON"):
        open_noise(SETTINGS, tmp_path / "noise")


# --- served -------------------------------------------------------------------------------------


def made(folder, *, mode=("blockwise", "plain"), table=TABLE, bound=64.0):
    world = LiveWorld(folder, widths=WIDTHS, terms=Terms(*mode, bound=bound), n_users=4)
    served = ServedFederation(world, "memory")
    config = served.files.config("bank")
    config.write_text(config.read_text() + table)
    return served


def run(served, play):
    async def whole():
        try:
            await served.start_active()
            await served.start(*PASSIVE)
            return await play()
        finally:
            await served.close()

    return asyncio.run(whole())


def listen(served):
    """Values of each answer of ``bank``, as the active participant receives them."""
    heard, hear = [], served.active.role.hear

    def listen_too(name, message, now):
        if name == "bank" and isinstance(message, Answer):
            heard.append(np.frombuffer(message.values).copy())
        return hear(name, message, now)

    served.active.role.hear = listen_too
    return heard


def test_visits_of_one_user_give_the_active_participant_one_noisy_vector(tmp_path):
    """Also after a restart: it has nothing to take a mean of."""
    served = made(tmp_path)

    async def play():
        await served.decide_with(*PASSIVE)
        heard = listen(served)
        for _ in range(3):
            await served.decide_with(*PASSIVE)
        await served.stop("bank")
        await served.start("bank")
        await served.decide_with(*PASSIVE)
        return heard, served.active.participants()

    heard, participants = run(served, play)
    assert len(heard) >= 4
    assert all(np.array_equal(heard[0], values) for values in heard)
    lengths = np.linalg.norm(heard[0].reshape(-1, 2), axis=1)
    plain = np.linalg.norm(served.world.rows("bank", served.world.users[0]), axis=1)
    assert np.abs(lengths - plain).min() > 1e-6  # not even lengths survive, as they do in a mask
    noise = {"epsilon": 10.0, "delta": 1e-06, "clip": 1.0, "unit": "vector"}
    assert participants["bank"]["noise"] == noise
    assert participants["news"]["noise"] is None
    config = str(served.files.config("bank"))
    told = CliRunner().invoke(app, ["access", "report", "--config", config]).output
    assert "ε = 10 per vector, δ = 1e-06, clip 1" in told
    document = CliRunner().invoke(app, ["access", "report", "--config", config, "--json"]).output
    assert [one["unit"] for one in json.loads(document)["noise"]] == ["vector"]


def test_in_a_secure_sum_a_participant_adds_its_own_noise(tmp_path):
    served = made(tmp_path, mode=("dense", "secure"))

    async def play():
        return await served.decide_with(*PASSIVE)

    assert set(run(served, play).contributors) == {"shop", *PASSIVE}
    assert (served.state("bank") / "noise" / KEY_FILE).is_file()
    assert not (served.state("news") / "noise").exists()


def test_noise_beyond_the_bound_of_the_roster_is_refused_at_the_start(tmp_path):
    """Otherwise some answers would be declined, and which ones would depend on the noise."""
    served = made(tmp_path, bound=2.0)
    with pytest.raises(ConfigError, match=r"masked values reach .*, where .* allow at most 2"):
        asyncio.run(served.start("bank"))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TABLE.replace('"vector"', '"round"'), "noise.unit must be vector, got 'round'"),
        (TABLE.replace('unit = "vector"', ""), "noise.unit"),
        (TABLE.replace("1e-6", "0.0"), "noise.delta must be a number of at least 1e-09"),
    ],
)
def test_a_table_that_leaves_the_unit_open_or_has_no_calibration_is_refused(tmp_path, table, said):
    with pytest.raises(ConfigError, match=said):
        load_passive(made(tmp_path, table=table).files.config("bank"))


def test_two_bounds_on_the_norm_are_refused(tmp_path):
    config = made(tmp_path).files.config("bank")
    config.write_text(config.read_text().replace("[features]", "[features]\nclip_norm = 2.0"))
    with pytest.raises(ConfigError, match=r"\[noise\] clips rows at its own clip.*got both"):
        load_passive(config)


# --- preflight ----------------------------------------------------------------------------------


@pytest.fixture
def ready(tmp_path):
    served = made(tmp_path)
    open_noise(SETTINGS, served.state("bank") / "noise")
    return served


def found(served):
    report = preflight(served.files.config("bank"), timeout_s=0.2)
    return {one.state: one.says for one in report.findings if one.what == "noise"}


def test_preflight_tells_the_terms_with_their_unit(ready):
    assert found(ready) == {"ok": "ε = 10 per vector, δ = 1e-06, clip 1, deviation 1.08"}


def test_preflight_tells_a_lost_key(ready):
    (ready.state("bank") / "noise" / KEY_FILE).unlink()
    assert "put it back from a backup" in found(ready)["problem"]


def test_preflight_warns_before_terms_change_or_noise_ends(ready):
    config = ready.files.config("bank")
    text = config.read_text()
    config.write_text(text.replace("epsilon = 10.0", "epsilon = 9.0"))
    assert "costs its epsilon once more" in found(ready)["warning"]
    config.write_text(text.replace(TABLE, ""))
    assert "none, but it was added until now" in found(ready)["warning"]
