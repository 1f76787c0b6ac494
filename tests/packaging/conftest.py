"""The wheel, and environments in which it was installed; made once for all tests here."""

from functools import cache

import pytest
from extras_table import ROWS
from fresh_environment import FreshEnvironment, build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def environment(wheel, tmp_path_factory):
    """``environment(name)`` has the newest versions; with ``is_lowest`` the lowest direct ones."""

    @cache
    def make(name, *, is_lowest=False):
        made = FreshEnvironment(tmp_path_factory.mktemp(f"row-{name.replace(',', '-')}"))
        how = ("--resolution", "lowest-direct") if is_lowest else ()
        made.install(*how, ROWS[name].requirement(wheel))
        return made

    return make
