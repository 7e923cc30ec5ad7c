"""Trims an embedded log by its retention, since no server does so (log/table/PROTOCOL.md section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from filestore.delta.state import TableState
from filestore.model.log_range import LogTransaction
from filestore.retention.holds import holds
from filestore.retention.rules import tags_of
from filestore.table import FileStore
from log.table.embedded.store import EmbeddedLog
from managed_table.opened import OpenedTable

__all__ = ["needed_from", "trim_log", "trims_log"]


def trims_log(state: TableState) -> bool:
    """Returns whether the table has an embedded log with ``log.retention``."""
    options = state.definition.options
    return bool(options["log.system"] == "embedded" and options["log.retention"] is not None)


def trim_log(table: OpenedTable) -> int:
    """Removes records that are older than ``log.retention``, as Kafka does; returns the number of trimmed offsets.

    It keeps the records of open transactions, those that follow a version that a tag or a consumer holds, and in a log
    with eventual consistency those that were not checked yet. It can be repeated.
    """
    store = table.filestore
    state, now_ms = store.state(), table.ambient.now_ms()
    if not trims_log(state):
        return 0
    config = table.required_log(state.definition)
    with EmbeddedLog(config, table.ambient) as log:
        before = log.older_than(now_ms - state.definition.options.milliseconds("log.retention"))
        if config.eventual:  # the repair of failed writes has to find their records
            before = needed_from(before, {bucket: state.log.repaired.get(bucket, 0) for bucket in before}, ())
        held = _held(store, state, now_ms)
        if held is not None:
            before = needed_from(before, store.state(held).log.offsets, ())
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
    """The offsets up to which a log may be trimmed if the changes after a version are kept. Pure.

    Args:
        before: The offsets up to which it could be trimmed otherwise, by bucket.
        covered: The end offsets that the version covers; buckets that are absent are not restricted.
        later: Transactions of later versions: their records may be before those of earlier ones.
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
    """Yields the transactions of a version and of all later ones."""
    while (commit := store.delta_log.read_entry(version)) is not None:
        yield from commit.snapshot().transactions
        version += 1
