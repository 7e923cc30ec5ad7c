"""Which keys a commit repeats in an eventual log, by what the log's tail says of them (log/PROTOCOL.md 5.2). Pure.

A repair writes each of these keys once, however many records of dead writers there are, and however often a repair was
begun before by a writer that died as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

import polars as pl

__all__ = ["PASSED", "TELLER", "Teller", "Whose", "distinct_keys", "needed"]

TELLER = "teller"
"""Column of the tail's records beside those of the key, which are named by numbers: an index of `Teller`."""
PASSED = "passed"
"""Column: whether the record lies before the first one of a writer that lives, so that this commit passes it."""


class Whose(IntEnum):
    """Whose record it is."""

    OWN = 0
    """Of the commit at work, which names it."""
    NAMED = 1
    """Of an earlier version, which names it."""
    STRAY = 2
    """Nobody names it, and its writer has died or failed."""


@dataclass(frozen=True, slots=True)
class Teller:
    """A transaction with records in the tail.

    Attributes:
        whose: Who names it.
        commit: A number of its commit, the same for all transactions of the commit.
        repaired_at: If it is a repair: the version whose rows it repeats; None for changes.
    """

    whose: Whose
    commit: int
    repaired_at: int | None = None


def needed(
    records: pl.DataFrame, tellers: Sequence[Teller], version: int | None, unsure: Collection[int] = ()
) -> pl.DataFrame:
    """The keys of which a reader would hold something else than the table, each once.

    - The last record of the key is a stray.
    - The last record is of an earlier version, and a stray before it is passed now. A reader that began with that
      version has its rows, leaves out its records, and was given the stray: versions could not pass it while a writer
      lived whose records lie before it.

    Not among them are keys whose last record is the commit's own, and those that a dead repair has already repeated as
    they still are: on the version that this commit follows, and neither commit has changed them.

    Args:
        records: Of one bucket, in the order of the log: the key's columns, `TELLER`, `PASSED`. Records of writers that
            live are left out.
        tellers: What `TELLER` means.
        version: The version that the commit follows; None if it replaces partitions, or records of the tail are gone,
            so that nobody can say what an earlier repair rests on.
        unsure: Commits that replaced partitions: what their repairs say rests on that.
    """
    keys = [name for name in records.columns if name not in (TELLER, PASSED)]
    if not tellers:
        return records.select(keys)
    whose = pl.Series([int(teller.whose) for teller in tellers], dtype=pl.Int8).gather(records[TELLER])
    stray = pl.col("whose") == int(Whose.STRAY)
    found = (
        records.with_columns(whose.alias("whose"))
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col(TELLER).last(),
            pl.col("whose").last().alias("last"),
            (pl.col("whose") == int(Whose.OWN)).any().alias("own"),
            stray.any().alias("stray"),
            (stray & pl.col(PASSED)).any().alias(PASSED),
        )
    )
    last_stray = pl.col("last") == int(Whose.STRAY)
    passed_over = (pl.col("last") == int(Whose.NAMED)) & pl.col(PASSED)
    wrong = found.filter(pl.col("stray") & (last_stray | passed_over))
    return wrong.join(_repaired(records, wrong, tellers, version, unsure), on=keys, how="anti").select(keys)


def distinct_keys(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Each key once."""
    return pl.concat(frames).unique(maintain_order=True)


def _repaired(
    records: pl.DataFrame,
    wrong: pl.DataFrame,
    tellers: Sequence[Teller],
    version: int | None,
    unsure: Collection[int],
) -> pl.DataFrame:
    """Keys that a dead repair has repeated as they still are."""
    keys = [name for name in records.columns if name not in (TELLER, PASSED)]
    dead = {at: teller for at, teller in enumerate(tellers) if teller.whose is Whose.STRAY}
    holds = [
        at
        for at, teller in dead.items()
        if version is not None and teller.repaired_at == version and teller.commit not in unsure
    ]
    changes = [at for at, teller in dead.items() if teller.repaired_at is None]
    commits = pl.Series([teller.commit for teller in tellers], dtype=pl.Int64)

    def by_commit(rows: pl.DataFrame, of: Sequence[int]) -> pl.DataFrame:
        kept = rows.filter(pl.col(TELLER).is_in(of))
        return kept.with_columns(commits.gather(kept[TELLER]).alias("commit"))

    repeated = by_commit(wrong.filter(~pl.col("own")), holds)
    changed = by_commit(records, changes).select(*keys, "commit").unique()
    return repeated.join(changed, on=[*keys, "commit"], how="anti").select(keys)
