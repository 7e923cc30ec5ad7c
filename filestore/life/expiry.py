"""Expiry: versions that nobody needs any more go, and the files and log entries that only they need.

The order is all (FORMAT.md section 14): first the log says which versions have expired; then consumers are looked for;
then the newest version is read once more, for what came back to life meanwhile; then files go; log entries, which name
them, go last and oldest first. Whatever is interrupted, the next expiry goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from filestore import layout
from filestore.delta.commit import Committed, touches_nothing
from filestore.delta.conflict import DOMAIN_CHANGED, METADATA_CHANGED, Proposal
from filestore.delta.log import Commit, DeltaLog
from filestore.delta.state import TableState
from filestore.errors import Conflict, Corrupt, NotFound
from filestore.life.holds import holds
from filestore.life.lifetimes import Lifetimes, Retained
from filestore.life.retention import RETENTION_DOMAIN, first_retained, tags_of
from filestore.model.snapshot import Operation
from filestore.table import FileStore

__all__ = ["Expiry", "base_checkpoint", "expire", "first_to_keep", "history_of", "removable_entries"]

logger = logging.getLogger(__name__)

_WORTH_ENTRIES = 100
"""So many log entries are worth an expiry that removes no file: each one adds an entry of its own."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What an expiry did, or would do.

    Attributes:
        first: The first version from which on all are retained.
        versions: How many versions it let expire.
        files: Paths of the files that it removed, relative to the table.
        log_entries: How many entries and checkpoints of the log it removed.
    """

    first: int
    versions: int = 0
    files: tuple[str, ...] = ()
    log_entries: int = 0

    @property
    def anything(self) -> bool:
        """Whether there is anything to do; a single version may be what the last expiry added."""
        return self.versions > 1 or bool(self.files or self.log_entries)

    @property
    def worthwhile(self) -> bool:
        """Whether there is enough to do that a commit pays."""
        return bool(self.files) or self.log_entries >= _WORTH_ENTRIES


def expire(store: FileStore, *, dry_run: bool = False, lazily: bool = False) -> Expiry:
    """Lets the versions expire that neither the options nor a tag nor a consumer keep.

    Args:
        store: The table.
        dry_run: Only say what would go.
        lazily: Do nothing before it pays: for who calls it again and again.

    Raises:
        Conflict: others changed the table's retention or definition again and again.
        Unavailable: the storage failed. Call it again: it goes on where it was.
    """
    for _ in range(store.state().definition.options["commit.max-retries"] + 1):
        state = store.state()
        first = _first(store, state)
        lives = history_of(store.log, state.version)
        plan = _planned(store, lives, _retained(store, first, state), state)
        if dry_run:
            return plan
        if not (plan.worthwhile if lazily else plan.anything):
            return Expiry(first_retained(state))
        try:
            committed = _commit(store, state, first) if first > first_retained(state) else state
        except Conflict as error:
            if error.code not in (DOMAIN_CHANGED, METADATA_CHANGED):
                raise
            continue
        return _clean(store, lives, committed, plan.versions)
    raise Conflict("the table's retention or definition changed again and again: try again", code="too-many-races")


def first_to_keep(state: TableState, current_then: int, held: frozenset[int]) -> int:
    """The first version from which on all are kept. Pure.

    Args:
        state: The newest version.
        current_then: The version that was the newest one ``snapshot.time-retained`` ago; 0 if there was none. A
            version's time counts from when the next one took its place, since until then readers begin with it.
        held: The versions that consumers hold.
    """
    options = state.definition.options
    first, most = current_then, options["snapshot.num-retained.max"]
    if most is not None:
        first = max(first, state.version - most + 1)
    first = min(first, state.version - options["snapshot.num-retained.min"] + 1, *held)
    return max(int(first), first_retained(state))


def base_checkpoint(retained: Retained, versions: Sequence[int], checkpoints: Sequence[int]) -> int:
    """The newest checkpoint that all needed versions stand on; 0 if there is none. Pure."""
    return max((c for c in checkpoints if c <= retained.oldest and c in set(versions)), default=0)


def removable_entries(retained: Retained, versions: Sequence[int], checkpoints: Sequence[int]) -> tuple[int, ...]:
    """The versions whose log entries go: those below the checkpoint that all needed versions stand on. Pure."""
    base = base_checkpoint(retained, versions, checkpoints)
    return tuple(sorted({v for v in (*versions, *checkpoints) if v < base}))


def history_of(log: DeltaLog, until: int) -> Lifetimes:
    """The lives of all files, from the oldest version that can be put together to a given one."""
    return log.settled(lambda: _followed(log, _begun(log), until))


def _begun(log: DeltaLog) -> Lifetimes:
    oldest = log.oldest()
    return Lifetimes.begin(oldest, _required(log, oldest.version).actions)


def _followed(log: DeltaLog, lives: Lifetimes, until: int) -> Lifetimes:
    """`Corrupt` if not all entries are there: a file that came back to life in one of them would be taken for dead."""
    for version in range(lives.version + 1, until + 1):
        lives.follow(version, _required(log, version).actions)
    return lives


def _required(log: DeltaLog, version: int) -> Commit:
    entry = log.commit(version)
    if entry is None:
        raise Corrupt(f"{log.location} lacks the log entry of version {version}", code="version-gap")
    return entry


def _first(store: FileStore, state: TableState) -> int:
    now = store.ambient.now_ms()
    try:
        then = store.version_at(now - state.definition.options.milliseconds("snapshot.time-retained"))
    except NotFound:
        then = 0  # the table is younger, or what was there then has expired before
    held = frozenset(hold.version for hold in holds(store.storage, store.location, state, now))
    return first_to_keep(state, then, held)


def _retained(store: FileStore, first: int, *states: TableState) -> Retained:
    held = [h.version for h in holds(store.storage, store.location, states[-1], store.ambient.now_ms())]
    tagged = {tag.version for state in states for tag in tags_of(state).values()}
    return Retained(min(first, *held) if held else first, tuple(sorted(tagged)))


def _planned(store: FileStore, lives: Lifetimes, retained: Retained, state: TableState) -> Expiry:
    log = store.log
    entries = _entries(log, removable_entries(retained, log.versions(), log.checkpoints()))
    versions = max(0, retained.first - first_retained(state))
    return Expiry(retained.first, versions, _there(store, lives.unneeded(retained)), len(entries))


def _there(store: FileStore, paths: Sequence[str]) -> tuple[str, ...]:
    """Without those that are gone: entries that are left name files of versions that expired long ago."""
    prefix = layout.join(store.location, "")
    stored = {info.path.removeprefix(prefix) for info in store.storage.walk(store.location)}
    return tuple(path for path in paths if path in stored)


def _commit(store: FileStore, state: TableState, first: int) -> TableState:
    proposal = Proposal(
        Operation.EXPIRE,
        store.ambient.new_id(),
        state.version,
        metrics={"versions_expired": first - first_retained(state)},
        domains={RETENTION_DOMAIN: {"first": first}},
        watches=frozenset([RETENTION_DOMAIN]),
    )
    committed: Committed = store.commit(state, proposal, touches_nothing)
    return committed.state


def _clean(store: FileStore, lives: Lifetimes, said: TableState, versions: int) -> Expiry:
    """Removes what is not needed in the version that said what has expired.

    IMPORTANT: consumers are looked for after that version was committed, and the newest version is read after that: a
    rollback holds the version that it brings back until it is committed.
    """
    held = holds(store.storage, store.location, said, store.ambient.now_ms())
    newest = store.state()
    try:
        lives = _followed(store.log, lives, newest.version)
    except Corrupt:
        lives = history_of(store.log, newest.version)
    first = min([first_retained(said), *(hold.version for hold in held)])
    tagged = {tag.version for state in (said, newest) for tag in tags_of(state).values()}
    retained = Retained(first, tuple(sorted(tagged)))
    files = _there(store, lives.unneeded(retained))
    for path in files:
        store.storage.delete(layout.join(store.location, path))
    entries = _remove_entries(store, lives, retained)
    return Expiry(first_retained(said), versions, files, entries)


def _remove_entries(store: FileStore, lives: Lifetimes, retained: Retained) -> int:
    log = store.log
    versions, checkpoints = log.versions(), log.checkpoints()
    numbers = removable_entries(retained, versions, checkpoints)
    if not numbers or not _stands(log, lives, base_checkpoint(retained, versions, checkpoints)):
        return 0
    paths = _entries(log, numbers)
    for path in paths:
        store.storage.delete(layout.join(store.location, path))
    return len(paths)


def _stands(log: DeltaLog, lives: Lifetimes, checkpoint: int) -> bool:
    """Whether a checkpoint holds what the entries give: soon it will be all that is known."""
    if log.checkpoint(checkpoint).files.keys() == lives.data_files_at(checkpoint):
        return True
    logger.warning("the checkpoint of version %d of %s differs from the log: no entry goes", checkpoint, log.location)
    return False


def _entries(log: DeltaLog, versions: tuple[int, ...]) -> list[str]:
    """The paths of the entries and checkpoints of some versions, oldest first."""
    stored, checkpoints = set(log.versions()), set(log.checkpoints())
    return [
        path
        for version in versions
        for path, there in (
            (layout.checkpoint_path(version), version in checkpoints),
            (layout.log_entry_path(version), version in stored),
        )
        if there
    ]
