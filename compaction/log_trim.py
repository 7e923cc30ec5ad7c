"""Retention of an embedded log, which has no server that would see to it (log/PROTOCOL.md section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from filestore.delta.state import TableState
from filestore.life.holds import holds
from filestore.life.retention import tags_of
from filestore.model.log_range import LogTransaction
from filestore.table import FileStore
from log.embedded import EmbeddedLog
from log.store import log_config

__all__ = ["needed_from", "trim_log", "trims_log"]


def trims_log(state: TableState) -> bool:
    """Whether the table has an embedded log with ``log.retention``."""
    options = state.definition.options
    return bool(options["log.system"] == "embedded" and options["log.retention"] is not None)


def trim_log(store: FileStore) -> int:
    """Forgets records that are older than ``log.retention``, as Kafka does; gives how many offsets that were.

    Kept are those of transactions that have not ended, and those that lead on from a version that a tag or a consumer
    holds; of an eventual log also what was not looked at yet. Safe to repeat.
    """
    state, now_ms = store.state(), store.ambient.now_ms()
    if not trims_log(state):
        return 0
    database, table = store.location.rstrip("/").rsplit("/", 2)[-2:]
    config = log_config(
        state.definition, database=database, table=table, table_id=state.table_id, location=store.location
    )
    assert config is not None
    with EmbeddedLog(config, store.ambient) as log:
        before = log.older_than(now_ms - state.definition.options.milliseconds("log.retention"))
        if config.eventual:  # who looks for strays has to find them
            before = needed_from(before, {bucket: state.log_repaired.get(bucket, 0) for bucket in before}, ())
        held = _held(store, state, now_ms)
        if held is not None:
            before = needed_from(before, store.state(held).log_offsets, ())
        starts = log.start_offsets()
        if all(offset <= starts[bucket] for bucket, offset in before.items()):
            return 0
        if held is not None:
            before = needed_from(before, {}, _transactions(store, held + 1))
        log.trim(before)
        return sum(offset - starts[bucket] for bucket, offset in log.start_offsets().items())


def needed_from(
    before: Mapping[int, int], covered: Mapping[int, int], later: Iterable[LogTransaction]
) -> dict[int, int]:
    """Up to where a log may be trimmed if the changes after a version stay. Pure.

    Args:
        before: Up to where it could be, by bucket.
        covered: The end offsets that the version covers; no bound for buckets that are not named.
        later: Transactions of later versions: their records may lie before those of earlier ones.
    """
    result = {bucket: min(offset, covered.get(bucket, offset)) for bucket, offset in before.items()}
    for transaction in later:
        for part in transaction.ranges:
            result[part.bucket] = min(result[part.bucket], part.start)
    return result


def _held(store: FileStore, state: TableState, now_ms: int) -> int | None:
    """The oldest version that a tag or consumer holds."""
    held = [hold.version for hold in holds(store.storage, store.location, state, now_ms)]
    return min([*held, *(tag.version for tag in tags_of(state).values())], default=None)


def _transactions(store: FileStore, version: int) -> Iterable[LogTransaction]:
    """Those of a version and all later ones."""
    while (commit := store.log.commit(version)) is not None:
        yield from commit.snapshot().transactions
        version += 1
