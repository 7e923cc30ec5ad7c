"""The options of a table's log: what they mean together, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from filestore.model.changes import SetOption
from filestore.model.definition import TableDefinition
from filestore.model.evolution import evolve
from filestore.model.log_mode import LogMode
from filestore.model.schema import Schema

SCHEMA = Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())]))
LOOKUP = {"changelog-producer": "lookup"}
INPUT = {"changelog-producer": "input"}
ON_READ = {"write-mode": "merge-on-read"}
KAFKA = {"log.system": "kafka", "log.kafka.bootstrap.servers": "broker:9092"}
EVENTUAL = {"log.consistency": "eventual"}
PLAIN = {"log.kafka.transactions": "false"}
ALL = {"log.changelog-mode": "all"}
UPSERT = {"log.changelog-mode": "upsert"}
TOMBSTONE = {"log.delete-format": "tombstone"}
COMPACT = {"log.kafka.cleanup.policy": "compact"}


def keyed(**options: str) -> TableDefinition:
    return TableDefinition.of(SCHEMA, ["id"], options=options)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, LogMode.UPSERT),
        (LOOKUP, LogMode.ALL),
        (LOOKUP | {"merge-engine": "first-row"}, LogMode.ALL),
        (LOOKUP | UPSERT, LogMode.UPSERT),
        (LOOKUP | EVENTUAL, LogMode.UPSERT),
        (LOOKUP | ON_READ, LogMode.UPSERT),
        (INPUT, LogMode.ALL),
        (INPUT | {"sequence.field": "n"}, LogMode.UPSERT),
        (INPUT | {"merge-engine": "partial-update"}, LogMode.UPSERT),
        (ON_READ | {"changelog-producer": "full-compaction"}, LogMode.UPSERT),
    ],
)
def test_auto_is_all_where_a_commit_knows_its_complete_changes(options: dict[str, str], mode: LogMode) -> None:
    assert keyed(**options).log_mode is mode


def test_without_a_key_all_changes_are_logged() -> None:
    definition = TableDefinition.of(SCHEMA, options=LOOKUP)
    assert definition.log_mode is LogMode.ALL
    assert not definition.logs_images


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (ALL, "log-changelog-mode", "use changelog-producer = lookup"),
        (ALL | LOOKUP | ON_READ, "log-changelog-mode", "use merge-on-write"),
        (ALL | INPUT | {"sequence.field": "n"}, "log-changelog-mode", "use changelog-producer = lookup"),
        (ALL | LOOKUP | EVENTUAL, "log-changelog-mode", "needs log.consistency = transactional"),
        (TOMBSTONE | LOOKUP, "log-delete-format", "set log.changelog-mode = upsert"),
        (COMPACT, "log-cleanup-policy", "needs log.system = kafka"),
        (COMPACT | KAFKA | LOOKUP, "log-cleanup-policy", "needs log.changelog-mode = upsert"),
        (COMPACT | KAFKA | EVENTUAL, "log-cleanup-policy", "needs log.consistency = transactional"),
        (COMPACT | KAFKA | PLAIN, "log-cleanup-policy", "needs log.kafka.transactions = true"),
        (COMPACT | KAFKA | ON_READ, "log-cleanup-policy", "needs write-mode = merge-on-write"),
        ({"log.scan": "from-timestamp"}, "log-scan", "set both"),
        ({"log.scan.timestamp-millis": "1"}, "log-scan", "set both"),
        ({"log.system": "kafka"}, "log-servers", "needs log.kafka.bootstrap.servers"),
        ({"log.format": "avro"}, "bad-option-value", "it takes 'debezium-json'"),
        ({"log.retention": "soon"}, "bad-option-value", "a duration such as"),
        ({"log.retention": "0 s"}, "bad-option-value", "above zero"),
    ],
)
def test_options_that_do_not_hold_together_are_refused(options: dict[str, str], code: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        keyed(**options)
    assert refused.value.code == code


@pytest.mark.parametrize("options", [EVENTUAL, UPSERT])
def test_what_goes_by_key_needs_one(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="needs a primary key"):
        TableDefinition.of(SCHEMA, options=options)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_log_of_upserts_may_be_compacted(policy: str) -> None:
    assert keyed(**KAFKA, **LOOKUP, **UPSERT, **TOMBSTONE, **{"log.kafka.cleanup.policy": policy}).compacts_log
    assert not keyed().compacts_log


@pytest.mark.parametrize("name", ["log.delete-format", "log.kafka.cleanup.policy", "log.format", "log.key.format"])
def test_what_records_were_written_for_stays(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        evolve(keyed(**KAFKA), [SetOption(name, "tombstone")], lambda: "c")
    assert refused.value.code == "fixed-option"


def test_the_mode_and_the_retention_may_change_if_the_rest_holds() -> None:
    changes = [SetOption("log.retention", "2 d"), SetOption("changelog-producer", "lookup")]
    assert evolve(keyed(), changes, lambda: "c").definition.log_mode is LogMode.ALL
    with pytest.raises(InvalidRequest, match="needs complete changes"):
        evolve(keyed(**LOOKUP, **ALL), [SetOption("changelog-producer", "none")], lambda: "c")
    with pytest.raises(InvalidRequest, match="= tombstone needs"):
        evolve(keyed(**TOMBSTONE), changes, lambda: "c")
