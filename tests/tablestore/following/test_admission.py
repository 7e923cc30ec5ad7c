"""The size of a batch: each has as much as is allowed, and all batches together have everything once."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.model.log_range import LogRange, LogTransaction
from tablestore.following.admission import Limit, Place, admit, between
from tablestore.following.hybrid import FromLog
from tablestore.following.pieces import LogPiece
from tests.tables import define


@dataclass(frozen=True, slots=True)
class Piece:
    name: str
    units: int
    divisible: bool


VERSIONS = st.lists(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=4), min_size=1, max_size=6)


@given(VERSIONS, st.integers(1, 12), st.none() | st.integers(1, 3))
@example([[(1, False)]] * 3, 12, 1)
def test_batches_take_everything_once_and_no_more_than_they_may(
    drawn: list[list[tuple[int, bool]]], rows: int, versions: int | None
) -> None:
    history = {
        number: [Piece(f"{number}.{i}", units, divisible) for i, (units, divisible) in enumerate(pieces)]
        for number, pieces in enumerate(drawn, 1)
    }
    place, taken = Place(0), []
    while place.version < len(history):
        end = admit(history.__getitem__, place, len(history), Limit(rows, versions))
        assert end != place, "it goes on"
        batch = []
        for version in range(place.version + 1, end.version + (2 if end.units else 1)):
            low = place.units if version == place.version + 1 else 0
            batch += between(history[version], low, end.units if version > end.version else None)
        assert sum(high - low for _, low, high in batch) <= rows or (len(batch) == 1 and not batch[0][0].divisible)
        assert all((low, high) == (0, piece.units) for piece, low, high in batch if not piece.divisible)
        if versions is not None:
            assert end.version - place.version <= versions
        taken += [f"{piece.name}.{unit}" for piece, low, high in batch for unit in range(low, high)]
        place = end
    assert place.units == 0
    pieces = (piece for number in history for piece in history[number])
    assert taken == [f"{piece.name}.{unit}" for piece in pieces for unit in range(piece.units)]


def test_a_batch_is_as_large_as_it_may_be() -> None:
    history = {1: [Piece("a", 10, divisible=True)], 2: [], 3: [Piece("b", 4, divisible=False)]}
    assert admit(history.__getitem__, Place(0), 3, Limit(10)) == Place(2), "what moves no rows costs nothing"
    assert admit(history.__getitem__, Place(0), 3, Limit(13)) == Place(2)
    assert admit(history.__getitem__, Place(0), 3, Limit(14)) == Place(3)
    assert admit(history.__getitem__, Place(2), 3, Limit(1)) == Place(3), "it cannot be cut"
    assert admit(history.__getitem__, Place(0, 3), 3, Limit(5)) == Place(0, 8)
    assert admit(history.__getitem__, Place(0, 3), 3, Limit(10)) == Place(2)
    assert admit(history.__getitem__, Place(0, 3), 3, Limit(11)) == Place(3)
    assert admit(history.__getitem__, Place(0, 3), 3, Limit()) == Place(3)
    assert admit(history.__getitem__, Place(3), 3, Limit(5)) == Place(3)


# --------------------------------------------------------------------------------------------- cutting log ranges

RANGES = st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=3), max_size=4)


class Records:
    """A log of numbered records, with those of others in between."""

    def __init__(self, drawn: list[list[tuple[int, int]]]) -> None:
        self.stored: dict[int, tuple[str, int]] = {}
        self.transactions: list[LogTransaction] = []
        self.reads = 0
        at = number = 0
        for t, ranges in enumerate(drawn):
            parts = []
            for count, others in ranges:
                start = at
                for i in range(count):
                    at += others if i == 1 else 0
                    self.stored[at] = (f"t{t}", number)
                    at, number = at + 1, number + 1
                parts.append(LogRange(0, start, at, count))
            self.transactions.append(LogTransaction(f"t{t}", tuple(parts)))
        self.count = number

    def read(self, transactions: tuple[LogTransaction, ...], written: object, committed_ms: int | None) -> object:
        for transaction in transactions:
            for part in transaction.ranges:
                found = [
                    self.stored[offset][1]
                    for offset in range(part.start, part.end)
                    if self.stored.get(offset, ("", 0))[0] == transaction.id
                ]
                assert len(found) == part.count, "exact ranges"
                self.reads += len(found)
                yield pa.table({"n": pa.array(found, pa.int64())})


def numbers(piece: LogPiece, log: Records) -> list[int]:
    return [n for rows in piece.rows(log) for n in rows["n"].to_pylist()]  # type: ignore[arg-type]


def test_a_batch_that_begins_within_a_range_begins_at_its_own_record() -> None:
    """A range without other records is narrowed, so nothing of it is skipped; one with others is read, and skipped."""
    log = Records([[(4, 0), (3, 2)], [(2, 0)]])
    whole = LogPiece.of(0, FromLog(1, tuple(log.transactions)), define("n BIGINT"))
    for start, skipped in enumerate([0, 0, 0, 0, 0, 1, 2, 0, 0]):
        part = whole.part(start, 9)
        assert numbers(part, log) == list(range(start, 9))
        assert part.skip == skipped
        assert numbers(part.part(1, 9 - start), log) == list(range(start + 1, 9))


@given(RANGES, st.data())
def test_a_part_of_the_log_has_exactly_its_records(drawn: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    log = Records(drawn)
    piece = LogPiece.of(0, FromLog(1, tuple(log.transactions)), define("n BIGINT"))
    assert piece.units == log.count
    start = data.draw(st.integers(0, log.count))
    end = data.draw(st.integers(start, log.count))
    part = piece.part(start, end)
    assert numbers(part, log) == list(range(start, end))
    inner = data.draw(st.integers(0, end - start))
    log.reads = 0
    assert numbers(part.part(inner, end - start), log) == list(range(start + inner, end))
    if all(r.end - r.start == r.count for t in log.transactions for r in t.ranges):
        assert log.reads == end - start - inner, "nothing else is read"
