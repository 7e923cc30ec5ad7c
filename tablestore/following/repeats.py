"""Recognises records that a commit writes again to an eventual log (PROTOCOL.md section 5.2).

A retried task writes again what its former attempt wrote, and the commit repeats keys whose last record is from
an attempt that it does not name. Records in the log cannot be taken back, so a reader that returns records as they
arrive gets the same one two or three times. The rule for each bucket is:

    A record is a repeat if it equals the last record of its key, that one was written by another transaction of
    the same commit, and no other record of the key is in between.

So a repeat changes nothing for a reader that applies records by key, and leaving it out never does: it equals the
last record of its key, whatever is in between. So the last record of each key is remembered, for all commits;
forgetting one only lets repeats through.

Only hashes are kept. A different record is taken for an equal one with a probability of 2^-64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.lazily import pl
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.equality import by_bits
from filestore.rows.frames import frame_of
from log.table.transaction_ids import parse_transaction_id

__all__ = ["Repeats"]

MOST_ROWS = 1 << 21
"""The largest number of rows to remember for all buckets; a row takes 20 bytes."""
MOST_ROWS_OF_BUCKET = 1 << 18
"""The largest number for a bucket: all are searched for each batch of a commit's second transaction."""
MOST_TRANSACTIONS = 1000

_TAKES = [str(kind) for kind in RowKind if not kind.adds]
_SEED = 1  # differs from that of keys
# Hashing takes 0.3 ms however few rows there are, of the 2 ms until a reader gets a record. So small batches wait.
_WAITING_ROWS = 1000
_WAITING_BYTES = 1 << 18

_Mask = npt.NDArray[np.bool_]


class Repeats:
    """The last records that one reader got, as far as they are remembered.

    Args:
        key: The columns of the primary key in the reader's rows.
        buckets: The number of the log's buckets.
        most_rows: How many records to remember for all buckets.
        most_transactions: How many transactions to remember for a bucket.
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

    def without_repeats(self, bucket: int, transaction_id: str, rows: pa.Table) -> pa.Table:
        """Returns the rows without repeats, and remembers them.

        Args:
            bucket: The bucket of the records.
            transaction_id: Their transaction: ``{table uuid}/{commit id}/{task}.{attempt}``.
            rows: The rows with `KIND_COLUMN`, in the log's order.
        """
        return self._buckets[bucket].without_repeats(transaction_id, rows)

    def forget(self, bucket: int) -> None:
        """Forgets a bucket whose rows have changed by something other than records."""
        self._buckets.pop(bucket, None)


class _Bucket:
    """The last records of one bucket's keys."""

    def __init__(self, key: list[str], most_rows: int, most_transactions: int) -> None:
        self._key = key
        self._most_rows = most_rows
        self._most_transactions = most_transactions
        self._next = 0
        self._too_large: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._last: list[pl.DataFrame] = []
        self._rows = 0
        self._numbers: dict[str, dict[str, int]] = {}  # of transactions, by commit
        self._transactions = 0
        self._clear_waiting()

    def _clear_waiting(self) -> None:
        self._waiting: list[tuple[int, pa.Table]] = []
        self._waiting_rows = self._waiting_bytes = 0

    def without_repeats(self, transaction_id: str, rows: pa.Table) -> pa.Table:
        commit = parse_transaction_id(transaction_id)[1]
        if commit == self._too_large:
            self._forget()  # the remembered records of its keys are not the last ones any more
            return rows
        others = [number for id_, number in self._numbers.get(commit, {}).items() if id_ != transaction_id]
        if others:
            rows = rows.filter(pa.array(~self._repeats(rows, others)))
        if rows.num_rows and self._has_room(commit, rows.num_rows):
            self._remember(commit, transaction_id, rows)
        return rows

    def _repeats(self, rows: pa.Table, others: Sequence[int]) -> _Mask:
        """Finds the rows that equal the last record which one of these transactions wrote for the key."""
        self._hash_waiting()
        hashed = _hashed([(0, rows)], self._key)
        last = pl.concat(self._last).join(hashed, on="key", how="semi").unique("key", keep="last", maintain_order=True)
        found = hashed.join(last, on="key", how="left", maintain_order="left", suffix="_before")
        same = (pl.col("row") == pl.col("row_before")) & pl.col("writer_before").is_in(others)
        # of two rows with the same key in this batch the second follows the first, and not a remembered record
        repeats = found.select((same & pl.col("key").is_unique()).fill_null(value=False)).to_series()
        return repeats.to_numpy()

    def _has_room(self, commit: str, rows: int) -> bool:
        """Makes room for records of a commit. A commit with more records than fit is not remembered."""
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
        """Forgets all but the records of a commit that are still the last ones of their keys."""
        self._hash_waiting()
        own, known = self._numbers.get(commit), self._last
        self._forget()
        if own:
            last = pl.concat(known).unique("key", keep="last", maintain_order=True)
            kept = last.filter(pl.col("writer").is_in(list(own.values())))
            self._last, self._rows = [kept], kept.height
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
            self._last.append(_hashed(self._waiting, self._key))
            self._clear_waiting()


def _hashed(parts: Sequence[tuple[int, pa.Table]], key: list[str]) -> pl.DataFrame:
    """Hashes each record's key and row, and adds the number of its transaction."""
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
    # deletes of a key are equal whatever other values they have, and so are +I and +U
    content = pl.when("gone").then(pl.lit(0, pl.UInt64)).otherwise("row")
    return hashed.select("key", content.alias("row"), "writer")
