"""A normalizer as a value: its columns and key, and the table that is its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath

import pyarrow as pa

from filestore import layout
from filestore.ambient import Ambient
from filestore.arguments import checks_arguments
from filestore.errors import AlreadyExists, InvalidRequest, NotFound
from filestore.model.changes import AddColumn, Change, SetOption
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from filestore.model.sql import parse_columns
from filestore.model.table_columns import TableColumns, managed_schema
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from filestore.operations.rewrite import TableRewrite
from filestore.storage.interface import Storage
from filestore.storage.locations import storage_of
from filestore.table import FileStore

__all__ = ["NormalizerSpec", "changes_to"]

_KEPT_VERSIONS = "snapshot.num-retained.min"
_FIXED = {
    "changelog-producer": "lookup",
    "log.system": "none",
    "merge-engine": "deduplicate",
    "write-mode": "merge-on-write",
}
_DEFAULTS = {
    "bucket": "1",
    "compaction.in-writer": "true",
    "num-sorted-run.compaction-trigger": "10",
    _KEPT_VERSIONS: "20",
}


@checks_arguments()
@dataclass(frozen=True, slots=True)
class NormalizerSpec:
    """The values by which any process opens a normalizer. Picklable; `of` makes and checks it.

    Attributes:
        state: The folder of the state, which only this normalizer uses.
        definition: The definition of the state's table.
        storage: The storage of the folder.
    """

    state: str
    definition: TableDefinition
    storage: Storage

    @classmethod
    def of(
        cls,
        state: str | PathLike[str],
        schema: pa.Schema | Schema | str,
        primary_key: Sequence[str],
        *,
        sequence_field: str | None = None,
        options: Mapping[str, str] | None = None,
        storage: Storage | None = None,
    ) -> NormalizerSpec:
        """Makes a spec and checks that its parts fit each other.

        Args:
            state: The folder of the state; the first use creates it.
            schema: The rows' columns: an Arrow schema, or a SQL column list.
            primary_key: The columns that identify a row.
            sequence_field: A column that orders the rows of a key: a row with a lower value than the known one is late,
                and changes nothing. Without it the last row wins.
            options: Options of the state's table (filestore/OPTIONS.md).
            storage: The storage of the state; None takes that of its location.

        Raises:
            InvalidRequest: there is no key (``no-primary-key``), a state cannot have an option
                (``normalizer-option``), or what `TableDefinition.of` refuses.
        """
        if not primary_key:
            raise InvalidRequest(
                "a normalizer needs a primary key: name its columns as primary_key", code="no-primary-key"
            )
        definition = TableDefinition.of(
            _columns(schema, primary_key), primary_key, (), _all_options(options or {}, sequence_field)
        )
        folder = fspath(state).rstrip("/")
        return cls(folder, definition, storage or storage_of(folder))

    def part(self, name: str) -> NormalizerSpec:
        """Returns a spec with a state of its own in this one's folder, for one of several parts of an input.

        Each key must be in one part only, as it is in the partitions of a topic.
        """
        if not name or name in (".", "..") or "/" in name:
            raise InvalidRequest(
                f"{name!r} is not a name for a part of a state: use the partition's number, or a text without '/'",
                code="bad-name",
            )
        return replace(self, state=layout.join(self.state, name))

    def opened(self, ambient: Ambient) -> FileStore:
        """Opens the state: creates it if necessary, and gives it the columns and options of this spec.

        Raises:
            InvalidRequest: the existing state cannot be changed to them (``other-state``, ``fixed-option``).
        """
        filestore = self._found(ambient)
        if changes := changes_to(filestore.state().definition, self.definition, self.state):
            alter(filestore, changes, TableRewrite, lambda store: fold_table(store, full=True))
        return filestore

    def _found(self, ambient: Ambient) -> FileStore:
        try:
            return FileStore.open(self.storage, self.state, ambient)
        except NotFound as error:
            if error.code != "no-table":
                raise
        try:
            return FileStore.create(self.storage, self.state, self.definition, ambient.new_id(), ambient)
        except AlreadyExists:
            return FileStore.open(self.storage, self.state, ambient)  # another process was faster


def changes_to(found: TableDefinition, wanted: TableDefinition, state: str) -> tuple[Change, ...]:
    """The changes from a state's definition to the wanted one: added columns, and options. Pure.

    Raises:
        InvalidRequest: ``other-state``: other changes would be needed, too.
    """
    known = {column.name: (column.type, column.nullable) for column in found.schema}
    needed = {column.name: (column.type, column.nullable) for column in wanted.schema}
    wrong = [name for name, what in known.items() if needed.get(name) != what]
    wrong += [name for name, (_, nullable) in needed.items() if name not in known and not nullable]
    if found.primary_key != wanted.primary_key or wrong:
        of = f"column {wrong[0]!r} differs" if wrong else f"its key is {', '.join(found.primary_key)}"
        raise InvalidRequest(
            f"the state at {state} has the columns ({found.schema.to_sql()}), but the normalizer has "
            f"({wanted.schema.to_sql()}) with the key {', '.join(wanted.primary_key)}: {of}. Nullable columns are "
            "added automatically; for other changes open it as it is and call alter(), or begin with another folder",
            code="other-state",
        )
    columns = list(wanted.schema)
    added = [
        AddColumn(c.name, c.type, comment=c.comment, after=columns[at - 1].name if at else None, first=not at)
        for at, c in enumerate(columns)
        if c.name not in known
    ]
    options = found.options.as_dict()
    return (*added, *(SetOption(name, value) for name, value in wanted.options.given if options.get(name) != value))


def _columns(schema: pa.Schema | Schema | str, primary_key: Sequence[str]) -> Schema:
    if isinstance(schema, str):
        return parse_columns(schema, primary_key)
    if isinstance(schema, pa.Schema):
        schema = managed_schema(TableColumns.from_arrow(schema).columns)
    return schema.required(primary_key)


def _all_options(given: Mapping[str, str], sequence_field: str | None) -> dict[str, str]:
    for name, value in given.items():
        if name in _FIXED and value != _FIXED[name]:
            raise InvalidRequest(
                f"option {name!r} = {value!r}: a normalizer's state needs {_FIXED[name]!r} to find the former rows; "
                "leave the option out",
                code="normalizer-option",
            )
    options = _DEFAULTS | dict(given) | _FIXED
    options.setdefault("snapshot.num-retained.max", options[_KEPT_VERSIONS])
    if sequence_field is not None:
        options["sequence.field"] = sequence_field
    return options
