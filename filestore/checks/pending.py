"""Checks pending runs and tombstones against the Delta log (FORMAT.md section 12.4).

It reads row group by row group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.checks.damage import damage_of
from filestore.checks.hidden import HiddenValues
from filestore.checks.report import Findings, Invariant, cause_of
from filestore.delta.actions import RUN_DOMAIN, TOMBSTONES_DOMAIN, pending_run
from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.errors import Corrupt, NotFound
from filestore.files.columns import stored_schema
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.model.files import PendingRun, Tombstones
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.model.types import is_wider
from filestore.rows.bucketing import bucket_of
from filestore.rows.keys import Key, ascending, changes, encode_key, key_at
from filestore.writing.deleted_keys import tombstone_schema
from filestore.writing.pending import run_schema

__all__ = ["check_run", "check_run_names", "check_tombstones"]

Run = PendingRun | Tombstones


def check_run(table: TableFiles, run: PendingRun, findings: Findings, written: Schema | None = None) -> None:
    """Checks one pending run.

    Args:
        table: The table.
        run: One of its runs.
        findings: It collects the problems.
        written: The table's columns when the run was added; None if they are not known any more.
    """
    for what in _wrong(table, run, lambda stored: _has_columns(table.definition.schema, stored, written)):
        findings.add(Invariant.PENDING_RUN, f"run {run.path} {what}", run.path)


def check_tombstones(table: TableFiles, run: Tombstones, findings: Findings) -> None:
    """Checks a file of tombstones."""
    for what in _wrong(table, run, lambda stored: _has_keys(tombstone_schema(table.definition), stored)):
        findings.add(Invariant.TOMBSTONES, f"tombstones {run.path} {what}", run.path)


def check_run_names(findings: Findings, before: TableState | None, after: TableState, entry: Commit) -> None:
    """Checks that runs name the version that adds them, and that only existing runs and tombstones are removed."""
    known = before.domains if before is not None else {}
    for action in entry.actions:
        domain = action.get("domainMetadata", {})
        name = domain.get("domain", "")
        if not name.startswith((RUN_DOMAIN, TOMBSTONES_DOMAIN)):
            continue
        code = Invariant.PENDING_RUN if name.startswith(RUN_DOMAIN) else Invariant.TOMBSTONES
        if domain["removed"] != (name in known):
            what = "removes a run that does not exist" if domain["removed"] else "adds a run that exists already"
            findings.add(code, f"version {entry.version} {what}: {name}", version=entry.version)
        elif domain["removed"]:
            if domain["configuration"] != known[name]:
                message = f"version {entry.version} removes {name} without its configuration"
                findings.add(code, message, version=entry.version)
        elif code is Invariant.PENDING_RUN:
            run = pending_run(domain["configuration"], after.definition.partition_by)
            if (run.version, RUN_DOMAIN + run.id) != (entry.version, name):
                message = f"version {entry.version} adds run {run.path} as of version {run.version} and as {name}"
                findings.add(Invariant.PENDING_RUN, message, run.path, entry.version)


def _wrong(table: TableFiles, run: Run, has_columns: Callable[[pa.Schema], bool]) -> Iterator[str]:
    try:
        with ParquetReader(table.storage, table.path(run.path)) as parquet:
            if parquet.size != run.size:
                yield f"has {parquet.size} bytes, the log says {run.size}"
            if (damage := damage_of(parquet)) is not None:
                yield f"{damage}: restore it from a copy, or roll the table back to a version before it"
            elif not has_columns(parquet.arrow_schema):
                yield f"has columns {parquet.arrow_schema.names}, or types, that the table did not have"
            else:
                yield from _wrong_rows(table, run, parquet)
    except NotFound:
        yield "is named by the log, but is not on storage"
    except Corrupt as error:
        yield f"is not readable Parquet: {cause_of(error)}"


def _has_columns(schema: Schema, stored: pa.Schema, written: Schema | None) -> bool:
    """Returns whether a run has the columns of its own version, or those that the table's past allows."""
    if written is not None:
        return bool(stored.equals(stored_schema(run_schema(written), written)))
    kind = run_schema(schema).field(KIND_COLUMN)
    types = {column.in_files: column.type for column in schema}
    found = {field.name: field.type for field in stored}
    required = {column.in_files for column in schema if not column.nullable}
    return (
        stored.names[-1:] == [KIND_COLUMN]
        and stored.field(KIND_COLUMN).equals(kind)
        and required <= set(found)
        and all(_is_or_was(types[name], found[name]) for name in types.keys() & found.keys())
    )


def _has_keys(wanted: pa.Schema, stored: pa.Schema) -> bool:
    """Returns whether tombstones have the current columns; the sequence field may have been widened later."""
    return bool(stored.names == wanted.names) and all(
        _is_or_was(wanted.field(field.name).type, field.type) for field in stored
    )


def _is_or_was(kind: pa.DataType, stored: pa.DataType) -> bool:
    """Returns whether a column of that type may be stored with another one: it may have been widened later."""
    return bool(kind == stored) or is_wider(kind, stored)


def _wrong_rows(table: TableFiles, run: Run, parquet: ParquetReader) -> Iterator[str]:
    keys = table.definition.sort_key
    if parquet.footer.num_rows != run.rows:
        yield f"has {parquet.footer.num_rows} rows, the log says {run.rows}"
    first: Key | None = None
    last: Key | None = None
    hidden = HiddenValues(parquet)
    for group in range(len(parquet.group_rows)):
        rows = parquet.read(group)
        lowest, highest = key_at(rows, keys, 0), key_at(rows, keys, rows.num_rows - 1)
        repeats = ~changes(rows, keys) if isinstance(run, PendingRun) else np.zeros(rows.num_rows - 1, dtype=np.bool_)
        if (last is not None and lowest < last) or not (ascending(rows, keys) | repeats).all():
            yield "is not sorted by key"
        if isinstance(run, PendingRun):
            yield from _wrong_changes(table, run, rows)
            yield from (f"has {what}: fold the runs" for what in hidden.found(group, rows))
        first, last = first or lowest, highest
    if first is not None and last is not None and (encode_key(first), encode_key(last)) != (run.min_key, run.max_key):
        yield f"has keys from {encode_key(first)} to {encode_key(last)}, the log says {run.min_key} to {run.max_key}"


def _wrong_changes(table: TableFiles, run: PendingRun, rows: pa.Table) -> Iterator[str]:
    definition = table.definition
    if not pc.all(pc.is_in(rows.column(KIND_COLUMN), pa.array([str(kind) for kind in RowKind]))).as_py():
        yield f"has a row kind in {KIND_COLUMN!r} that does not exist"
    if np.any(bucket_of(rows, definition.bucket_key, definition.buckets) != run.slot.bucket):
        yield f"is of bucket {run.slot.bucket} and contains keys of another"
