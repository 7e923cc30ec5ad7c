"""Converts the times that users pass in; a time without a zone is taken as UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from filestore.errors import InvalidRequest

__all__ = ["in_utc", "milliseconds", "milliseconds_from"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """Returns the same moment in UTC.

    Raises:
        InvalidRequest: ``bad-time``: it is before the year 1 or after the year 9999 there.
    """
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError as error:
        raise InvalidRequest(f"the time {moment} is not within the years 1 to 9999 in UTC", code="bad-time") from error


def milliseconds(moment: datetime) -> int:
    """Returns the last whole millisecond since 1970 at or before that time.

    What was committed until then has this one or a lower one.
    """
    return (in_utc(moment) - _EPOCH) // timedelta(milliseconds=1)


def milliseconds_from(moment: datetime) -> int:
    """Returns the first whole millisecond since 1970 at or after that time.

    Commits and messages have whole milliseconds: those since that time have this one or a higher one.
    """
    return -((_EPOCH - in_utc(moment)) // timedelta(milliseconds=1))
