"""Options of single columns, ``fields.<column>.<name>``: every name, type, default and meaning."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.model.functions import FUNCTIONS
from filestore.model.option_values import Option, any_text, column_names, flag, one_of

__all__ = ["FIELD_OPTIONS", "FIELD_PREFIX"]

FIELD_PREFIX = "fields."
FIELD_OPTIONS: Mapping[str, Option] = {
    o.name: o
    for o in (
        Option(
            "aggregate-function",
            "enum",
            one_of(*FUNCTIONS),
            None,
            "How the column's values become one, with merge-engine = aggregation or partial-update.",
        ),
        Option(
            "ignore-retract",
            "boolean",
            flag,
            "false",
            "Rows that take away (-U, -D) leave this column as it is.",
        ),
        Option(
            "list-agg-delimiter",
            "text",
            any_text,
            ",",
            "What stands between the texts of a listagg.",
        ),
        Option(
            "distinct",
            "boolean",
            flag,
            "false",
            "A collect keeps each element once.",
        ),
        Option(
            "nested-key",
            "column list",
            column_names,
            None,
            "Fields that tell the structs of a nested_update apart; without them structs are only added.",
        ),
        Option(
            "sequence-group",
            "column list",
            column_names,
            None,
            "With merge-engine = partial-update: these columns follow the row with the highest value of the column (or "
            "columns, separated by commas) that the option is named by.",
        ),
    )
}
"""Options of single columns, ``fields.<column>.<name>``."""
