"""Finds `prompts/`, `examples/` and `models.toml`: beside the package in a checkout, else inside it."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_path(name: str) -> Path:
    """Return the path of a shipped data file or folder.

    Args:
        name: `"prompts"`, `"examples"` or `"models.toml"`.

    Raises:
        FileNotFoundError: the installation is broken and ships none.
    """
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{name!r} is missing from this installation of offline-summ; install it again")
