"""Options of single columns, ``fields.<column>.<name>``: each with its name, type, default and meaning."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.model.functions import FUNCTIONS
from filestore.model.option_values import Option, any_text, column_names, flag, one_of

__all__ = ["FIELD_OPTIONS", "FIELD_PREFIX", "SEQUENCE_GROUP"]

FIELD_PREFIX = "fields."
SEQUENCE_GROUP = "sequence-group"
FIELD_OPTIONS: Mapping[str, Option] = {
    o.name: o
    for o in (
        Option(
            "aggregate-function",
            "enum",
            one_of(*FUNCTIONS),
            None,
            "How the column's values are merged, with merge-engine = aggregation or partial-update.",
        ),
        Option(
            "ignore-retract",
            "boolean",
            flag,
            "false",
            "Deletes and first halves of updates (-D, -U) leave this column as it is.",
        ),
        Option(
            "list-agg-delimiter",
            "text",
            any_text,
            ",",
            "The text between two values of a listagg.",
        ),
        Option(
            "distinct",
            "boolean",
            flag,
            "false",
            "A collect keeps each element only once.",
        ),
        Option(
            "nested-key",
            "column list",
            column_names,
            None,
            "Fields that identify a struct of a nested_update; without them every struct is added.",
        ),
        Option(
            SEQUENCE_GROUP,
            "column list",
            column_names,
            None,
            "With merge-engine = partial-update: these columns take the values of the row with the highest value of "
            "the column (or columns, separated by commas) in the option's name.",
        ),
    )
}
"""Options of single columns, ``fields.<column>.<name>``."""
