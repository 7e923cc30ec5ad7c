"""A moment with a time zone is a TIMESTAMP, one without is a TIMESTAMP_NTZ; neither is taken for the other.

Arrow casts between them as if a time without a zone were UTC. Python means the local time by it, pandas and polars mean
whatever the program does, and `datetime.now()` of a machine elsewhere would be stored hours away. JSON and CSV are read
by this rule, too (log/connector/FORMATS.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from filestore.errors import InvalidRequest

__all__ = ["check_zones", "differ_in_zone", "zone_advice"]


def differ_in_zone(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether exactly one of two timestamp types has a time zone; False for other types."""
    return pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted) and (given.tz is None) != (wanted.tz is None)


def zone_advice(wanted: pa.DataType) -> str:
    """Returns what to do with moments that have no zone where the type `wanted` needs one, or the other way round."""
    if wanted.tz is None:
        return (
            "a TIMESTAMP_NTZ has no time zone, so choose the zone whose clock is meant and drop it: "
            "moment.astimezone(zone).replace(tzinfo=None), or dt.tz_convert(zone).dt.tz_localize(None) in pandas, "
            "dt.convert_time_zone(zone) and dt.replace_time_zone(None) in polars"
        )
    return (
        "a TIMESTAMP needs a time zone, so give one: datetime.now(UTC), moment.replace(tzinfo=UTC) or another zone, "
        "dt.tz_localize(zone) in pandas, dt.replace_time_zone(zone) in polars, pyarrow.compute.assume_timezone"
    )


def check_zones(values: Iterable[Any], kind: pa.DataType, path: str) -> None:
    """Checks Python values at any depth: Arrow makes one type of those with and without a zone, and moves the latter.

    Args:
        values: The values of a column or a field; what is no value of the type is left to `fit`.
        kind: The table's type.
        path: Its name in errors.

    Raises:
        InvalidRequest: ``bad-value``.
    """
    if not _holds_moments(kind):
        return
    if pa.types.is_timestamp(kind):
        for value in values:
            if isinstance(value, datetime) and (value.tzinfo is None) != (kind.tz is None):
                raise InvalidRequest(f"{path!r} has the value {value}: {zone_advice(kind)}", code="bad-value")
    elif pa.types.is_struct(kind):
        structs = [value for value in values if isinstance(value, Mapping)]
        for field in kind:
            check_zones((struct.get(field.name) for struct in structs), field.type, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        pairs = [pair for value in values if value is not None for pair in _pairs(value)]
        check_zones((pair[0] for pair in pairs), kind.key_type, f"{path}.key")
        check_zones((pair[1] for pair in pairs), kind.item_type, f"{path}.value")
    else:
        lists = (value for value in values if isinstance(value, Iterable) and not isinstance(value, str | bytes))
        check_zones((element for value in lists for element in value), kind.value_type, f"{path}.element")


def _holds_moments(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or any(_holds_moments(kind.field(at).type) for at in range(kind.num_fields))


def _pairs(value: Any) -> Iterable[Any]:
    found = value.items() if isinstance(value, Mapping) else value
    return [pair for pair in found if isinstance(pair, tuple | list) and len(pair) == 2] if found else []
