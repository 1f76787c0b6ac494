"""What the Containerfile installs, in a fresh environment, and every role started from it.

There is no container runtime here: the image's own install line and variables are taken from the
file, so that what is tried is what an image would have.
"""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from collectors import collecting
from extras_table import ROOT
from fresh_environment import INSTALL_S, FreshEnvironment
from installed_roles import (
    run_active_and_passive,
    run_active_passive_and_generator,
    run_trainer_and_ranker,
    wait_until,
)

STEPS = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text("utf-8")).splitlines()
HOME = "/opt/vfb"

pytestmark = pytest.mark.timeout(900)


def steps(word):
    return [line.removeprefix(word).strip() for line in STEPS if line.startswith(f"{word} ")]


class Image(FreshEnvironment):
    """The environment that the Containerfile's build stage makes in /opt/vfb."""

    def __init__(self, folder):
        self.folder, self.home = folder / "opt", folder / "home"
        self.home.mkdir()
        self.binaries = self.folder / "bin"
        source = folder / "source"
        source.mkdir()
        for *paths, _ in (line.split() for line in steps("COPY") if "--from" not in line):
            for path in paths:
                made = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
                made(ROOT / path, source / path)
        (install,) = [line for line in steps("RUN") if "pip install" in line]
        line = install.replace(HOME, str(self.folder)).replace(
            "python -m venv", f"{sys.executable} -m venv"
        )
        subprocess.run(["sh", "-c", line], cwd=source, check=True, timeout=INSTALL_S)

    @property
    def variables(self):
        (text,) = steps("ENV")
        return {
            **super().variables,
            **dict(
                word.split("=", 1) for word in shlex.split(text) if not word.startswith("PATH=")
            ),
        }


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    return Image(tmp_path_factory.mktemp("image"))


@pytest.mark.long
def test_the_image_starts_active_passive_generator_and_operator_and_sends_traces(image, tmp_path):
    with collecting() as collector:
        run_active_passive_and_generator(image, tmp_path, http=f'traces = "{collector.address}"\n')
        wait_until(lambda: collector.spans, "traces")


@pytest.mark.long
def test_the_image_starts_trainer_and_ranker(image, tmp_path):
    run_trainer_and_ranker(image, tmp_path)


@pytest.mark.long
def test_the_image_reads_features_from_databases(image):
    done = image.run("python", "-c", "import vfbandits.features.sql, vfbandits.features.redis_hash")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("is_lowest", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rpc_and_http_are_enough_to_start_a_federation_with_http(is_lowest, environment, tmp_path):
    run_active_and_passive(environment("rpc,http", is_lowest=is_lowest), tmp_path)
