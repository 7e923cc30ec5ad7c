"""Removes versions that nothing keeps any more, with the files and Delta log entries that only they need.

The order matters (FORMAT.md section 14). First a commit records which versions have expired. Then consumers are listed.
Then the newest version is read once more, because a rollback may have restored files meanwhile. Then files are removed;
log entries, which name them, are removed last and oldest first. If an expiry is interrupted, the next one continues.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from filestore import layout
from filestore.commit.proposal import Premises, Proposal
from filestore.delta.actions import RUN_DOMAIN, data_file, pending_run
from filestore.delta.checkpoint_files import CheckpointFiles, LogListing
from filestore.delta.log import Commit, DeltaLog
from filestore.delta.state import TableState
from filestore.errors import Corrupt, NotFound
from filestore.model.files import DataFile, PendingRun
from filestore.model.snapshot import Operation
from filestore.retention.history import lifetimes_until, note_named
from filestore.retention.holds import holds
from filestore.retention.lifetimes import Lifetimes, Retained
from filestore.retention.paths import Paths
from filestore.retention.rules import RETENTION_DOMAIN, first_retained, tags_of
from filestore.retention.sidecars import SIDECAR_MS, unnamed_sidecars
from filestore.table import FileStore

__all__ = ["Expiry", "base_checkpoint", "expire", "first_to_keep", "removable_entries", "stored_rows"]

logger = logging.getLogger(__name__)

_WORTH_ENTRIES = 100
"""An expiry that removes no file has to remove so many log entries to be worthwhile, since it adds an entry itself."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """The result of an expiry, or its plan.

    Attributes:
        first: The first version from which on all are retained.
        versions: How many versions it let expire.
        files: Paths of the files that it removed, relative to the table.
        log_entries: How many files of the log's entries and checkpoints it removed, sidecars not counted.
        bytes: The size of the files.
    """

    first: int
    versions: int = 0
    files: tuple[str, ...] = ()
    log_entries: int = 0
    bytes: int = 0

    @property
    def anything(self) -> bool:
        """Returns whether there is anything to do. One version does not count: the last expiry may have added it."""
        return self.versions > 1 or bool(self.files or self.log_entries)

    @property
    def worthwhile(self) -> bool:
        """Returns whether there is so much to do that a commit is worthwhile."""
        return bool(self.files) or self.log_entries >= _WORTH_ENTRIES


def expire(store: FileStore, *, dry_run: bool = False, lazily: bool = False, keep: timedelta = timedelta(0)) -> Expiry:
    """Expires the versions that neither the options nor a tag nor a consumer keeps.

    Args:
        store: The table.
        dry_run: Only returns what would be removed.
        lazily: Does nothing until it is worthwhile; for callers that repeat it often.
        keep: Every version that was the newest one within this duration stays, whatever the options say.

    Raises:
        Conflict: ``too-many-races``: others changed the table's retention or definition again and again.
        Unavailable: the storage failed. Call it again: it continues where it stopped.
    """
    chosen: _Choice | None = None

    def choose(base: TableState) -> _Choice:
        first, lives = _first(store, base, keep), lifetimes_until(store.delta_log, base.version)
        return _Choice(base, first, lives, _planned(store, lives, _retained(store, first, base), base))

    def propose(base: TableState) -> Proposal | None:
        nonlocal chosen
        chosen = choose(base)
        pays = chosen.plan.worthwhile if lazily else chosen.plan.anything
        return _proposal(store, base, chosen.first) if pays and chosen.first > first_retained(base) else None

    if dry_run:
        return choose(store.state()).plan
    committed = store.commit_metadata(propose)
    assert chosen is not None, "an operation that ends without an error has proposed or declined"
    if committed is None and not (chosen.plan.worthwhile if lazily else chosen.plan.anything):
        return Expiry(first_retained(chosen.base))
    return _clean(store, chosen, chosen.base if committed is None else committed.state)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The choice of what may expire, made on a version."""

    base: TableState
    first: int
    lives: Lifetimes
    plan: Expiry


def first_to_keep(state: TableState, current_then: int, held: frozenset[int]) -> int:
    """Returns the first version from which on all are kept. Pure.

    Args:
        state: The newest version.
        current_then: The version that was the newest one ``snapshot.time-retained`` ago; 0 if there was none. The time
            of a version counts from the commit of the next one, since until then readers begin with it.
        held: The versions that consumers hold.
    """
    options = state.definition.options
    first, most = current_then, options["snapshot.num-retained.max"]
    if most is not None:
        first = max(first, state.version - most + 1)
    first = min(first, state.version - options["snapshot.num-retained.min"] + 1, *held)
    return max(int(first), first_retained(state))


def base_checkpoint(retained: Retained, versions: Sequence[int], checkpoints: Sequence[int]) -> int:
    """Returns the newest checkpoint from which all needed versions can be read; 0 if there is none. Pure."""
    return max((c for c in checkpoints if c <= retained.oldest and c in set(versions)), default=0)


def removable_entries(retained: Retained, listing: LogListing) -> tuple[str, ...]:
    """Returns the names of the entries and checkpoints that can be removed: those before `base_checkpoint`. Pure.

    They are in the order in which to remove them: oldest first.
    """
    return tuple(listing.before(base_checkpoint(retained, listing.versions, listing.checkpoints)))


def stored_rows(store: FileStore, planned: Expiry) -> int:
    """Counts the rows in the data files and pending runs that an expiry would remove; a file has deleted ones, too.

    It reads the whole history once more, for somebody who is asked before.
    """
    log, wanted = store.delta_log, set(planned.files)

    def count(_: object) -> int:
        oldest = log.oldest()
        by, newest = oldest.definition.partition_by, store.state().version
        stored: Iterable[DataFile | PendingRun] = itertools.chain(oldest.files, oldest.pending)
        rows = {file.path: file.rows for file in stored if file.path in wanted}
        for entry in log.required(range(oldest.version + 1, newest + 1)):
            rows |= {file.path: file.rows for file in _added(entry, by) if file.path in wanted}
        return sum(rows.values())

    return log.read_consistently(count)


def _added(entry: Commit, partition_by: Sequence[str]) -> Iterator[DataFile | PendingRun]:
    for action in entry.actions:
        domain = action.get("domainMetadata", {})
        if "add" in action:
            yield data_file(action["add"], partition_by)
        elif domain.get("domain", "").startswith(RUN_DOMAIN) and not domain["removed"]:
            yield pending_run(domain["configuration"], partition_by)


def _first(store: FileStore, state: TableState, keep: timedelta) -> int:
    now = store.ambient.now_ms()
    then = _newest_at(store, now - state.definition.options.milliseconds("snapshot.time-retained"))
    held = {hold.version for hold in holds(store.storage, store.location, state, now)}
    if keep:
        held.add(_newest_at(store, now - keep // timedelta(milliseconds=1)))
    return first_to_keep(state, then, frozenset(held))


def _newest_at(store: FileStore, at_ms: int) -> int:
    try:
        return store.version_at(at_ms)
    except NotFound:
        return 0  # the table is younger, or the version of that time has expired before


def _retained(store: FileStore, first: int, *states: TableState) -> Retained:
    held = [h.version for h in holds(store.storage, store.location, states[-1], store.ambient.now_ms())]
    tagged = {tag.version for state in states for tag in tags_of(state).values()}
    return Retained(min(first, *held) if held else first, tuple(sorted(tagged)))


def _planned(store: FileStore, lives: Lifetimes, retained: Retained, state: TableState) -> Expiry:
    log = store.delta_log
    entries = removable_entries(retained, log.listing())
    expiring = max(0, retained.first - first_retained(state))
    files = _there(store, lives.unneeded(retained, state))
    return Expiry(retained.first, expiring, tuple(files), len(entries), sum(files.values()))


def _there(store: FileStore, paths: Sequence[str]) -> dict[str, int]:
    """Returns the sizes of those that still exist: entries also name files of versions that expired long ago."""
    if not paths:
        return {}
    wanted, prefix = dict.fromkeys(paths, 0), layout.join(store.location, "")
    stored = ((info.path.removeprefix(prefix), info.size) for info in store.storage.walk(store.location))
    return dict(sorted((path, size) for path, size in stored if path in wanted))


def _proposal(store: FileStore, state: TableState, first: int) -> Proposal:
    return Proposal(
        Operation.EXPIRE,
        store.ambient.new_id(),
        state.version,
        premises=Premises(watched_domains=frozenset([RETENTION_DOMAIN])),
        domains={RETENTION_DOMAIN: {"first": first}},
        metrics={"versions_expired": first - first_retained(state)},
    )


def _clean(store: FileStore, chosen: _Choice, announced: TableState) -> Expiry:
    """Removes what is not needed, by the version that recorded what has expired.

    IMPORTANT: consumers are listed after that version was committed, and the newest version is read after that: a
    rollback holds the version that it restores until it is committed. One that a database has decided, and that nobody
    has published yet, counts, too.
    """
    held = holds(store.storage, store.location, announced, store.ambient.now_ms())
    newest = store.decided()
    lives, lately = chosen.lives, Paths()  # what later versions have named stays until the next expiry
    lately.update_runs(chosen.base)  # an entry that ends a run need not name it: its domain has other runs by then
    try:
        note_named(store.delta_log, lately, range(lives.version + 1, newest.version + 1))
    except Corrupt:  # another expiry has removed them
        lives = lifetimes_until(store.delta_log, newest.version)
    first = min([first_retained(announced), *(hold.version for hold in held)])
    tagged = {tag.version for state in (announced, newest) for tag in tags_of(state).values()}
    retained = Retained(first, tuple(sorted(tagged)))
    files = _there(store, [path for path in lives.unneeded(retained, newest) if path not in lately])
    store.storage.delete_all([layout.join(store.location, path) for path in files])
    entries = _remove_entries(store, retained)
    return Expiry(first_retained(announced), chosen.plan.versions, tuple(files), entries, sum(files.values()))


def _remove_entries(store: FileStore, retained: Retained) -> int:
    log = store.delta_log
    listing = log.listing()
    names = removable_entries(retained, listing)
    base = base_checkpoint(retained, listing.versions, listing.checkpoints)
    if not names or not _stand(log, listing.complete[base]):
        return 0
    for name in names:  # one by one: a request for many of them would not keep their order
        store.storage.delete(layout.join(store.location, layout.log_file_path(name)))
    stored = store.storage.walk(layout.join(store.location, layout.SIDECARS))
    unnamed = unnamed_sidecars(log, stored, store.ambient.now_ms() - SIDECAR_MS)
    store.storage.delete_all([info.path for info in unnamed])  # after the checkpoints: no reader needs them any more
    return len(names)


def _stand(log: DeltaLog, checkpoints: Sequence[CheckpointFiles]) -> bool:
    """Returns whether all checkpoints of a version are what the entries say: when these are removed, no more is left.

    Each reader chooses one of them.
    """
    [version] = {files.version for files in checkpoints}
    differs = "it is not what they say"
    try:
        replayed = log.replayed(version)
        if all(log.read_checkpoint(files).same(replayed) for files in checkpoints):
            return True
    except Corrupt as error:
        differs = error.message
    logger.warning("no entry of %s before the checkpoint of version %d is removed: %s", log.location, version, differs)
    return False
