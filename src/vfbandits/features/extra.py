"""Parts that are installed apart: what to say when one is not there."""

from importlib.util import find_spec

from vfbandits.errors import FeatureError


def require(package: str, *, extra: str, to: str) -> None:
    """Refuse, with the way out, if ``package`` is not installed.

    >>> require("numpy", extra="none", to="counting")
    """
    if find_spec(package) is None:
        raise FeatureError(
            f"{to} needs {package}, which is not installed; it comes with the "
            f"extra {extra!r}: pip install 'vfbandits[{extra}]'"
        )
