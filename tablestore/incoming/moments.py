"""Converts the times that users pass in; an object needs its time zone, a text without one is in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from filestore.errors import InvalidRequest

__all__ = ["in_utc", "milliseconds", "milliseconds_from", "parsed_moment"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """Returns the same moment in UTC.

    Raises:
        InvalidRequest: ``bad-time``: it has no time zone, or is before the year 1 or after the year 9999 in UTC.
    """
    if moment.tzinfo is None:
        raise InvalidRequest(
            f"the time {moment} has no time zone: give one, as datetime.now(UTC) or moment.replace(tzinfo=UTC)",
            code="bad-time",
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidRequest(f"the time {moment} is not within the years 1 to 9999 in UTC", code="bad-time") from error


def parsed_moment(text: str) -> datetime:
    """Parses a time from ISO 8601; a text without a zone is in UTC. `ValueError` if it is no time."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


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
