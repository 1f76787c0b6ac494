"""Federations to be damaged, and what preflight finds of it."""

import copy
import shutil

from live_world import LiveWorld

from vfbandits.admin.preflight import preflight
from vfbandits.core.mask import MaskShare
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.protocol.passive import HeldShare
from vfbandits.protocol.roster import Terms

WIDTHS = {"shop": 3, "bank": 2, "news": 2}


def made(folder, **terms):
    """A federation that was never started."""
    world = LiveWorld(folder, widths=WIDTHS, terms=Terms(**terms), n_users=2, n_arms=2)
    return world.federation()


def copied(original, tmp_path):
    """The same federation in another folder, to be damaged."""
    before, after = original.folder.parent, tmp_path / "copy"
    shutil.copytree(before, after)
    federation = copy.copy(original)
    federation.folder = after / original.folder.name
    for path in federation.folder.glob("*/*.toml"):
        path.write_text(path.read_text().replace(str(before), str(after)))
    return federation


def check(federation, name="shop", **options):
    return preflight(federation.config(name), timeout_s=3.0, **options)


def states(report, what):
    return [finding.state for finding in report.findings if finding.what == what]


def says(report, what, state="problem"):
    """What the one finding of this state says."""
    (text,) = [f.says for f in report.findings if (f.what, f.state) == (what, state)]
    return text


def only_problem(report, what):
    """There is one problem: this one."""
    assert [finding.what for finding in report.problems] == [what], report.problems
    return says(report, what)


def edit(federation, name, old, new):
    path = federation.config(name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def home(federation, name, *parts):
    return federation.folder.joinpath(name, *parts)


def snapshot(folder):
    return {
        path: (path.stat().st_mode, path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in [folder, *folder.rglob("*")]
    }


def store_share(federation, name, columns, roster=None, epoch=1):
    state = home(federation, name, "state")
    state.mkdir(mode=0o700, exist_ok=True)
    shares = ShareFiles(state / "shares")
    shares.store(epoch, HeldShare(MaskShare(columns), federation.sign(roster or federation.roster)))
    return state / "shares" / f"epoch-{epoch}.share"
