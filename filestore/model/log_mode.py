"""What a table's log tells of its changes, as the table's options say it (log/PROTOCOL.md section 3.3). Pure.

The words are FLIP-188's: ``log.changelog-mode``, ``log.consistency``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from filestore.errors import InvalidRequest
from filestore.model.changelog import ChangelogProducer

if TYPE_CHECKING:
    from filestore.model.definition import TableDefinition

__all__ = ["LogMode", "check_log", "log_mode", "retention_note", "tells_images", "tells_input"]


class LogMode(StrEnum):
    """What a log is, once ``auto`` is resolved."""

    UPSERT = "upsert"
    """The last record of each key says what became of it."""
    ALL = "all"
    """Every change, with the row that was there: the records lead from any version to each later one."""


def log_mode(definition: TableDefinition) -> LogMode:
    """The mode of a table's log; of a table without one what it would be."""
    wanted = definition.options["log.changelog-mode"]
    if wanted != "auto":
        return LogMode(wanted)
    incomplete = definition.options["log.consistency"] != "transactional" or _incomplete(definition) is not None
    return LogMode.UPSERT if incomplete else LogMode.ALL


def tells_images(definition: TableDefinition) -> bool:
    """Whether the log has the stored rows that a write meets, so that they have to be read for it."""
    return definition.changelog_producer.images and log_mode(definition) is LogMode.ALL and bool(definition.primary_key)


def tells_input(definition: TableDefinition) -> bool:
    """Whether the log has the rows as they came, none of a key left out: the writer's word for complete changes."""
    by_input = definition.changelog_producer is ChangelogProducer.INPUT
    return by_input and log_mode(definition) is LogMode.ALL and bool(definition.primary_key)


def check_log(definition: TableDefinition) -> None:
    """Refuses options of the log that do not hold together.

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
            "log.scan = from-timestamp and log.scan.timestamp-millis go together: give both, or neither",
            code="log-scan",
        )


def retention_note(definition: TableDefinition) -> str | None:
    """What to tell whoever makes a log that forgets changes between versions that can still be read."""
    options = definition.options
    if options["log.system"] == "none" or options["log.retention"] is None:
        return None
    if options["log.retention"] >= options["snapshot.time-retained"]:
        return None
    return (
        "log.retention is shorter than snapshot.time-retained: versions can be read whose later changes cannot be "
        "followed any more; raise it, unless readers never begin with old versions"
    )


def _incomplete(definition: TableDefinition) -> str | None:
    """Why a commit does not know its complete changes, and what mends it; None if it does."""
    if not definition.primary_key:
        return None
    if definition.merges_on_read:
        return "with write-mode = merge-on-read a write does not look up the rows that it replaces: take merge-on-write"
    match definition.changelog_producer:
        case ChangelogProducer.LOOKUP:
            return None
        case ChangelogProducer.INPUT if definition.merges_values or definition.sequence_field:
            return (
                "the rows as they came are not what becomes of the stored ones with a merge-engine other than "
                "deduplicate, or a sequence.field: take changelog-producer = lookup"
            )
        case ChangelogProducer.INPUT:
            return None
    return "the rows that changes replace are not known: take changelog-producer = lookup"


def _check_consistency(definition: TableDefinition) -> None:
    if definition.options["log.consistency"] != "eventual":
        return
    if not definition.primary_key:
        raise InvalidRequest(
            "log.consistency = eventual needs a primary key: a record may be emitted twice, and the next commit "
            "corrects those of a failed write by their keys; take log.consistency = transactional",
            code="log-consistency",
        )
    if definition.merges_on_read:
        raise InvalidRequest(
            "log.consistency = eventual needs write-mode = merge-on-write: what a row comes to has to be known when it "
            "is written",
            code="log-consistency",
        )


def _check_mode(definition: TableDefinition) -> None:
    wanted = definition.options["log.changelog-mode"]
    if wanted == "upsert" and not definition.primary_key:
        raise InvalidRequest(
            "log.changelog-mode = upsert needs a primary key: give the table one, or leave the option out",
            code="log-changelog-mode",
        )
    if wanted != "all":
        return
    if definition.options["log.consistency"] != "transactional":
        raise InvalidRequest(
            "log.changelog-mode = all needs log.consistency = transactional: records that may come twice are no "
            "complete changelog",
            code="log-changelog-mode",
        )
    if (problem := _incomplete(definition)) is not None:
        raise InvalidRequest(f"log.changelog-mode = all needs complete changes: {problem}", code="log-changelog-mode")


def _check_deletes(definition: TableDefinition) -> None:
    if definition.options["log.delete-format"] == "tombstone" and log_mode(definition) is LogMode.ALL:
        raise InvalidRequest(
            "log.delete-format = tombstone needs log.changelog-mode = upsert, and this table's is all, where a delete "
            "keeps its row" + (": give log.changelog-mode = upsert" if definition.primary_key else ""),
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
            "log.changelog-mode = upsert: of complete changes none may be missing",
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
            "write-mode = merge-on-write: with merge-on-read the last record of a key need not be of the last version",
        ),
    ):
        if not holds:
            raise InvalidRequest(f"log.kafka.cleanup.policy = {policy} needs {needed}", code="log-cleanup-policy")
