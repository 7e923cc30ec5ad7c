"""Reserved column names: the store's own columns beside a user's in files, batches and frames.

All of them begin with ``_``. Users may use other names that do: each collection of MongoDB has an ``_id``.
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
_PREFIXES = ("_key_", "_metadata", "_rough_", "_tablestore_", "__lookup_")
"""A column's or field's name follows them; ``_metadata`` is Spark's, too."""


def is_own(name: str) -> bool:
    """Returns whether a name is reserved, whatever its case."""
    name = name.lower()
    return name in _ON_STORAGE or name in _IN_MEMORY or name.startswith(_PREFIXES)
