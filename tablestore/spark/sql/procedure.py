"""`Procedure`: what ``CALL catalog.sys.<name>(…)`` runs, with its parameters and the columns of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from filestore.errors import InvalidRequest
from tablestore.spark.store import SparkStore

__all__ = ["TABLE", "Arguments", "Parameter", "Procedure", "Row", "run_procedure"]

Row = Sequence[Any]
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: Its name.
        comment: What it says.
        type: Its type, as SQL spells it.
        default: Its default as SQL; None if it has to be given.
    """

    name: str
    comment: str
    type: str = "STRING"
    default: str | None = None


TABLE = Parameter("table", "database.table")
"""The parameter that most procedures have."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure.

    Attributes:
        name: Its name.
        comment: What it does.
        parameters: Its parameters, in the order of positional arguments.
        columns: The columns of its rows, as SQL spells them. Types are STRING, BIGINT, INT, BOOLEAN, ARRAY and MAP of
            STRING, and TIMESTAMP, whose values are microseconds since 1970 UTC; others have nulls only.
        run: Does it.
    """

    name: str
    comment: str
    parameters: tuple[Parameter, ...]
    columns: str
    run: Callable[[SparkStore, Arguments], Iterable[Row]]

    def _signature(self) -> str:
        """Returns how it is called: DESCRIBE PROCEDURE shows nothing of parameters itself."""
        parameters = (f"{p.name} {p.type}{'' if p.default is None else f' => {p.default}'}" for p in self.parameters)
        return f"{self.name}({', '.join(parameters)}) returns {self.columns}"

    def described(self) -> dict[str, Any]:
        """Describes it for Java."""
        return {
            "name": self.name,
            "description": f"{self.comment} {self._signature()}",
            "parameters": [
                {"name": p.name, "type": p.type, "comment": p.comment}
                | ({} if p.default is None else {"default": p.default})
                for p in self.parameters
            ],
        }


def run_procedure(store: SparkStore, procedure: Procedure, arguments: Arguments) -> dict[str, Any]:
    """Runs a procedure, and returns the columns and the rows of its answer."""
    missing = [p.name for p in procedure.parameters if p.default is None and arguments.get(p.name) is None]
    if missing:
        raise InvalidRequest(f"{procedure.name} needs {', '.join(missing)}, which is null", code="null-argument")
    rows = procedure.run(store, arguments)
    return {"schema": procedure.columns, "rows": [list(row) for row in rows]}
