"""Folders of a whole federation, made in one place: one for each member, as its owner has it.

A folder can be moved: paths in it are relative.  Keys are made here, so these folders are for
trials and for one company; organisations make keys of their own (docs/operations.md).
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.admin.federation_files import (
    admit_operator,
    make_roster,
    write_folders,
)
from vfbandits.admin.kit import IDENTITY
from vfbandits.demo.tables import APP, OPERATOR_NAME, ORGANISER, Owner
from vfbandits.errors import ConfigError
from vfbandits.files import write_whole
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
from vfbandits.pki.approve import approve_with
from vfbandits.pki.authority import Authority, create_authority
from vfbandits.pki.documents import Approved
from vfbandits.pki.files import read_file
from vfbandits.pki.request import create_request
from vfbandits.protocol.roster import ACTIVE, PASSIVE, Terms
from vfbandits.settings.services import load_active, load_place
from vfbandits.settings.template import features_text, with_features

KEY_FILE, EXAMPLE_FILE = "api-key.txt", "rank.json"
MAX_SHOWN_BODY = 120  # characters of a request on the command line
SCOPES = ("rank", "reward", "read", "admin")


@dataclass(frozen=True, slots=True)
class Block:
    """A participant and its features; without a table they come with each request."""

    name: str
    width: int
    owner: Owner | None = None

    @classmethod
    def of(cls, owner: Owner) -> "Block":
        """The block of a table."""
        return cls(owner.name, owner.scaling.width, owner)


@dataclass(frozen=True, slots=True)
class Site:
    """The name and the addresses of a federation.

    Participants connect to ``address``, applications call ``http``, and ``by`` makes their key.
    """

    federation: str
    address: str
    http: str
    by: str


@dataclass(frozen=True, slots=True)
class Kits:
    """Folders that were written; the first participant is the active one.

    ``example`` is the body of a rank request that the server answers.
    """

    folder: Path
    participants: tuple[str, ...]
    url: str
    key: str = field(repr=False)
    example: str = field(repr=False)

    @classmethod
    def find(cls, folder: Path) -> "Kits":
        """The folders of an earlier run."""
        names = [
            path.stem for path in sorted(folder.glob("*/*.toml")) if path.stem == path.parent.name
        ]
        roles = {name: load_place(folder / name / f"{name}.toml").role for name in names}
        active = [name for name, role in roles.items() if role == ACTIVE]
        if len(active) != 1:
            raise ConfigError(
                f"wanted tables, or a folder that vfb poc wrote before, got no folder of an active "
                f"participant in {folder}"
            )
        http = load_active(folder / active[0] / f"{active[0]}.toml").http
        if http is None:
            raise ConfigError(f"wanted [http] in {active[0]}.toml, got none")
        passive = [name for name, role in roles.items() if role == PASSIVE]
        key, example = (
            read_file(folder / APP / name, "a file that vfb poc wrote").decode().strip()
            for name in (KEY_FILE, EXAMPLE_FILE)
        )
        return cls(folder, (active[0], *passive), f"http://{http.address}", key, example)

    def config(self, name: str) -> Path:
        """The configuration file of a member."""
        return self.folder / name / f"{name}.toml"

    @property
    def rank_command(self) -> str:
        """The example, for a shell; a long one is read from its file."""
        body = self.example
        if len(body) > MAX_SHOWN_BODY:
            body = f"@{self.folder / APP / EXAMPLE_FILE}"
        return (
            f"curl -s {self.url}/v1/rank -H 'authorization: Bearer {self.key}' "
            f"-H 'content-type: application/json' -d {shlex.quote(body)}"
        )


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder to fill, which is renamed to ``out`` on success and removed on failure."""
    if out.exists():
        raise ConfigError(
            f"wanted a folder that does not exist yet, got {out}: move it away, or choose another "
            "--out"
        )
    staging = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        staging.mkdir(parents=True, mode=0o700)
        yield staging
        staging.replace(out)
    except OSError as error:
        raise ConfigError(f"wanted a folder to write, got {out}: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_kits(
    folder: Path,
    blocks: Sequence[Block],
    terms: Terms,
    site: Site,
    *,
    example: Mapping[str, object],
) -> Kits:
    """Authority, keys, certificates, roster and configuration of each member, in ``folder``.

    Tables and scalings are there already.
    """
    create_authority(folder / ORGANISER, site.federation)
    authority = Authority.load(folder / ORGANISER)
    approved = [
        _admit(authority, block, folder, role=PASSIVE if place else ACTIVE)
        for place, block in enumerate(blocks)
    ]
    approved.append(admit_operator(authority, OPERATOR_NAME, folder))
    roster = make_roster(approved, terms, federation=site.federation)
    write_folders(roster, authority, folder, address=site.address, http=site.http)
    for block in blocks:
        if block.owner is not None:
            _fill_in(folder / block.name / f"{block.name}.toml", block.owner)
    key = make_key(APP, scopes=SCOPES, by=site.by)
    add_key(folder / blocks[0].name / "keys.json", key.record)
    body = json.dumps(example, ensure_ascii=False)
    (folder / APP).mkdir(mode=0o700)
    _write_secret(folder / APP / KEY_FILE, key.text)
    _write_secret(folder / APP / EXAMPLE_FILE, body)
    return Kits(
        folder, tuple(block.name for block in blocks), f"http://{site.http}", key.text, body
    )


def _admit(authority: Authority, block: Block, folder: Path, *, role: str) -> Approved:
    request = create_request(
        folder / block.name / IDENTITY,
        federation=authority.federation,
        name=block.name,
        role=role,
        width=block.width,
        scaling="" if block.owner is None else block.owner.scaling.digest,
    )
    return approve_with(authority, request).approved


def _fill_in(config: Path, owner: Owner) -> None:
    table = features_text(
        path=owner.file, key=owner.key, scaling="scaling.json", digest=owner.scaling.digest
    )
    text = with_features(config.read_text(encoding="utf-8"), table)
    config.write_text(text, encoding="utf-8")


def _write_secret(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(f"{text}\n".encode()), mode=0o600)


def flatten(source: Path, name: str, target: Path) -> None:
    """Merge the folders of a one-company federation: its own files, and folders of the rest."""
    for path in sorted((source / name).iterdir()):
        path.replace(target / path.name)
    (source / name).rmdir()
    for path in sorted(source.iterdir()):
        path.replace(target / path.name)
    source.rmdir()
