"""Names of columns: some that people have, and random ones that the rule of names allows."""

from __future__ import annotations

from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.names import check_new_name, check_partition_name, check_stored_name

__all__ = ["NAMES", "NAMES_OF_A_TABLE", "PEOPLES"]

PEOPLES = ["US Gross", "Beak Length (mm)", "a,b", "a;b", "{a}=1", "a\tb", "first\nsecond", " a ", "a.b", "a`b", "`a`"]
PEOPLES += [
    'a"b',
    "a'b",
    "a/b",
    "a%20b",
    "é 日本",
    "日",
    "a\\b",
    "a:b",
    "${a}",
    "-",
    "1",
    "#",
    "~",
    "..",
    "a--b",
    "a/*b",
]

_OF_EACH = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_TEXTS = st.text(_OF_EACH | st.sampled_from(" ,;{}()\n\t=`'\".\\/%"), min_size=1, max_size=20)


def _is_allowed(name: str) -> bool:
    try:
        check_stored_name(name)
        check_new_name("name", name)
        check_partition_name(name)
    except InvalidRequest:
        return False
    return True


def _are_others(names: list[str]) -> bool:
    return not {name.lower() for name in names} & {"id", "k", "l", "n", "p", "r"}


NAMES = st.sampled_from(PEOPLES) | _TEXTS.filter(_is_allowed)
"""Any name, also of a partition column."""

NAMES_OF_A_TABLE = st.lists(NAMES, min_size=4, max_size=4, unique_by=str.lower).filter(_are_others)
"""Four different names, which the tests' own columns do not have."""
