"""Creates and removes tags, which are names for versions in the Delta log (FORMAT.md section 14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from filestore.commit.proposal import Premises, Proposal
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, NotFound
from filestore.model.snapshot import Operation
from filestore.retention.rules import (
    RETENTION_DOMAIN,
    Tag,
    check_tag_name,
    expired,
    is_retained,
    tag_of,
    tags_of,
)
from filestore.table import FileStore

__all__ = ["Period", "create_due_tag", "create_tag", "delete_tag", "last_period", "surplus_tags"]

Domains = Mapping[str, Mapping[str, Any] | None]

_HOUR_MS = 3_600_000
_PERIODS = {"daily": (24 * _HOUR_MS, "%Y-%m-%d"), "hourly": (_HOUR_MS, "%Y-%m-%d-%H")}


def create_tag(store: FileStore, name: str, version: int | None = None) -> Tag:
    """Names a version, and keeps it from expiring.

    Args:
        store: The table.
        name: The tag's name.
        version: Which version; the newest one if None.

    Raises:
        InvalidRequest: ``bad-tag-name``.
        AlreadyExists: ``tag-exists``: it exists for another version. If it exists for this one, nothing is done.
        NotFound: ``no-such-version``, ``snapshot-expired``.
        Conflict: ``too-many-races``: others changed the table's retention or definition again and again.
    """
    check_tag_name(name)

    def domains(state: TableState) -> Domains:
        wanted = state.version if version is None else version
        if (there := tags_of(state).get(name)) is not None:
            if there.version == version:
                return {}
            raise AlreadyExists(
                f"tag {name!r} names version {there.version} already: delete it first, or take another name",
                code="tag-exists",
            )
        tag = _tag(store, state, name, wanted, automatic=False)
        return {tag.domain: tag.to_json()}

    return tag_of(_commit(store, domains), name)


def delete_tag(store: FileStore, name: str) -> None:
    """Removes a tag; its version expires like any other. `NotFound` (``no-such-tag``)."""

    def domains(state: TableState) -> Domains:
        return {tag_of(state, name).domain: None}

    _commit(store, domains)


@dataclass(frozen=True, slots=True)
class Period:
    """A day or an hour (UTC) that is over.

    Attributes:
        name: The name of its tag: ``2026-01-31`` or ``2026-01-31-23``.
        last_ms: Its last millisecond since 1970 UTC.
    """

    name: str
    last_ms: int


def last_period(kind: str, now_ms: int) -> Period:
    """Returns the last ``daily`` or ``hourly`` period that is over. Pure."""
    length, pattern = _PERIODS[kind]
    begin = now_ms // length * length - length
    return Period(datetime.fromtimestamp(begin / 1000, UTC).strftime(pattern), begin + length - 1)


def surplus_tags(tags: Sequence[Tag], most: int | None) -> tuple[Tag, ...]:
    """Returns the automatic tags that are too many, the oldest versions first. Pure."""
    own = sorted((tag for tag in tags if tag.automatic), key=lambda tag: (tag.version, tag.created_ms, tag.name))
    return tuple(own[: max(0, len(own) - most)]) if most is not None else ()


def create_due_tag(store: FileStore) -> Tag | None:
    """Tags the last version of the last period, if the options ask for it and the period has no tag yet.

    If the table is younger than the period's end, or the period's last version has expired, there is no tag. Automatic
    tags beyond ``tag.num-retained-max`` are removed in the same commit.

    Returns:
        The new tag; None if none was created.
    """
    options = store.state().definition.options
    if options["tag.automatic-creation"] == "none":
        return None
    period = last_period(options["tag.creation-period"], store.ambient.now_ms())

    def domains(state: TableState) -> Domains:
        if period.name in tags_of(state):
            return {}
        try:
            tag = _tag(store, state, period.name, store.version_at(period.last_ms), automatic=True)
        except NotFound:
            return {}
        surplus = surplus_tags([*tags_of(state).values(), tag], options["tag.num-retained-max"])
        if tag in surplus:
            return {}
        return {tag.domain: tag.to_json()} | {old.domain: None for old in surplus}

    before = tags_of(store.state())
    made = tags_of(_commit(store, domains)).get(period.name)
    return made if period.name not in before else None


def _tag(store: FileStore, state: TableState, name: str, version: int, *, automatic: bool) -> Tag:
    if not 0 <= version <= state.version:
        raise NotFound(f"{store.name} has no version {version}; the newest is {state.version}", code="no-such-version")
    if not is_retained(state, version):
        raise expired(store.name, version, state)
    timestamp = store.snapshot(version).timestamp_ms
    return Tag(name, version, timestamp, store.ambient.now_ms(), automatic)


def _commit(store: FileStore, domains: Callable[[TableState], Domains]) -> TableState:
    """Commits the changes of metadata domains that `domains` returns; returns the state that has them."""
    state: TableState | None = None

    def proposal(base: TableState) -> Proposal | None:
        nonlocal state
        state, wanted = base, domains(base)
        if not wanted:
            return None
        premises = Premises(watched_domains=frozenset([RETENTION_DOMAIN, *wanted]))
        return Proposal(Operation.TAG, store.ambient.new_id(), base.version, domains=wanted, premises=premises)

    committed = store.commit_metadata(proposal)
    assert state is not None, "an operation that ends without an error has asked for a proposal"
    return state if committed is None else committed.state
