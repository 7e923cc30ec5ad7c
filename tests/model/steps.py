"""The steps of the model test: everything that can happen to a table, as hypothesis strategies."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

from filestore.errors import Unavailable
from tests.faults import FailAt, Killed
from tests.model.model import Shape

__all__ = ["faults", "rows_of"]

_TEXTS = st.sampled_from(["", "a", "ab", "é", "zz\u2028", "\U0001f600", "a'b\"\\", "\U0010ffff" * 70])
_DAYS = st.sampled_from([datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)])
_BIGINT: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-3, 9) | st.sampled_from([-(2**63), 2**63 - 1]),
    "p": st.sampled_from(["x", "y z/%", "\U0001f600"]),
    "v": st.none() | _TEXTS,
}
_COMPOSITE: dict[str, st.SearchStrategy[Any]] = {
    "name": _TEXTS,
    "n": st.integers(-1, 2),
    "p": _DAYS,
    "v": st.none() | st.sampled_from([0.0, 1.5, float("inf"), -3e300]),
}


def rows_of(shape: Shape) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Batches of rows with all row kinds and equal keys among them."""
    columns = _BIGINT if "id" in shape.key else _COMPOSITE
    row = st.fixed_dictionaries(
        {**columns, "s": st.none() | st.integers(-2, 5)},
        optional={"_kind": st.sampled_from(["+I", "+U", "-U", "-D"])},
    )
    return st.lists(row, max_size=12)


def faults() -> st.SearchStrategy[FailAt]:
    """A failure at any storage call of a write; at the commit itself more often than chance would have it."""
    errors = st.sampled_from([Killed, Unavailable]).map(lambda kind: kind("injected"))
    anywhere = st.builds(FailAt, number=st.integers(1, 60), error=errors, after=st.booleans())
    at_commit = st.builds(
        FailAt,
        number=st.just(1),
        error=errors,
        after=st.booleans(),
        operation=st.just("write_new"),
        path=st.just("_delta_log"),
    )
    return anywhere | at_commit
