"""The declaration of a table with a connector: columns, key, options; checked as a whole when the table is made. Pure.

The rows are in the topic. So there are no versions and no files, and the catalog keeps all that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.bounds import Extent, check_extent
from filestore.model.table_columns import TableColumns
from filestore.model.text import check_text
from filestore.model.watermark import Watermark, watermark_of
from filestore.secrets import shown
from log.connector.formats.fields import FieldsInclude, Projection, project_fields
from log.connector.formats.format import Format, Role
from log.connector.formats.malformed import Policy
from log.connector.formats.options import select_options
from log.connector.metadata.keys import NO_KEYS, MetadataKey, available_keys
from log.connector.metadata.plans import plan_read
from log.connector.options import (
    CONNECTOR,
    CONNECTOR_OPTIONS,
    PROPERTIES,
    SERVERS,
    Connector,
    Semantic,
    option_value,
)
from log.connector.rules import check_formats, check_halves, check_key, check_options
from log.connector.startup import Startup, startup_of

__all__ = ["KafkaDeclaration"]


@dataclass(frozen=True, slots=True, repr=False)
class KafkaDeclaration:
    """A table with a connector: columns, key, options. Make it with `KafkaDeclaration.of`, which checks it. Picklable.

    Attributes:
        columns: Physical and metadata columns, as declared.
        primary_key: Key columns, in order; they are physical and NOT NULL.
        given: The options, by name.
        comment: Free text.
    """

    columns: TableColumns
    primary_key: tuple[str, ...]
    given: tuple[tuple[str, str], ...]
    comment: str | None = None

    def __repr__(self) -> str:
        """Shows columns, key and options, with stars for passwords."""
        return f"KafkaDeclaration({self.columns}, {self.primary_key}, {shown(self.options)})"

    @classmethod
    def of(
        cls,
        columns: TableColumns,
        primary_key: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> KafkaDeclaration:
        """Checks a declaration, and makes it.

        Raises:
            InvalidRequest: with a code of ``unknown-option``, ``missing-option``, ``bad-option-value``,
                ``connector-properties``, ``connector-key``, ``connector-format``, ``startup-mode``,
                ``malformed-policy``, ``sink-parallelism``, ``bad-text``, ``unknown-column``, ``nullable-key``,
                ``key-type``, ``bad-watermark``, or those of `check_fields`, `check_extent`, `project_fields`,
                `open_format` and `plan_read`.
                Nothing outside was asked.
        """
        given = {name: str(value) for name, value in (options or {}).items()}
        for name, value in given.items():
            check_text(f"option name {name!r}", name)
            check_text(f"option {name!r}", value)
        check_text("the table's comment", comment or "")
        check_extent(Extent.of(columns.columns, given, comment))
        made = cls(columns, tuple(primary_key), tuple(sorted(given.items())), comment)
        check_options(made)
        check_key(made)
        check_halves(made)
        check_formats(made)
        _ = made.watermark  # raises if it does not fit
        plan_read(made.columns, made.keys)
        return made

    def with_scan(self, options: Mapping[str, str]) -> KafkaDeclaration:
        """Returns the same table, read in another way: as ``/*+ OPTIONS(…) */`` in Flink's SQL.

        Args:
            options: Options ``scan.*``, in place of the table's.

        Raises:
            InvalidRequest: as `of`, or ``unknown-option``: one that says how a table is read has ``scan.`` before it.
        """
        if strange := [name for name in options if not name.startswith("scan.")]:
            raise InvalidRequest(
                f"option {strange[0]!r} is the table's, not a reader's, whose options begin with 'scan.'",
                code="unknown-option",
            )
        kept = self.options
        if "scan.startup.mode" in options:
            kept = {name: value for name, value in kept.items() if not name.startswith("scan.startup.")}
        made = replace(self, given=tuple(sorted((kept | dict(options)).items())))
        check_options(made)
        return made

    @property
    def options(self) -> dict[str, str]:
        """The options as given."""
        return dict(self.given)

    @property
    def effective_options(self) -> dict[str, str]:
        """The options as given, and the defaults of the others."""
        return {o.name: str(o.default) for o in CONNECTOR_OPTIONS.values() if o.default is not None} | self.options

    def __getitem__(self, name: str) -> Any:
        """Returns the parsed value of an option, or of its default; None if there is none."""
        return option_value(self.options, name)

    @property
    def connector(self) -> Connector:
        """Returns whether messages are appended rows, or upserts."""
        return Connector(self[CONNECTOR])

    @property
    def upserts(self) -> bool:
        """Returns whether a message is the new row of its key, and a null value deletes it."""
        return self.connector is Connector.UPSERT_KAFKA

    @property
    def topic(self) -> str:
        """The topic's name."""
        return str(self["topic"])

    @property
    def if_gone(self) -> str:
        """Returns what to do if the topic does not exist any more."""
        return "create it, or declare the table with another option topic"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers."""
        return str(self[PROPERTIES + SERVERS])

    @property
    def properties(self) -> dict[str, str]:
        """The settings of Kafka's clients, without the servers."""
        names = [name for name in self.options if name.startswith(PROPERTIES)]
        found = {name.removeprefix(PROPERTIES): self.options[name] for name in names}
        return {name: value for name, value in found.items() if name != SERVERS}

    @property
    def semantic(self) -> Semantic:
        """The delivery guarantee of a write."""
        return Semantic(self["sink.semantic"])

    @property
    def policy(self) -> Policy:
        """The policy of readers for malformed messages."""
        return Policy(self["scan.malformed-records"])

    @property
    def startup(self) -> Startup:
        """The position at which readers begin."""
        return startup_of({name: self[name] for name in CONNECTOR_OPTIONS if name.startswith("scan.startup.")})

    @property
    def discovery(self) -> timedelta:
        """The interval in which an endless reader looks for new partitions; zero: never."""
        found: timedelta = self["scan.topic-partition-discovery.interval"]
        return found

    @property
    def watermark(self) -> Watermark | None:
        """The watermark of the table's streams; None without one.

        Raises:
            InvalidRequest: ``bad-watermark``: only while the declaration is made.
        """
        return watermark_of(self["watermark.column"], self["watermark.delay"], self.columns.columns)

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The columns of the messages' keys."""
        return self.primary_key if self.upserts else tuple(self["key.fields"] or ())

    @property
    def projection(self) -> Projection:
        """The division of the columns into those of keys and those of values."""
        include = FieldsInclude(self["value.fields-include"])
        return project_fields(
            self.columns.physical.to_arrow(), self.key_fields, include, self["key.fields-prefix"] or ""
        )

    @property
    def formats(self) -> dict[Role, str]:
        """The names of the formats in use."""
        halves = {Role.KEY: self["key.format"], Role.VALUE: self["value.format"] or self["format"]}
        return {role: name for role, name in halves.items() if name is not None}

    @property
    def key_format(self) -> Format | None:
        """The format of keys, opened; None if keys have no columns."""
        return self._opened(Role.KEY) if Role.KEY in self.formats else None

    @property
    def value_format(self) -> Format:
        """The format of values, opened."""
        return self._opened(Role.VALUE)

    @property
    def keys(self) -> tuple[MetadataKey, ...]:
        """Returns all metadata that columns can have."""
        key = self.key_format
        return available_keys(
            key_format=NO_KEYS if key is None else key.metadata, value_format=self.value_format.metadata
        )

    def _opened(self, role: Role) -> Format:
        # The formats load polars, which is not needed to list or describe tables.
        from log.connector.formats.opening import open_format

        name, halves = self.formats[role], self.projection
        schema = halves.key_schema if role is Role.KEY else halves.value_schema
        return open_format(name, schema, select_options(self.options, name, role), role, topic=self.topic)
