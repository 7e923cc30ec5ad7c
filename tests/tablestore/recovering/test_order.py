"""The offset before which an eventual log needs no repair, compared with a look at every record."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from filestore.model.log_range import LogRange
from tablestore.recovering.order import repaired_until
from tablestore.recovering.tail_scan import unnamed

OWNERS = st.lists(st.sampled_from(["a", "b", "c", "living", "stray"]), max_size=24)


def ranges(owners: list[str]) -> list[LogRange]:
    """Whose records are named: a, b and c."""
    found = []
    for name in "abc":
        if at := [offset for offset, owner in enumerate(owners) if owner == name]:
            found.append(LogRange(0, at[0], at[-1] + 1, len(at)))
    return found


@given(OWNERS, st.integers(0, 24))
@example(["a", "b", "a"], 2)
@example(["a", "living", "a"], 3)
def test_what_is_before_is_named_or_dead_and_no_range_is_across(owners: list[str], looked: int) -> None:
    looked = min(looked, len(owners))
    seen = owners[:looked]
    living = seen.index("living") if "living" in seen else None
    named = ranges(owners)
    until = repaired_until(looked, living, named)
    assert "living" not in owners[:until]
    assert not any(part.start < until < part.end for part in named)
    assert "stray" not in owners[looked:until], "nobody has looked there"
    first_open = min([looked, *([] if living is None else [living])])
    assert until <= first_open or set(owners[first_open:until]) <= {"a", "b", "c"}
    if not any(part.start < first_open < part.end for part in named):
        assert until >= first_open


@given(OWNERS)
def test_offsets_that_nobody_names_are_counted(owners: list[str]) -> None:
    named = ranges(owners)
    assert unnamed(0, len(owners), named) == sum(owner in ("living", "stray") for owner in owners)
    since = repaired_until(len(owners), owners.index("living") if "living" in owners else None, named)
    rest = owners[since:]
    assert unnamed(since, len(owners), named) == sum(owner in ("living", "stray") for owner in rest)


def test_what_was_named_behind_the_end_that_was_read_counts_if_nothing_is_between() -> None:
    assert repaired_until(4, None, [LogRange(0, 0, 4, 4), LogRange(0, 4, 9, 5)]) == 9
    assert repaired_until(4, None, [LogRange(0, 5, 9, 4)]) == 4
    assert repaired_until(4, None, [LogRange(0, 4, 9, 4)]) == 4
    assert repaired_until(4, 2, [LogRange(0, 1, 4, 2)]) == 1
