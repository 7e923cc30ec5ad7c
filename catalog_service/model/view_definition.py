"""The definition of a view: a query, and what its text means. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.bounds import check_comment
from filestore.model.text import check_text

__all__ = ["ViewDefinition"]

_QUERY_MAX = 250_000


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A query that has a name. Make it with `ViewDefinition.of`, which checks it. Picklable.

    Attributes:
        query: The text of the query, as it was written.
        columns: The columns as the engine describes them; for Spark a ``StructType`` as JSON. The catalog does not read
            them.
        context: What the engine needs to understand the text as it was meant, such as the catalog and the database
            that were current when the view was created.
        properties: The view's properties.
        comment: Free text.
    """

    query: str
    columns: str
    context: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @classmethod
    def of(
        cls,
        query: str,
        columns: str,
        context: Mapping[str, Any],
        properties: Mapping[str, str],
        comment: str | None,
    ) -> ViewDefinition:
        """Checks a definition, and makes it.

        Raises:
            InvalidRequest: ``empty-query``, ``too-long``, ``bad-text``.
        """
        if not query.strip():
            raise InvalidRequest("a view needs a query: write SELECT …", code="empty-query")
        made = cls(query, columns, dict(context), dict(properties), comment)
        if len(text := made.encoded()) > _QUERY_MAX:
            raise InvalidRequest(
                f"the view's definition has {len(text)} characters; {_QUERY_MAX} are allowed", code="too-long"
            )
        check_comment("the view", comment)
        for name, value in properties.items():
            check_text(f"property name {name!r}", name)
            check_text(f"property {name!r}", value)
        return made

    def encoded(self) -> str:
        """Encodes it as the JSON that the catalog stores."""
        return json.dumps(
            {
                "query": self.query,
                "columns": self.columns,
                "context": self.context,
                "properties": self.properties,
                "comment": self.comment,
            }
        )

    @classmethod
    def decoded(cls, stored: Mapping[str, Any]) -> ViewDefinition:
        """Reverses `encoded`, after the JSON was parsed. It does not check again."""
        return cls(stored["query"], stored["columns"], stored["context"], stored["properties"], stored["comment"])
