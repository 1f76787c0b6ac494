"""Modules of a figure's folder, loaded by path.

A figure may lie anywhere, so its folder becomes a package under a name that no other folder gets.
Its files may import each other (``from .model import …``), also in another process, which loads
them again from the same path.
"""

import hashlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from vfbandits.errors import SettingError, VFBanditsError


def load_module(folder: Path, name: str) -> ModuleType:
    """Load ``folder/name.py``, once in each process."""
    path = folder.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    package = f"_vfb_figure_{digest}"
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(path)]
        sys.modules[package] = parent
    if not (path / f"{name}.py").is_file():
        raise SettingError(f"figure {folder.name} must have a file {name}.py, got none in {folder}")
    try:
        return importlib.import_module(f"{package}.{name}")
    except VFBanditsError:
        raise
    except Exception as error:  # code of a folder may raise anything while it is imported
        raise SettingError(
            f"{name}.py of figure {folder.name} must be importable, "
            f"but {type(error).__name__}: {error}"
        ) from error


def load_function(folder: Path, module: str, name: str) -> Callable[..., object]:
    """The function ``name`` of ``folder/module.py``."""
    function = find_function(folder, module, name)
    if function is None:
        raise SettingError(
            f"{module}.py of figure {folder.name} must have a function {name}, got none"
        )
    return function


def find_function(folder: Path, module: str, name: str) -> Callable[..., object] | None:
    """The function ``name``, or None where the module does not have it."""
    function: object = getattr(load_module(folder, module), name, None)
    return function if callable(function) else None
