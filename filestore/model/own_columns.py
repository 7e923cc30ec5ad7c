"""Names of the store's own columns, which stand beside a user's in files, batches and frames: no user's column has one.

All begin with ``_``. Other names that do are the user's: each collection of MongoDB has an ``_id``.
"""

from __future__ import annotations

__all__ = ["is_own"]

_ON_STORAGE = frozenset({"_kind", "_change_type", "_commit_version", "_commit_timestamp", "_deleted"})
_IN_MEMORY = frozenset(
    {
        *("_adds", "_alive", "_arrival", "_bucket", "_group", "_hash", "_key", "_known", "_number", "_order"),
        *("_ordinal", "_place", "_rank", "_result", "_row", "_run", "_side", "_stored", "_turn", "_value"),
    }
)
_PREFIXES = ("_key_", "_metadata", "_rough_")
"""With a column's or field's name behind them; ``_metadata`` is Spark's, too."""


def is_own(name: str) -> bool:
    """Whether a name is the store's own, whatever its case."""
    name = name.lower()
    return name in _ON_STORAGE or name in _IN_MEMORY or name.startswith(_PREFIXES)
