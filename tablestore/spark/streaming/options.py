"""The options of ``spark.readStream.format("tablestore")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from filestore.errors import InvalidRequest
from tablestore.following.gaps import OnLogGap, on_log_gap
from tablestore.following.result_mode import ResultMode, result_mode
from tablestore.following.starting import StartOptions
from tablestore.incoming.moments import parsed_moment

__all__ = ["STREAM_OPTIONS", "StreamOptions", "whole_option"]

STREAM_OPTIONS = (
    "scan",
    "timestamp",
    "version",
    "tag",
    "mode",
    "maxRowsPerBatch",
    "maxVersionsPerBatch",
    "consumerId",
    "onLogGap",
    "log.scan",
    "log.scan.timestamp-millis",
)
"""All options, as they are spelled. The last two are those of the table, in the place of scan and timestamp."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream.

    Attributes:
        start: ``scan`` (or ``log.scan``), ``timestamp``, ``version``, ``tag``: where it begins.
        mode: ``mode``: whether an update is one row or two.
        max_rows: ``maxRowsPerBatch``: the most rows of a micro-batch.
        max_versions: ``maxVersionsPerBatch``: the most versions of a micro-batch.
        consumer: ``consumerId``: the id under which the table keeps the stream's position.
        on_log_gap: ``onLogGap``: what to do if changes are gone.
    """

    start: StartOptions
    mode: ResultMode
    max_rows: int | None
    max_versions: int | None
    consumer: str | None
    on_log_gap: OnLogGap

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parses Spark's options; the case of their names does not matter.

        Raises:
            InvalidRequest: ``bad-option-value``, ``bad-scan-mode``, ``bad-time-travel``, ``bad-result-mode``,
                ``bad-on-log-gap``.
        """
        given = _with_scan({name.lower(): value for name, value in options.items()})
        start = StartOptions(
            given.get("scan"),
            _moment(given.get("timestamp")),
            whole_option(given, "version", least=0),
            given.get("tag"),
        )
        start.check()
        return cls(
            start,
            result_mode(given.get("mode", str(ResultMode.UPSERT))),
            whole_option(given, "maxRowsPerBatch", least=1),
            whole_option(given, "maxVersionsPerBatch", least=1),
            given.get("consumerid"),
            on_log_gap(given.get("onloggap", str(OnLogGap.FAIL))),
        )


def _with_scan(given: Mapping[str, str]) -> Mapping[str, str]:
    """Adds what ``log.scan`` and ``log.scan.timestamp-millis`` say as ``scan`` and ``timestamp``."""
    millis = whole_option(given, "log.scan.timestamp-millis", least=0)
    try:
        timestamp = None if millis is None else (_EPOCH + timedelta(milliseconds=millis)).isoformat()
    except OverflowError as error:
        raise InvalidRequest(
            f"log.scan.timestamp-millis={millis} is beyond the year 9999", code="bad-option-value"
        ) from error
    of_table = {"scan": given.get("log.scan"), "timestamp": timestamp}
    added = {name: value for name, value in of_table.items() if value is not None}
    if twice := sorted(added.keys() & given.keys()):
        raise InvalidRequest(
            f"{twice[0]} is given twice, also by an option that begins with log.scan: leave one of them out",
            code="bad-option-value",
        )
    return {**given, **added}


def whole_option(given: Mapping[str, str], name: str, *, least: int) -> int | None:
    """The value of an option that is a number; None if it is not given.

    Args:
        given: By names in lower case.
        name: As it is spelled.
        least: The smallest that it may be, 0 or 1.

    Raises:
        InvalidRequest: ``bad-option-value``.
    """
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        above = "above zero" if least else "of 0 or more"
        raise InvalidRequest(f"{name}={text!r} is not a whole number {above}", code="bad-option-value")
    return int(text)


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else parsed_moment(text)
    except ValueError as error:
        raise InvalidRequest(
            f"timestamp={text!r} is not ISO 8601, such as 2026-01-31T12:00:00Z", code="bad-option-value"
        ) from error
