"""A member's kit: what its owner takes in, and what is refused before anything is written."""

import contextlib
import shutil
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

from vfbandits.admin.federation_files import find_approved, make_roster, write_folders
from vfbandits.admin.kit import Kit
from vfbandits.errors import ConfigError, IdentityError, VFBanditsError
from vfbandits.features.own_table import write_features
from vfbandits.features.scaling import Scaling
from vfbandits.pki import Identity, approve, create_authority, create_request
from vfbandits.pki.files import read_certificate
from vfbandits.protocol.identity import key_digest
from vfbandits.protocol.roster import Terms
from vfbandits.settings.services import load_active, load_passive

SCALING = Scaling("standard", ("age", "pay"), np.zeros(2), np.ones(2), {})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Owners with keys, of whom the bank has fitted a scaling, and the organiser's kits."""
    folder = tmp_path_factory.mktemp("kits")
    authority = create_authority(folder / "ca", "fair")
    (folder / "bank").mkdir()
    SCALING.save(folder / "bank" / "scaling.json")
    write_features(SCALING, folder / "bank" / "bank.csv", key=["user"],
                   beside=folder / "bank" / "scaling.json")  # fmt: skip
    owners = {"shop": ("active", 3, ""), "bank": ("passive", 2, SCALING.digest),
              "gym": ("passive", 1, ""), "gen": ("generator", 0, "")}  # fmt: skip
    for name, (role, width, scaling) in owners.items():
        request = create_request(folder / name / "identity", federation="fair", name=name,
                                 role=role, width=width, scaling=scaling)  # fmt: skip
        (folder / "inbox").mkdir(exist_ok=True)
        approve(request, folder / "ca", out=folder / "inbox")
    roster = make_roster(find_approved(authority), Terms(layout="disjoint"), federation="fair")
    write_folders(roster, authority, folder / "out", address="a.example:1", generators=["gen"])
    return folder


@pytest.fixture
def owner(world, tmp_path):
    """A fresh copy of an owner's folder."""

    def copy(name):
        return shutil.copytree(world / name, tmp_path / name)

    return copy


def kit(world, name):
    return Kit.read(world / "out" / f"{name}.zip")


def repacked(world, tmp_path, name, **changes):
    """The kit of ``name`` with other files; None takes one out."""
    target = tmp_path / f"{name}.zip"
    with ZipFile(world / "out" / f"{name}.zip") as source:
        files = {place: source.read(place) for place in source.namelist()}
    files |= {place.replace("__", "/").replace("_", "."): data for place, data in changes.items()}
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for place, data in files.items():
            if data is not None:
                archive.writestr(place, data)
    return target


def test_a_kit_next_to_the_keys_is_an_identity_and_a_file_that_loads(world, owner):
    folder = owner("bank")
    came = kit(world, "bank")
    joined = came.take_in(folder)
    assert Identity.load(folder / "identity", "bank").subject == came.subject
    assert joined.has_features
    settings = load_passive(joined.config)
    assert settings.features.path == (folder / "bank.csv").resolve()
    assert settings.features.scaling == (folder / "scaling.json").resolve()
    authority = Identity.load(folder / "identity", "bank").authority_path
    assert came.fingerprint == key_digest(read_certificate(authority).public_key())


def test_an_owner_without_a_fitted_scaling_fills_its_features_in(world, owner):
    folder = owner("shop")
    joined = kit(world, "shop").take_in(folder)
    assert not joined.has_features
    assert load_active(joined.config).features is None


def test_a_generator_takes_its_kit_in(world, owner):
    folder = owner("gen")
    kit(world, "gen").take_in(folder)
    assert Identity.load(folder / "identity", "gen").subject.role == "generator"


def test_nothing_is_overwritten(world, owner):
    folder = owner("bank")
    (folder / "bank.toml").write_text("mine")
    before = sorted(folder.rglob("*"))
    with pytest.raises(IdentityError, match="wanted no file there yet"):
        kit(world, "bank").take_in(folder)
    assert sorted(folder.rglob("*")) == before
    assert (folder / "bank.toml").read_text() == "mine"


def test_the_kit_of_another_owner_is_refused(world, owner):
    folder = owner("gym")
    with pytest.raises(IdentityError, match=r"wanted a private key"):
        kit(world, "bank").take_in(folder)
    create_request(folder / "other" / "identity", federation="fair", name="bank", role="passive",
                   width=2)  # fmt: skip
    with pytest.raises(IdentityError, match="must be for the keys in"):
        kit(world, "bank").take_in(folder / "other")
    assert not (folder / "other" / "bank.toml").exists()


def test_a_scaling_that_was_fitted_again_since_the_request_is_refused(world, owner):
    folder = owner("bank")
    other = Scaling("standard", ("age", "pay"), np.zeros(2), np.full(2, 2.0), {})
    other.save(folder / "scaling.json")
    with pytest.raises(ConfigError, match=r"must have the scaling of the request, 2 features"):
        kit(world, "bank").take_in(folder)
    assert not (folder / "bank.toml").exists()
    (folder / "scaling.json").unlink()
    with pytest.raises(ConfigError, match="must be what vfb features fit wrote, but"):
        kit(world, "bank").take_in(folder)


def test_a_kit_whose_parts_do_not_belong_together_is_refused(world, tmp_path):
    create_authority(tmp_path / "evil", "fair")
    evil = (tmp_path / "evil" / "authority.crt").read_bytes()
    gym = (world / "inbox" / "gym.crt").read_bytes()
    toml = (world / "out" / "bank" / "bank.toml").read_text()
    for changes, says in [
        ({"identity__authority_crt": evil}, "must be signed by this federation.s authority"),
        ({"identity__bank_crt": gym}, "files of one member of one federation"),
        ({"identity__bank_crt": b"no"}, "wanted a certificate in PEM"),
        ({"roster_signed": b"no"}, "roster"),
        ({"bank_toml": toml.replace('"passive"', '"active"')}, "must be of passive 'bank'"),
        ({"bank_toml": "="}, "must be TOML"),
        ({"bank_toml": toml.replace("a.example:1", "nowhere")}, "an address is written host:port"),
        ({"bank_toml": None, ".._x_toml": toml}, "a kit has NAME.toml"),
        ({"bank_toml": None}, "a kit has NAME.toml"),
        ({"identity__bank_key": b"a key"}, "a kit has NAME.toml"),
        ({"______tmp__x": b""}, "a kit has NAME.toml"),
    ]:
        with pytest.raises((ConfigError, IdentityError), match=says):
            Kit.read(repacked(world, tmp_path, "bank", **changes))


def test_what_a_stranger_writes_into_the_configuration_is_not_taken_over(world, owner, tmp_path):
    toml = (world / "out" / "bank" / "bank.toml").read_text()
    toml = "insecure = true\n" + toml.replace('"state"', '"elsewhere"').replace(
        "[reconnect]", '[access]\naccept = ["discrete: age"]\n\n[reconnect]'
    )
    folder = owner("bank")
    joined = Kit.read(repacked(world, tmp_path, "bank", bank_toml=toml)).take_in(folder)
    settings = load_passive(joined.config)
    assert (settings.insecure, settings.access.accept) == (False, ())
    assert settings.state == (folder / "state").resolve()
    assert settings.address == "a.example:1"


def test_a_file_that_is_no_kit_is_refused(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04 but no archive")
    with pytest.raises(IdentityError, match="wanted a kit that vfb federation init wrote"):
        Kit.read(tmp_path / "x.zip")
    with pytest.raises(IdentityError, match="wanted a kit, got"):
        Kit.read(tmp_path / "none.zip")


def test_an_archive_that_grows_is_refused(world, tmp_path):
    large = repacked(world, tmp_path, "bank", roster_signed=b"\0" * (5 << 20))
    with pytest.raises(IdentityError, match="have at most"):
        Kit.read(large)


def test_a_kit_with_any_byte_changed_is_taken_or_refused_in_one_line(world, tmp_path):
    good = (world / "out" / "bank.zip").read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "bank.zip"
    for _ in range(300):
        data = bytearray(good)
        for place in rng.integers(len(data), size=3):
            data[place] = rng.integers(256)
        path.write_bytes(data)
        with contextlib.suppress(VFBanditsError):
            Kit.read(path)


@pytest.mark.parametrize(
    ("address", "says"),
    [("[" * 5_000 + "]" * 5_000, "must be TOML"), (f'"a:{"1" * 5_000}"', "a port is at most")],
)
def test_a_configuration_that_is_made_to_harm_is_refused(world, tmp_path, address, says):
    config = f'name = "bank"\nrole = "passive"\naddress = {address}\n'
    with pytest.raises(ConfigError, match=says):
        Kit.read(repacked(world, tmp_path, "bank", bank_toml=config))
