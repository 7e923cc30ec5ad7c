"""Chooses the keys that a commit repeats in an eventual log, by the records of the log's tail (PROTOCOL.md 5.2). Pure.

A repair writes each of these keys once, even if dead writers left many records of it, or earlier repairs were begun by
writers that died, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from filestore.lazily import pl

__all__ = ["PASSED", "TRANSACTION", "TailTransaction", "Whose", "distinct_keys", "needed"]

TRANSACTION = "transaction"
"""The column with the number of a record's `TailTransaction`; the other columns are the key's, named by numbers."""
PASSED = "passed"
"""Column: whether the record is before the first one of a living writer, so that readers of this commit pass it."""


class Whose(IntEnum):
    """The kind of the commit that wrote a record."""

    OWN = 0
    """The record is of the commit in progress, which names it."""
    NAMED = 1
    """The record is of an earlier version, which names it."""
    STRAY = 2
    """A record that no version names, of a writer that has died or failed."""


@dataclass(frozen=True, slots=True)
class TailTransaction:
    """A transaction with records in the tail.

    Attributes:
        whose: The kind of its commit.
        commit: A number of its commit, the same for all transactions of the commit.
        repaired_at: If it is a repair: the version whose rows it repeats; None for changes.
    """

    whose: Whose
    commit: int
    repaired_at: int | None = None


def needed(
    records: pl.DataFrame, transactions: Sequence[TailTransaction], version: int | None, unsure: Collection[int] = ()
) -> pl.DataFrame:
    """Returns the keys whose rows would be wrong for some reader of the log, each once.

    There are two cases:

    - The last record of the key is a stray.
    - The last record is of an earlier version, and a stray before it is passed now. A reader that began with that
      version has its rows, and leaves out its records, but has read the stray: versions could not pass it while there
      was a living writer with records before it.

    Keys whose last record is the commit's own are left out. So are keys that a dead repair has already repeated
    correctly: it was based on the version that this commit follows, and neither commit has changed them.

    Args:
        records: Records of one bucket, in the order of the log: the key's columns, `TRANSACTION`, `PASSED`. Records of
            living writers are left out.
        transactions: The transactions to whose numbers `TRANSACTION` refers.
        version: The version that the commit follows; None if it replaces partitions, or if records of the tail are
            gone, so that it is unknown whether an earlier repair is still correct.
        unsure: Commits that replaced partitions: their repairs depend on that.
    """
    keys = [name for name in records.columns if name not in (TRANSACTION, PASSED)]
    if not transactions:
        return records.select(keys)
    whose = pl.Series([int(transaction.whose) for transaction in transactions], dtype=pl.Int8).gather(
        records[TRANSACTION]
    )
    stray = pl.col("whose") == int(Whose.STRAY)
    found = (
        records.with_columns(whose.alias("whose"))
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col(TRANSACTION).last(),
            pl.col("whose").last().alias("last"),
            (pl.col("whose") == int(Whose.OWN)).any().alias("own"),
            stray.any().alias("stray"),
            (stray & pl.col(PASSED)).any().alias(PASSED),
        )
    )
    last_stray = pl.col("last") == int(Whose.STRAY)
    passed_over = (pl.col("last") == int(Whose.NAMED)) & pl.col(PASSED)
    wrong = found.filter(pl.col("stray") & (last_stray | passed_over))
    return wrong.join(_repaired(records, wrong, transactions, version, unsure), on=keys, how="anti").select(keys)


def distinct_keys(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Returns each key once."""
    return pl.concat(frames).unique(maintain_order=True)


def _repaired(
    records: pl.DataFrame,
    wrong: pl.DataFrame,
    transactions: Sequence[TailTransaction],
    version: int | None,
    unsure: Collection[int],
) -> pl.DataFrame:
    """Returns the keys that a dead repair has already repeated correctly."""
    keys = [name for name in records.columns if name not in (TRANSACTION, PASSED)]
    dead = {at: found for at, found in enumerate(transactions) if found.whose is Whose.STRAY}
    holds = [
        at
        for at, found in dead.items()
        if version is not None and found.repaired_at == version and found.commit not in unsure
    ]
    changes = [at for at, found in dead.items() if found.repaired_at is None]
    commits = pl.Series([transaction.commit for transaction in transactions], dtype=pl.Int64)

    def by_commit(rows: pl.DataFrame, of: Sequence[int]) -> pl.DataFrame:
        kept = rows.filter(pl.col(TRANSACTION).is_in(of))
        return kept.with_columns(commits.gather(kept[TRANSACTION]).alias("commit"))

    repeated = by_commit(wrong.filter(~pl.col("own")), holds)
    changed = by_commit(records, changes).select(*keys, "commit").unique()
    return repeated.join(changed, on=[*keys, "commit"], how="anti").select(keys)
