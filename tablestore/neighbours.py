"""Refuses modules of the user's that hide the packages beside this one. Importing this module checks it.

The packages have common names: a file ``log.py`` beside a script comes before our package ``log`` in ``sys.path``, and
what fails then is some import far inside. IMPORTANT: nothing but the standard library may be imported here.
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
    """Looks at what Python would import, or has imported, under the packages' names.

    Args:
        packages: Their names.
        home: The folder in which they lie.

    Raises:
        ImportError: it would be something else.
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
    """The module's file, or the package's folder."""
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
    except OSError:  # inside of an archive, or gone meanwhile
        return one == other


require_unhidden(PACKAGES, Path(__file__).parent.parent)
