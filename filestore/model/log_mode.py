"""Decides which changes a table's log contains, by the table's options (log/table/PROTOCOL.md section 3.3). Pure.

The names of the options are FLIP-188's: ``log.changelog-mode``, ``log.consistency``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from filestore.errors import InvalidRequest
from filestore.model.changelog import ChangelogProducer

if TYPE_CHECKING:
    from filestore.model.definition import TableDefinition

__all__ = ["LogMode", "check_log", "log_has_images", "log_has_input", "log_mode", "retention_note"]


class LogMode(StrEnum):
    """The changes that a log contains, once ``auto`` is resolved."""

    UPSERT = "upsert"
    """The last record of each key has its newest row, or its delete."""
    ALL = "all"
    """Every change with the row before it: applying the records leads from any version to each later one."""


def log_mode(definition: TableDefinition) -> LogMode:
    """The mode of a table's log; for a table without a log the mode that it would have."""
    wanted = definition.options["log.changelog-mode"]
    if wanted != "auto":
        return LogMode(wanted)
    incomplete = definition.options["log.consistency"] != "transactional" or _incomplete(definition) is not None
    return LogMode.UPSERT if incomplete else LogMode.ALL


def log_has_images(definition: TableDefinition) -> bool:
    """Returns whether the log contains the stored rows that a write replaces, so that the write has to read them."""
    return definition.changelog_producer.images and log_mode(definition) is LogMode.ALL and bool(definition.primary_key)


def log_has_input(definition: TableDefinition) -> bool:
    """Returns whether the log contains the rows of a write as they arrived: the writer promises complete changes.

    Statements are recorded by another definition (`filestore.changelog.arrived.by_look_up`).
    """
    by_input = definition.changelog_producer is ChangelogProducer.INPUT
    return by_input and log_mode(definition) is LogMode.ALL and bool(definition.primary_key)


def check_log(definition: TableDefinition) -> None:
    """Refuses options of the log that do not fit each other.

    Raises:
        InvalidRequest: ``log-servers``, ``log-consistency``, ``log-changelog-mode``, ``log-delete-format``,
            ``log-cleanup-policy`` or ``log-scan``.
    """
    options = definition.options
    if options["log.system"] == "kafka" and not options["log.kafka.bootstrap.servers"]:
        raise InvalidRequest(
            "log.system = kafka needs log.kafka.bootstrap.servers, e.g. 'broker:9092'", code="log-servers"
        )
    _check_consistency(definition)
    _check_mode(definition)
    _check_deletes(definition)
    _check_cleanup(definition)
    at = options["log.scan.timestamp-millis"]
    if (options["log.scan"] == "from-timestamp") != (at is not None):
        raise InvalidRequest(
            "log.scan = from-timestamp and log.scan.timestamp-millis belong together: set both, or neither",
            code="log-scan",
        )


def retention_note(definition: TableDefinition) -> str | None:
    """A warning about a log that deletes changes between versions that can still be read; None without need."""
    options = definition.options
    if options["log.system"] == "none" or options["log.retention"] is None:
        return None
    if options["log.retention"] >= options["snapshot.time-retained"]:
        return None
    return (
        "log.retention is shorter than snapshot.time-retained: readers can begin at versions whose later changes the "
        "log has deleted; raise it, unless readers never begin with old versions"
    )


def _incomplete(definition: TableDefinition) -> str | None:
    """Says why a commit does not know its complete changes, and what to do about it; None if it knows them."""
    if not definition.primary_key:
        return None
    if definition.merges_on_read:
        return "with write-mode = merge-on-read a write does not look up the rows that it replaces: use merge-on-write"
    match definition.changelog_producer:
        case ChangelogProducer.LOOKUP:
            return None
        case ChangelogProducer.INPUT if definition.merges_values or definition.sequence_field:
            return (
                "with a merge-engine other than deduplicate, or a sequence.field, the arriving rows are not the "
                "changes of the stored ones: use changelog-producer = lookup"
            )
        case ChangelogProducer.INPUT:
            return None
    return "the rows that changes replace are not known: use changelog-producer = lookup"


def _check_consistency(definition: TableDefinition) -> None:
    if definition.options["log.consistency"] != "eventual":
        return
    if not definition.primary_key:
        raise InvalidRequest(
            "log.consistency = eventual needs a primary key: a record may be emitted twice, and the next commit "
            "corrects those of a failed write by their keys; use log.consistency = transactional",
            code="log-consistency",
        )
    if definition.merges_on_read:
        raise InvalidRequest(
            "log.consistency = eventual needs write-mode = merge-on-write: the merged row has to be known when it "
            "is written",
            code="log-consistency",
        )


def _check_mode(definition: TableDefinition) -> None:
    wanted = definition.options["log.changelog-mode"]
    if wanted == "upsert" and not definition.primary_key:
        raise InvalidRequest(
            "log.changelog-mode = upsert needs a primary key: declare one, or leave the option out",
            code="log-changelog-mode",
        )
    if wanted != "all":
        return
    if definition.options["log.consistency"] != "transactional":
        raise InvalidRequest(
            "log.changelog-mode = all needs log.consistency = transactional: records that may arrive twice are not a "
            "complete changelog",
            code="log-changelog-mode",
        )
    if (problem := _incomplete(definition)) is not None:
        raise InvalidRequest(f"log.changelog-mode = all needs complete changes: {problem}", code="log-changelog-mode")


def _check_deletes(definition: TableDefinition) -> None:
    if definition.options["log.delete-format"] == "tombstone" and log_mode(definition) is LogMode.ALL:
        raise InvalidRequest(
            "log.delete-format = tombstone needs log.changelog-mode = upsert; this table's mode is all, in which a "
            "delete keeps its row" + (": set log.changelog-mode = upsert" if definition.primary_key else ""),
            code="log-delete-format",
        )


def _check_cleanup(definition: TableDefinition) -> None:
    options = definition.options
    policy = options["log.kafka.cleanup.policy"]
    if policy == "delete":
        return
    for holds, needed in (
        (options["log.system"] == "kafka", "log.system = kafka"),
        (
            log_mode(definition) is LogMode.UPSERT,
            "log.changelog-mode = upsert: a complete changelog must not lose a change",
        ),
        (
            options["log.consistency"] == "transactional",
            "log.consistency = transactional: a record of a failed write could be the last one of its key",
        ),
        (
            options["log.kafka.transactions"],
            "log.kafka.transactions = true: a record of a failed write could be the last one of its key",
        ),
        (
            not definition.merges_on_read,
            "write-mode = merge-on-write: with merge-on-read the last record of a key may not be its last change",
        ),
    ):
        if not holds:
            raise InvalidRequest(f"log.kafka.cleanup.policy = {policy} needs {needed}", code="log-cleanup-policy")
