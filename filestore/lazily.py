"""polars, which is imported when it is first used.

    from filestore.lazily import pl

Its import takes a tenth of a second of processor time. A process that only opens tables, asks a catalog, or looks up a
row does not need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
else:

    class _Lazily:
        """A module that is imported when one of its names is asked for; Python lets one thread alone import it."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)  # who copies or inspects the names of a module needs no polars
            value = getattr(importlib.import_module(self._name), name)
            setattr(self, name, value)  # the next time it is found without this method
            return value

    pl = _Lazily("polars")

__all__ = ["pl"]
