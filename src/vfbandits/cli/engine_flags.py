"""Where the independent tasks of a command are run, as flags."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.panels import COMPUTING
from vfbandits.errors import SettingError

if TYPE_CHECKING:
    from vfbandits.simulate.engine import Engine


class EngineName(StrEnum):
    """Where tasks are run."""

    local = "local"
    ray = "ray"


EngineFlag = Annotated[
    EngineName,
    typer.Option("--engine", help="Engine that runs the tasks.", rich_help_panel=COMPUTING),
]
Processes = Annotated[
    int | None,
    typer.Option(
        help="Number of parallel tasks.",
        show_default="all processors",
        rich_help_panel=COMPUTING,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster, host:port.",
        show_default="start a local one",
        rich_help_panel=COMPUTING,
    ),
]


def engine_from(name: EngineName, processes: int | None, ray_address: str | None) -> "Engine":
    """The engine that the flags describe.

    >>> engine_from(EngineName.local, 1, None)  # doctest: +ELLIPSIS
    <vfbandits.simulate.engine.HereEngine object at ...>
    """
    from vfbandits.simulate.on_ray import RayEngine
    from vfbandits.simulate.processes import available_processors, local_engine

    if name is EngineName.ray:
        return RayEngine(ray_address)
    if ray_address is not None:
        raise SettingError(f"--ray-address needs --engine ray, got {ray_address!r} without it")
    return local_engine(available_processors() if processes is None else processes)
