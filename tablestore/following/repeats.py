"""What a reader of an eventual log was told already: records that a commit writes again (log/PROTOCOL.md section 5.2).

A task that is tried again writes what the attempt before it wrote, and the commit repeats keys whose last record is of
an attempt that it does not name. Nobody takes back what is in the log, so a reader that gives records as they come
meets the same one two or three times. The rule, bucket by bucket:

    A record is a repeat if it says of its key what another transaction of the same commit said last of it,
    and nobody has said anything else of that key since.

So a repeat changes nothing for whoever applies records by key, and leaving it out never can: what it says is what was
said last, whatever lies between. What is remembered is therefore the last word on each key, of all commits; forgetting
costs repeats and nothing else.

Only hashes are kept. A record that is not the same counts as one with a chance of 2^-64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.equality import by_bits
from filestore.rows.frames import frame_of
from log.transaction_ids import parse_transaction_id

__all__ = ["Repeats"]

MOST_ROWS = 1 << 21
"""Of all buckets; 20 bytes each."""
MOST_ROWS_OF_BUCKET = 1 << 18
"""A bucket's are looked through for each batch of a commit's second transaction."""
MOST_TRANSACTIONS = 1000

_TAKES = [str(kind) for kind in RowKind if not kind.adds]
_SEED = 1  # another one than for keys
# Hashing takes 0.3 ms, however few rows there are, of the 2 ms in which a record is with its reader. So few rows wait.
_WAITING_ROWS = 1000
_WAITING_BYTES = 1 << 18

_Mask = npt.NDArray[np.bool_]


class Repeats:
    """What one reader was told last, as far as it is remembered.

    Args:
        key: The primary key's columns as the reader's rows have them.
        buckets: Of the log.
        most_rows: How many records to remember of all buckets.
        most_transactions: Of how many transactions a bucket.
    """

    def __init__(
        self,
        key: Sequence[str],
        buckets: int,
        most_rows: int = MOST_ROWS,
        most_transactions: int = MOST_TRANSACTIONS,
    ) -> None:
        rows = max(1, min(MOST_ROWS_OF_BUCKET, most_rows // buckets))
        self._buckets = defaultdict[int, _Bucket](lambda: _Bucket(list(key), rows, most_transactions))

    def left_out(self, bucket: int, transaction_id: str, rows: pa.Table) -> pa.Table:
        """The rows without repeats; they count as told.

        Args:
            bucket: Whose records.
            transaction_id: Who wrote them: ``{table uuid}/{commit id}/{task}.{attempt}``.
            rows: With `KIND_COLUMN`, in the log's order.
        """
        return self._buckets[bucket].left_out(transaction_id, rows)

    def forget(self, bucket: int) -> None:
        """Something else than records has changed what the reader holds of the bucket."""
        self._buckets.pop(bucket, None)


class _Bucket:
    """The last words on one bucket's keys."""

    def __init__(self, key: list[str], most_rows: int, most_transactions: int) -> None:
        self._key = key
        self._most_rows = most_rows
        self._most_transactions = most_transactions
        self._next = 0
        self._too_large: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._told: list[pl.DataFrame] = []
        self._rows = 0
        self._numbers: dict[str, dict[str, int]] = {}  # of transactions, by commit
        self._transactions = 0
        self._let_waiting_go()

    def _let_waiting_go(self) -> None:
        self._waiting: list[tuple[int, pa.Table]] = []
        self._waiting_rows = self._waiting_bytes = 0

    def left_out(self, transaction_id: str, rows: pa.Table) -> pa.Table:
        commit = parse_transaction_id(transaction_id)[1]
        if commit == self._too_large:
            self._forget()  # others' last words on its keys are no longer the last
            return rows
        others = [number for id_, number in self._numbers.get(commit, {}).items() if id_ != transaction_id]
        if others:
            rows = rows.filter(pa.array(~self._repeats(rows, others)))
        if rows.num_rows and self._has_room(commit, rows.num_rows):
            self._remember(commit, transaction_id, rows)
        return rows

    def _repeats(self, rows: pa.Table, others: Sequence[int]) -> _Mask:
        """Which rows say what one of these transactions said last."""
        self._hash_waiting()
        said = _hashed([(0, rows)], self._key)
        last = pl.concat(self._told).join(said, on="key", how="semi").unique("key", keep="last", maintain_order=True)
        found = said.join(last, on="key", how="left", maintain_order="left", suffix="_before")
        same = (pl.col("row") == pl.col("row_before")) & pl.col("writer_before").is_in(others)
        # of a key that comes twice in these rows the second follows the first, not what was said before
        repeats = found.select((same & pl.col("key").is_unique()).fill_null(value=False)).to_series()
        return repeats.to_numpy()

    def _has_room(self, commit: str, rows: int) -> bool:
        """Makes room for so many records of a commit. One with more records than that is not remembered."""
        if not self._is_full(rows):
            return True
        self._keep_only(commit)
        if not self._is_full(rows):
            return True
        self._forget()
        self._too_large = commit
        return False

    def _is_full(self, rows: int) -> bool:
        return self._rows + rows > self._most_rows or self._transactions >= self._most_transactions

    def _keep_only(self, commit: str) -> None:
        """Forgets all but what a commit said and others have not said otherwise since."""
        self._hash_waiting()
        own, told = self._numbers.get(commit), self._told
        self._forget()
        if own:
            last = pl.concat(told).unique("key", keep="last", maintain_order=True)
            kept = last.filter(pl.col("writer").is_in(list(own.values())))
            self._told, self._rows = [kept], kept.height
            self._numbers, self._transactions = {commit: own}, len(own)

    def _remember(self, commit: str, transaction_id: str, rows: pa.Table) -> None:
        numbers = self._numbers.setdefault(commit, {})
        if transaction_id not in numbers:
            numbers[transaction_id] = self._next
            self._next += 1
            self._transactions += 1
        self._waiting.append((numbers[transaction_id], rows))
        self._rows += rows.num_rows
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= _WAITING_ROWS or self._waiting_bytes >= _WAITING_BYTES:
            self._hash_waiting()

    def _hash_waiting(self) -> None:
        if self._waiting:
            self._told.append(_hashed(self._waiting, self._key))
            self._let_waiting_go()


def _hashed(parts: Sequence[tuple[int, pa.Table]], key: list[str]) -> pl.DataFrame:
    """Of each record its key, what it says of the key, and who says it."""
    rows = frame_of(pa.concat_tables([part for _, part in parts]))
    writers = np.repeat([number for number, _ in parts], [part.num_rows for _, part in parts])
    hashed = pl.DataFrame(
        {
            "key": rows.select(key).hash_rows(),
            "row": by_bits(rows.drop(KIND_COLUMN)).hash_rows(_SEED),
            "writer": pl.Series(writers, dtype=pl.UInt32),
            "gone": rows[KIND_COLUMN].is_in(_TAKES),
        }
    )
    # a delete says the same of its key whatever it tells of the row, and so do +I and +U
    said = pl.when("gone").then(pl.lit(0, pl.UInt64)).otherwise("row")
    return hashed.select("key", said.alias("row"), "writer")
