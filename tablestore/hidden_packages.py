"""Refuses modules of the user that hide one of Tablestore's packages. Importing this module runs the check.

The packages have common names: Python finds a file ``log.py`` beside a script before our package ``log``, and then an
import deep inside of Tablestore fails. IMPORTANT: this module imports only the standard library.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path

__all__ = ["PACKAGES", "require_unhidden"]

PACKAGES = ("filestore", "log", "managed_table", "catalog_service", "compaction")


def require_unhidden(packages: Iterable[str], home: Path) -> None:
    """Checks that Python imports, or has imported, our packages under their names.

    Args:
        packages: The names.
        home: The folder that contains our packages.

    Raises:
        ImportError: one of the names stands for something else.
    """
    for name in packages:
        ours = home / name
        theirs = _found(name)
        if theirs is not None and ours.is_dir() and not _same(theirs, ours):
            raise ImportError(
                f"{theirs} hides Tablestore's package {name!r}, which is {ours}: Python finds the former first under "
                f"the name {name!r}. Rename it, or move it out of the folders that sys.path names before {home}",
                name=name,
                path=str(theirs),
            )


def _found(name: str) -> Path | str | None:
    """Returns the file of the module, or the folder of the package, that Python finds under a name."""
    module = sys.modules.get(name)
    if module is not None:
        place = _place(getattr(module, "__file__", None), getattr(module, "__path__", ()))
        return place or "a module without a file, which this program made,"
    spec: ModuleSpec | None = importlib.util.find_spec(name)
    return None if spec is None else _place(spec.origin, spec.submodule_search_locations or ())


def _place(file: str | None, folders: Iterable[str]) -> Path | None:
    found = next(iter(folders), file)
    return None if found is None else Path(found)


def _same(one: Path | str, other: Path) -> bool:
    if isinstance(one, str):
        return False
    try:
        return one.samefile(other)
    except OSError:  # it is inside of an archive, or was removed meanwhile
        return one == other


require_unhidden(PACKAGES, Path(__file__).parent.parent)
