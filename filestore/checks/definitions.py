"""Checks the definition from version to version: column ids, names in files, features (FORMAT.md section 12.1).

FORMAT.md section 3.1 has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from filestore.checks.report import Findings, Invariant
from filestore.delta.actions import RUN_DOMAIN, file_key, pending_run
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.model.definition import COLUMN_MAPPING, TYPE_WIDENING, TableDefinition
from filestore.model.schema import Column
from filestore.model.types import field_count, is_wider

__all__ = ["added_paths", "check_definition_step"]


def check_definition_step(
    findings: Findings, before: TableDefinition | None, after: TableDefinition, entry: Commit
) -> None:
    """Checks the definition of a version, alone and against the version before it."""
    for problem in (*_within(after), *(_between(before, after) if before is not None else ())):
        findings.add(Invariant.COLUMN_ID, f"version {entry.version} {problem}", version=entry.version)
    gained = after.features - (before.features if before is not None else frozenset())
    protocol: Mapping[str, Any] = next((a["protocol"] for a in entry.actions if "protocol" in a), {})
    for kind in ("readerFeatures", "writerFeatures"):
        if missing := sorted(gained - set(protocol.get(kind) or ())):
            message = f"version {entry.version} needs the Delta feature {missing[0]!r} and lacks it in its {kind}"
            findings.add(Invariant.PROTOCOL, message, version=entry.version)


def added_paths(before: TableState | None, after: TableState, entry: Commit) -> Iterator[str]:
    """The files and runs that a version adds, which have its columns for ever. A rollback only restores older ones."""
    if entry.snapshot().restores_files:
        return
    for action in entry.actions:
        domain = action.get("domainMetadata", {})
        if "add" in action and (before is None or before.named(action["add"]) is None):
            yield file_key(action["add"])
        elif domain.get("domain", "").startswith(RUN_DOMAIN) and not domain["removed"]:
            yield pending_run(domain["configuration"], after.definition.partition_by).path


def _within(definition: TableDefinition) -> Iterator[str]:
    schema = definition.schema.numbered()
    last = definition.last_id if definition.last_id is not None else schema.last_id
    taken: dict[int, str] = {}
    for column in schema:
        for number in range(column.id or 0, (column.id or 0) + 1 + field_count(column.type)):
            other = taken.setdefault(number, column.name)
            if other != column.name or not 0 < number <= last:
                yield f"gives column {column.name!r} the id {number}, which is above {last} or is that of {other!r}"
    if len({column.id is None for column in definition.schema}) > 1:
        yield "has the ids of some columns only"
    mapped = [column.stored_name is not None for column in schema]
    if set(mapped) != {COLUMN_MAPPING in definition.features}:
        yield "has column mapping for some columns, or without its feature"
    if len({column.in_files for column in schema}) < len(mapped):
        yield "has two columns of the same name in files"
    if any(column.former_types for column in schema) and TYPE_WIDENING not in definition.features:
        yield "has widened columns without the feature of type widening"


def _between(before: TableDefinition, after: TableDefinition) -> Iterator[str]:
    former = {column.id: column for column in before.schema.numbered()}
    last = before.last_id if before.last_id is not None else before.schema.last_id
    if after.last_id is None and after.schema.numbered() != before.schema.numbered():
        yield "changes columns without their ids"
    if after.last_id is not None and after.last_id < last:
        yield f"lowers the last column id from {last} to {after.last_id}"
    if lost := sorted(before.features - after.features):
        yield f"loses the feature {lost[0]!r}"
    for column in after.schema.numbered():
        known = former.get(column.id)
        if known is None and (column.id or 0) <= last:
            yield f"gives column {column.name!r} the id {column.id}, which another column had"
        elif known is not None:
            yield from _kept(known, column)


def _kept(before: Column, after: Column) -> Iterator[str]:
    if after.type != before.type and not is_wider(after.type, before.type):
        yield f"changes the type of column {after.name!r} from {before.type} to {after.type}"
    if after.stored_name is not None and after.stored_name != before.in_files:
        yield f"calls column {after.name!r} {after.stored_name!r} in files, where it is {before.in_files!r}"
    if before.nullable and not after.nullable:
        yield f"makes column {after.name!r} NOT NULL, which may hold nulls"
