"""Damages tables on purpose: each damage is listed with the invariant that it breaks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from filestore import layout
from filestore.checks.report import Invariant
from filestore.delta.vectors import VectorFileBuilder, bitmap_of
from filestore.model.changes import AddColumn, Change, RenameColumn, SetOption
from filestore.operations.alter import alter
from filestore.table import FileStore
from tests.tables import read, write

__all__ = ["DAMAGES", "Damage", "edit_entry", "on_add", "on_entry"]

_EDITION_2 = {"tablestore.edition": "2"}
_TWICE = [{"txn": {"appId": "job", "version": 1, "lastUpdated": 0}}] * 2
Actions = list[dict[str, Any]]
Damage = Callable[[FileStore], object]


def _entry(store: FileStore, version: int) -> Path:
    return Path(store.location) / layout.log_entry_path(version)


def _data(store: FileStore, *, with_vector: bool = False) -> Path:
    """Returns a data file of the newest version."""
    files = sorted(store.state().files, key=lambda f: -f.rows)
    return Path(store.location) / next(f.path for f in files if bool(f.vector) == with_vector)


def edit_entry(store: FileStore, version: int, edit: Callable[[Actions], object]) -> None:
    """Changes the actions of a version."""
    path = _entry(store, version)
    actions: Actions = [json.loads(line) for line in path.read_text().splitlines()]
    edit(actions)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def edit_info(store: FileStore, version: int, **changes: Any) -> None:
    edit_entry(store, version, lambda actions: actions[0]["commitInfo"].update(changes))


def edit_add(store: FileStore, path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Changes the newest add action of a file."""
    relative = str(path.relative_to(store.location))
    for version in reversed(store.delta_log.versions()):
        found = [
            a["add"] for a in store.delta_log.read_entry(version).actions if a.get("add", {}).get("path") == relative
        ]
        if found:
            edit_entry(
                store,
                version,
                lambda actions: [edit(a["add"]) for a in actions if a.get("add", {}).get("path") == relative],
            )
            return
    raise AssertionError(f"{relative} is in no version")


def _add_of(actions: Actions, path: str) -> dict[str, Any]:
    return next(a["add"] for a in actions if a.get("add", {}).get("path") == path)  # type: ignore[no-any-return]


def edit_stats(store: FileStore, path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    def change(add: dict[str, Any]) -> None:
        stats = json.loads(add["stats"])
        edit(stats)
        add["stats"] = json.dumps(stats)

    edit_add(store, path, change)


def rewrite(store: FileStore, change: Callable[[pa.Table], pa.Table], *, with_vector: bool = False) -> None:
    """Writes a data file again with other rows."""
    path = _data(store, with_vector=with_vector)
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(change(rows), path)
    edit_add(store, path, lambda add: add.update(size=path.stat().st_size))


def _key_in_two_row_groups(store: FileStore) -> None:
    """Writes one key at the end of a row group and at the begin of the next."""
    path = _data(store)
    rows = pq.read_table(path, partitioning=None)
    rows = pa.concat_tables([rows.slice(0, 5), rows.slice(4, rows.num_rows - 5)])
    pq.write_table(rows, path, row_group_size=5)
    edit_add(store, path, lambda add: add.update(size=path.stat().st_size))


def _deny_all(store: FileStore) -> None:
    """Writes a Bloom filter in which no bit is set, so that it denies every key."""
    path = _data(store)
    pq.write_table(pq.read_table(path, partitioning=None), path, bloom_filter_options={"id": True})
    chunk = pq.read_metadata(path).row_group(0).column(0)
    data, bits = bytearray(path.read_bytes()), chunk.bloom_filter_length // 32 * 32
    end = chunk.bloom_filter_offset + chunk.bloom_filter_length
    data[end - bits : end] = bytes(bits)
    path.write_bytes(data)
    edit_add(store, path, lambda add: add.update(size=len(data)))


def _garbage(store: FileStore) -> None:
    path = _data(store)
    path.write_bytes(b"x" * path.stat().st_size)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _commit_id_twice(store: FileStore) -> None:
    own = store.delta_log.read_entry(2).actions[0]["commitInfo"]["tablestore"]
    edit_info(store, 3, tablestore=own)


def _fenced(store: FileStore) -> None:
    """Says that version 2 fences the commit of version 3."""
    own = store.delta_log.read_entry(2).actions[0]["commitInfo"]["tablestore"]
    edit_info(store, 2, tablestore={**own, "fenced": [store.delta_log.read_entry(3).commit_id]})


def _fenced_file(store: FileStore) -> None:
    """Says that version 2 fences a file that is new in version 3."""
    actions = store.delta_log.read_entry(3).actions
    known = {a["remove"]["path"] for a in actions if "remove" in a}
    add = next(a["add"] for a in actions if "add" in a and a["add"]["path"] not in known)
    own = store.delta_log.read_entry(2).actions[0]["commitInfo"]["tablestore"]
    edit_info(store, 2, tablestore={**own, "fencedFiles": [add["path"]]})


def _lost_vector(store: FileStore) -> None:
    """Removes a deletion vector, so that its dead rows are visible again."""
    path = _data(store, with_vector=True)
    edit_add(store, path, lambda add: add.pop("deletionVector"))
    edit_stats(store, path, lambda stats: stats.update(tightBounds=True))


def _other_vector(store: FileStore, positions: list[int]) -> None:
    path = _data(store)
    builder = VectorFileBuilder(store.ambient.new_id())
    vector = builder.add(bitmap_of(np.array(positions, dtype=np.uint64)))
    (Path(store.location) / builder.path).write_bytes(builder.content)
    edit_add(store, path, lambda add: add.update(deletionVector=vector.to_action()))
    edit_stats(store, path, lambda stats: stats.update(tightBounds=False))


def _all_dead(store: FileStore) -> None:
    _other_vector(store, list(range(pq.read_metadata(_data(store)).num_rows)))


def _flip_vector_bit(store: FileStore) -> None:
    for path in Path(store.location).glob("deletion_vector_*.bin"):
        data = bytearray(path.read_bytes())
        data[-6] ^= 1
        path.write_bytes(data)


def _unlink_vectors(store: FileStore) -> None:
    for path in Path(store.location).glob("deletion_vector_*.bin"):
        path.unlink()


def _txn(store: FileStore, version: int, app: str, number: int) -> None:
    edit_entry(store, version, lambda actions: actions.append({"txn": {"appId": app, "version": number}}))


def _both_txn(store: FileStore, app: str) -> None:
    _txn(store, 2, app, 10)
    _txn(store, 3, app, 5)


def _transaction(store: FileStore, end: int) -> None:
    """Adds a log transaction that is decided, and neither open nor covered by offsets."""
    ranges = [{"bucket": 0, "start": 0, "end": end, "count": 1}]
    transaction = {"id": "t", "ranges": ranges, "producer_id": 1, "producer_epoch": 0}
    own = store.delta_log.read_entry(3).actions[0]["commitInfo"]["tablestore"] | {"transactions": [transaction]}
    edit_info(store, 3, tablestore=own)


def _republished(store: FileStore, again: str | None) -> None:
    """Publishes a log transaction again that was never open, as one that is not open either."""
    found = again and {"id": again, "ranges": [], "producer_id": 1, "producer_epoch": 0}
    own = store.delta_log.read_entry(3).actions[0]["commitInfo"]["tablestore"] | {"republished": {"t": found}}
    edit_info(store, 3, tablestore=own)


def _repaired_goes_back(store: FileStore) -> None:
    for version, offset in ((2, 9), (3, 8)):
        domain = _domain("tablestore.log", identity={}, open=[], repaired={"0": offset})
        edit_entry(store, version, lambda actions, domain=domain: actions.extend(domain))  # type: ignore[misc]


def _repaired_is_forgotten(store: FileStore) -> None:
    for version, more in ((2, {"repaired": {"0": 9}}), (3, {})):
        domain = _domain("tablestore.log", identity={}, open=[], **more)
        edit_entry(store, version, lambda actions, domain=domain: actions.extend(domain))  # type: ignore[misc]


def _another_log(store: FileStore) -> None:
    edit_entry(store, 3, lambda actions: actions.extend(_domain("tablestore.log", identity={"topic": "y"}, open=[])))


def _unknown_open(store: FileStore) -> None:
    transaction = {"id": "t", "ranges": [], "producer_id": 1, "producer_epoch": 0}
    configuration = json.dumps({"identity": {}, "open": [transaction]})
    domain = {"domain": "tablestore.log", "configuration": configuration, "removed": False}
    edit_entry(store, 3, lambda actions: actions.append({"domainMetadata": domain}))


def _swap_checkpoints(store: FileStore) -> None:
    log = Path(store.location)
    shutil.copy(log / layout.checkpoint_path(2), log / layout.checkpoint_path(4))


def _drop_first_remove(store: FileStore) -> None:
    version = next(
        v for v in store.delta_log.versions() if any("remove" in a for a in store.delta_log.read_entry(v).actions)
    )

    def drop(actions: Actions) -> None:
        actions.remove(next(a for a in actions if "remove" in a))

    edit_entry(store, version, drop)


def _remove_twice(store: FileStore) -> None:
    version = next(
        v for v in store.delta_log.versions() if any("remove" in a for a in store.delta_log.read_entry(v).actions)
    )
    edit_entry(store, version, lambda actions: actions.append(next(a for a in actions if "remove" in a)))


def _stray(*names: str) -> Damage:
    def leave(store: FileStore) -> None:
        for name in names:
            path = Path(store.location) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PAR1")

    return leave


def _set_column(name: str, values: Callable[[pa.Table], Any]) -> Damage:
    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index(name)
        return rows.set_column(
            at, rows.schema.field(at).with_nullable(True), pa.array(values(rows), rows.schema.field(at).type)
        )

    return lambda store: rewrite(store, change)


def on_entry(version: int, edit: Callable[[Actions], object]) -> Damage:
    return lambda store: edit_entry(store, version, edit)


def on_add(edit: Callable[[dict[str, Any]], object]) -> Damage:
    return lambda store: edit_add(store, _data(store), edit)


def on_stats(edit: Callable[[dict[str, Any]], object], *, with_vector: bool = False) -> Damage:
    return lambda store: edit_stats(store, _data(store, with_vector=with_vector), edit)


def on_rows(change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda store: rewrite(store, change)


def _let_foreign_writers_in(actions: Actions) -> None:
    actions[1]["protocol"]["writerFeatures"].remove("tablestore.primaryKey")


def _other_identity(store: FileStore) -> None:
    metadata = store.delta_log.read_entry(0).actions[2]["metaData"]
    edit_entry(store, 3, lambda actions: actions.append({"metaData": metadata | {"id": "another"}}))


def _same_time(store: FileStore) -> None:
    edit_info(store, 3, inCommitTimestamp=store.state(2).timestamp_ms)


def _other_ids(rows: pa.Table) -> pa.Table:
    return rows.set_column(0, rows.schema.field(0), pa.array(range(rows.num_rows), pa.int64()))


_CHANGED = 3


def _switch_feed_off(actions: Actions) -> None:
    del actions[2]["metaData"]["configuration"]["delta.enableChangeDataFeed"]


def on_change(edit: Callable[[dict[str, Any]], object]) -> Damage:
    return on_entry(_CHANGED, lambda actions: edit(next(a["cdc"] for a in actions if "cdc" in a)))


def _change_file(store: FileStore) -> Path:
    actions = store.delta_log.read_entry(_CHANGED).actions
    return Path(store.location) / next(a["cdc"]["path"] for a in actions if "cdc" in a)


def _rewrite_changes(store: FileStore, change: Callable[[pa.Table], pa.Table], *, statistics: bool = True) -> None:
    path = _change_file(store)
    pq.write_table(change(pq.read_table(path, partitioning=None)), path, write_statistics=statistics)
    on_change(lambda cdc: cdc.update(size=path.stat().st_size))(store)


def _unknown_type(rows: pa.Table) -> pa.Table:
    column = rows.schema.get_field_index("_change_type")
    return rows.set_column(column, "_change_type", pa.array(["upsert"] * rows.num_rows, pa.string()))


def _with_nulls(rows: pa.Table, name: str) -> pa.Table:
    column = rows.schema.get_field_index(name)
    return rows.set_column(column, name, pa.nulls(rows.num_rows, rows.schema.field(column).type))


def _no_text(count: int) -> pa.Array:
    binary = pa.array([b"\xff"] * count)
    return pa.Array.from_buffers(pa.string(), count, binary.buffers())


def _overwrite_without_change_data(store: FileStore) -> None:
    version = write(store, read(store), overwrite=True).snapshot.version
    edit_entry(store, version, lambda actions: [actions.remove(a) for a in list(actions) if "cdc" in a])


def _overwritten(store: FileStore, **changes: Any) -> None:
    """Overwrites the table with rows in one partition, and changes what the commit says of that."""
    committed = write(store, [{"id": 1, "p": "x", "need": "a", "v": 0.0}], overwrite=True)
    edit_info(store, committed.snapshot.version, **changes)


def _domain(name: str, **configuration: object) -> Actions:
    return [{"domainMetadata": {"domain": name, "configuration": json.dumps(configuration), "removed": False}}]


def _tag(version: int) -> Actions:
    return _domain("tablestore.tag.t", version=version, timestamp=1, created=1, automatic=False)


def _lose_an_old_file(store: FileStore) -> None:
    old = next(iter(store.state().files))
    write(store, [{"id": 1, "p": "x", "need": "a", "v": 0.0}], overwrite=True)
    (Path(store.location) / old.path).unlink()


def _first_goes_back(store: FileStore) -> None:
    edit_entry(store, 3, lambda actions: actions.extend(_domain("tablestore.retention", first=2)))
    edit_entry(store, 4, lambda actions: actions.extend(_domain("tablestore.retention", first=1)))


def _edit_fields(store: FileStore, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    """Changes the columns of the last change of the schema."""

    def change(actions: Actions) -> None:
        metadata = next(a["metaData"] for a in actions if "metaData" in a)
        schema = json.loads(metadata["schemaString"])
        edit(schema["fields"])
        metadata["schemaString"] = json.dumps(schema)

    version = max(
        v for v in store.delta_log.versions() if any("metaData" in a for a in store.delta_log.read_entry(v).actions)
    )
    edit_entry(store, version, change)


def _altered(edit: Callable[[list[dict[str, Any]]], object], *changes: Change) -> Damage:
    """Changes the schema, and damages the result."""

    def damage(store: FileStore) -> None:
        alter(store, changes)
        _edit_fields(store, edit)

    return damage


def _without_feature(store: FileStore) -> None:
    version = alter(store, _TO_METADATA).version
    edit_entry(store, version, lambda actions: actions.remove(next(a for a in actions if "protocol" in a)))


def _set_id(fields: list[dict[str, Any]], number: int) -> None:
    fields[-1]["metadata"]["tablestore.id"] = number


_TO_METADATA = (SetOption("schema.evolution-mode", "metadata"), RenameColumn("v", "w"))
# The damages are for a table (id BIGINT, p STRING, need STRING NOT NULL, v DOUBLE) with key id and p, partitioned by p,
# of several versions, with checkpoints at 2 and 4, and with files with and without vectors.
_LOG: dict[str, tuple[Invariant, Damage]] = {
    "an entry is gone": (Invariant.VERSION_GAP, lambda store: _entry(store, 3).unlink()),
    "the first entry is gone": (Invariant.VERSION_GAP, lambda store: _entry(store, 0).unlink()),
    "an entry is garbage": (Invariant.LOG_ENTRY, lambda store: _entry(store, 3).write_text('{"add"')),
    "an entry is no text": (Invariant.LOG_ENTRY, lambda store: _entry(store, 3).write_bytes(b"\xff\x00")),
    "an entry is empty": (Invariant.LOG_ENTRY, lambda store: _entry(store, 3).write_text("")),
    "an entry is no object": (Invariant.LOG_ENTRY, lambda store: _entry(store, 3).write_text("[1]")),
    "an entry has no info": (Invariant.LOG_ENTRY, on_entry(3, lambda actions: actions.pop(0))),
    "the info is not first": (Invariant.LOG_ENTRY, on_entry(3, lambda actions: actions.reverse())),
    "an unknown operation": (Invariant.LOG_ENTRY, lambda store: edit_info(store, 3, operation="OPTIMIZE")),
    "an add without tags": (Invariant.LOG_ENTRY, on_add(lambda add: add.pop("tags"))),
    "time stands still": (Invariant.TIMESTAMP_ORDER, _same_time),
    "foreign writers are let in": (Invariant.PROTOCOL, on_entry(0, _let_foreign_writers_in)),
    "another identity": (Invariant.TABLE_ID, _other_identity),
    "an id for one column only": (Invariant.COLUMN_ID, lambda store: _edit_fields(store, lambda f: _set_id(f, 4))),
    "two columns of one id": (Invariant.COLUMN_ID, _altered(lambda f: _set_id(f, 4), AddColumn("n", "INT"))),
    "a new column with an old id": (
        Invariant.COLUMN_ID,
        _altered(lambda fields: (fields.pop(2), _set_id(fields, 3)), AddColumn("n", "INT")),
    ),
    "an id above the last one": (Invariant.COLUMN_ID, _altered(lambda f: _set_id(f, 9), AddColumn("n", "INT"))),
    "a column of another type": (
        Invariant.COLUMN_ID,
        _altered(lambda fields: fields[3].update(type="string"), AddColumn("n", "INT")),
    ),
    "a column has to have values now": (
        Invariant.COLUMN_ID,
        _altered(lambda fields: fields[3].update(nullable=False), AddColumn("n", "INT")),
    ),
    "another name in files": (
        Invariant.COLUMN_ID,
        _altered(lambda fields: fields[3]["metadata"].update({"delta.columnMapping.physicalName": "x"}), *_TO_METADATA),
    ),
    "column mapping without its feature": (Invariant.PROTOCOL, _without_feature),
    "one write twice": (Invariant.COMMIT_ID, _commit_id_twice),
    "a commit behind its fence": (Invariant.FENCED_COMMIT, _fenced),
    "a file behind its fence": (Invariant.FENCED_COMMIT, _fenced_file),
    "a file added twice": (Invariant.FILE_ACTION, _drop_first_remove),
    "a file removed twice": (Invariant.FILE_ACTION, _remove_twice),
    "a bucket too many": (Invariant.FILE_ACTION, on_add(lambda add: add["tags"].update({"tablestore.bucket": "9"}))),
    "tight bounds with a vector": (
        Invariant.FILE_ACTION,
        on_stats(lambda stats: stats.update(tightBounds=True), with_vector=True),
    ),
    "a write that says it changes nothing": (Invariant.DATA_CHANGE, on_add(lambda add: add.update(dataChange=False))),
    "an overwrite beyond the partitions that it names": (
        Invariant.REPLACED_PARTITION,
        lambda store: _overwritten(store, operationParameters={"partitions": '[{"p":"x"}]'}),
    ),
    "an overwrite that leaves files behind": (
        Invariant.REPLACED_PARTITION,
        lambda store: edit_info(store, 3, operation="OVERWRITE"),
    ),
    "a drop of partitions that adds": (
        Invariant.REPLACED_PARTITION,
        lambda store: _overwritten(store, operation="DROP PARTITION"),
    ),
    "offsets go back": (Invariant.OFFSET_ORDER, lambda store: _both_txn(store, "tablestore.log.offset.0")),
    "records beyond the offsets": (Invariant.OFFSET_ORDER, lambda store: _transaction(store, 7)),
    "a decided transaction is not open": (Invariant.OPEN_TRANSACTION, lambda store: _transaction(store, 0)),
    "an open transaction was never decided": (Invariant.OPEN_TRANSACTION, _unknown_open),
    "a repaired offset goes back": (Invariant.OFFSET_ORDER, _repaired_goes_back),
    "offsets of another log": (Invariant.OFFSET_ORDER, _another_log),
    "what was repaired is not named any more": (Invariant.OFFSET_ORDER, _repaired_is_forgotten),
    "published again without having been open": (Invariant.OPEN_TRANSACTION, lambda store: _republished(store, None)),
    "published again and not open": (Invariant.OPEN_TRANSACTION, lambda store: _republished(store, "t2")),
    "batches go back": (Invariant.APP_VERSION_ORDER, lambda store: _both_txn(store, "query")),
    "two numbers of one app": (Invariant.APP_VERSION_TWICE, on_entry(3, lambda actions: actions.extend(_TWICE))),
    "versions to come are kept": (
        Invariant.RETENTION,
        on_entry(3, lambda actions: actions.extend(_domain("tablestore.retention", first=3))),
    ),
    "expired versions come back": (Invariant.RETENTION, _first_goes_back),
    "a tag of a version to come": (Invariant.TAG, on_entry(3, lambda actions: actions.extend(_tag(3)))),
    "a checkpoint of another version": (Invariant.CHECKPOINT, _swap_checkpoints),
    "a checkpoint is garbage": (
        Invariant.CHECKPOINT,
        lambda store: (Path(store.location) / layout.checkpoint_path(4)).write_bytes(b"PAR1xxxxPAR1"),
    ),
}
_FILES: dict[str, tuple[Invariant, Damage]] = {
    "a file is gone": (Invariant.FILE_MISSING, lambda store: _data(store).unlink()),
    "another size": (Invariant.FILE_SIZE, on_add(lambda add: add.update(size=7))),
    "a file is garbage": (Invariant.FILE_UNREADABLE, _garbage),
    "a file is empty": (Invariant.FILE_UNREADABLE, lambda store: _data(store).write_bytes(b"")),
    "a bit flips": (Invariant.CHECKSUM, lambda store: _flip(_data(store), 100)),
    "a bit of a footer flips": (Invariant.CHECKSUM, lambda store: _flip(_data(store), -200)),
    "a file of before checksums": (Invariant.NO_CHECKSUMS, on_add(lambda add: add["tags"].update(_EDITION_2))),
    "a column is gone": (Invariant.FILE_SCHEMA, on_rows(lambda rows: rows.drop_columns(["v"]))),
    "a key column is gone": (Invariant.FILE_SCHEMA, on_rows(lambda rows: rows.drop_columns(["id"]))),
    "a key of another type": (
        Invariant.FILE_SCHEMA,
        on_rows(lambda rows: rows.set_column(0, "id", rows.column("id").cast(pa.string()))),
    ),
    "another type": (
        Invariant.FILE_SCHEMA,
        on_rows(lambda rows: rows.set_column(3, "v", pa.array([1] * rows.num_rows, pa.int32()))),
    ),
    "a row is gone": (Invariant.ROW_COUNT, on_rows(lambda rows: rows.slice(0, rows.num_rows - 1))),
    "rows in another order": (
        Invariant.ROW_ORDER,
        on_rows(lambda rows: rows.take(pa.array(range(rows.num_rows)[::-1]))),
    ),
    "a key twice in a file": (
        Invariant.ROW_ORDER,
        on_rows(lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(0, rows.num_rows - 1)])),
    ),
    "a key in two row groups": (Invariant.ROW_ORDER, _key_in_two_row_groups),
    "rows of another bucket": (Invariant.BUCKET, on_rows(_other_ids)),
    "rows of another partition": (Invariant.PARTITION, on_add(lambda add: add.update(partitionValues={"p": "z"}))),
    "a null where none may be": (Invariant.NOT_NULL, _set_column("need", lambda rows: [None] * rows.num_rows)),
    "a text of wrong bytes": (
        Invariant.TEXT,
        on_rows(lambda rows: rows.set_column(2, "need", _no_text(rows.num_rows))),
    ),
    "another first key": (
        Invariant.KEY_BOUNDS,
        on_add(lambda add: add["tags"].update({"tablestore.minKey": "[-5]"})),
    ),
    "a key that does not parse": (
        Invariant.KEY_BOUNDS,
        on_add(lambda add: add["tags"].update({"tablestore.maxKey": "[]"})),
    ),
    "a minimum too high": (Invariant.STATISTICS, on_stats(lambda stats: stats["minValues"].update(v=99.5))),
    "a maximum too low for a dead row": (
        Invariant.STATISTICS,
        on_stats(lambda stats: stats["maxValues"].update(id=0), with_vector=True),
    ),
    "a NaN and bounds": (Invariant.STATISTICS, _set_column("v", lambda rows: [float("nan")] * rows.num_rows)),
    "a NaN beyond a footer's bounds": (
        Invariant.HIDDEN_VALUE,
        _set_column("v", lambda rows: [float("nan")] + [0.0] * (rows.num_rows - 1)),
    ),
    "a wrong null count": (Invariant.STATISTICS, on_stats(lambda stats: stats["nullCount"].update(v=1))),
    "a bound of another type": (Invariant.STATISTICS, on_stats(lambda stats: stats["minValues"].update(id="x"))),
    "a bound of an unknown column": (Invariant.STATISTICS, on_stats(lambda stats: stats["minValues"].update(zz=1))),
    "a filter denies all": (Invariant.BLOOM_FILTER, _deny_all),
    "a vector's bit flips": (Invariant.VECTOR, _flip_vector_bit),
    "vectors are gone": (Invariant.VECTOR, _unlink_vectors),
    "a vector beyond the file": (Invariant.VECTOR, lambda store: _other_vector(store, [0, 999])),
    "a vector right behind the file": (
        Invariant.VECTOR,
        lambda store: _other_vector(store, [pq.read_metadata(_data(store)).num_rows]),
    ),
    "a vector without rows": (Invariant.VECTOR, lambda store: _other_vector(store, [])),
    "a file of an older version is gone": (Invariant.RETAINED_FILE, _lose_an_old_file),
    "dead rows live again": (Invariant.UNIQUE_KEY, _lost_vector),
}
_LEFTOVERS: dict[str, tuple[Invariant, Damage]] = {
    "a file of dead rows": (Invariant.DEAD_FILE, _all_dead),
    "leftovers": (
        Invariant.ORPHAN,
        _stray(
            "bucket-00000/x.parquet",
            "_runs/bucket-00000/x.parquet",
            "_change_data/x.parquet",
            "deletion_vector_x.bin",
            "_delta_log/.00000000000000000009.json.abc.tmp",
        ),
    ),
    "somebody's notes": (Invariant.FOREIGN_FILE, _stray("notes.txt", "_delta_log/notes.md")),
}
_CHANGES: dict[str, tuple[Invariant, Damage]] = {
    "the feed is off": (Invariant.CHANGE_FEED, on_entry(0, _switch_feed_off)),
    "change data that change data": (Invariant.CHANGE_FEED, on_change(lambda cdc: cdc.update(dataChange=True))),
    "change data without a size": (Invariant.CHANGE_FEED, on_change(lambda cdc: cdc.pop("size"))),
    "change data of another size": (Invariant.CHANGE_FILE, on_change(lambda cdc: cdc.update(size=7))),
    "a change file is gone": (Invariant.CHANGE_FILE, lambda store: _change_file(store).unlink()),
    "a change file is garbage": (
        Invariant.CHANGE_FILE,
        lambda store: _change_file(store).write_bytes(b"x" * _change_file(store).stat().st_size),
    ),
    "a change file lacks a column": (
        Invariant.CHANGE_FILE,
        lambda store: _rewrite_changes(store, lambda rows: rows.drop_columns(["v"])),
    ),
    "an unknown change": (Invariant.CHANGE_FILE, lambda store: _rewrite_changes(store, _unknown_type)),
    "a change has a null in a NOT NULL column": (
        Invariant.CHANGE_FILE,
        lambda store: _rewrite_changes(store, lambda rows: _with_nulls(rows, "need")),
    ),
    "a change has a null that no statistics count": (
        Invariant.CHANGE_FILE,
        lambda store: _rewrite_changes(store, lambda rows: _with_nulls(rows, "need"), statistics=False),
    ),
    "a change is missing": (
        Invariant.CHANGE_COUNT,
        lambda store: _rewrite_changes(store, lambda rows: rows.slice(1)),
    ),
    "all changes are missing": (
        Invariant.CHANGE_COUNT,
        on_entry(_CHANGED, lambda actions: [actions.remove(a) for a in list(actions) if "cdc" in a]),
    ),
    "an overwrite does not say what it changed": (Invariant.CHANGE_COUNT, _overwrite_without_change_data),
}
DAMAGES = _LOG | _FILES | _LEFTOVERS | _CHANGES
