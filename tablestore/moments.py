"""Times that users hand over: one without a zone is taken as UTC, everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["in_utc", "milliseconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """The same moment in UTC."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Whole milliseconds since 1970 that have passed."""
    return (in_utc(moment) - _EPOCH) // timedelta(milliseconds=1)
