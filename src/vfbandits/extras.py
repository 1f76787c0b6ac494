"""Optional extras: the error for a missing one names the command that installs it."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from vfbandits.errors import FeatureError, VFBanditsError

# The modules by which an extra of pyproject.toml is known to be installed.
MODULES: Final = {
    "fast": ("numba",),
    "experiments": ("matplotlib", "polars", "sklearn"),
    "ray": ("ray",),
    "rpc": ("grpc", "google.protobuf", "polars"),
    "http": ("httptools", "httpx2", "prometheus_client", "starlette"),
    "otel": ("opentelemetry",),
    "sql": ("psycopg", "sqlalchemy"),
    "redis": ("redis",),
    "noise": ("dp_accounting",),
    "align": ("private_set_intersection",),
}


def require(
    package: str, *, extra: str, to: str, error: type[VFBanditsError] = FeatureError
) -> None:
    """Refuse if ``package`` is not installed, with the command that installs it.

    >>> require("numpy", extra="none", to="counting")
    """
    if not _is_installed(package):
        raise error(
            f"{to} needs {package}, which is not installed; it comes with the "
            f"extra {extra!r}: {_command([extra])}"
        )


def require_extras(*extras: str, to: str) -> None:
    """Refuse unless every one of ``extras`` is installed, naming all that are not in one command.

    >>> require_extras(to="counting")
    """
    missing = [extra for extra in extras if not all(map(_is_installed, MODULES[extra]))]
    if missing:
        raise FeatureError(f"{to} needs extras that are not installed: {_command(missing)}")


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to install when an import failed; None if the module belongs to no extra.

    >>> missing_extra(ModuleNotFoundError("No module named 'grpc'", name="grpc"))
    "grpc is not installed; it comes with the extra 'rpc': pip install 'vfbandits[rpc]'"
    """
    top = (error.name or "").partition(".")[0]
    for extra, modules in MODULES.items():
        if top and top in {module.partition(".")[0] for module in modules}:
            return (
                f"{error.name} is not installed; it comes with the extra {extra!r}: "
                f"{_command([extra])}"
            )
    return None


def _command(extras: Iterable[str]) -> str:
    return f"pip install 'vfbandits[{','.join(extras)}]'"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
