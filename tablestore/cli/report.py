"""Reports what a compactor does: as lines for people, or as records of a log in JSON."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from filestore.errors import TableStoreError
from filestore.process_log import LogFormat, fields, log_to
from tablestore.cli.output import complain, note, print_lines

if TYPE_CHECKING:
    from compaction.compactor import Outcome

__all__ = ["Report", "report_to"]

_logger = logging.getLogger("tablestore.compactor")


class Report(Protocol):
    """Gets what a compactor has done."""

    def outcome(self, outcome: Outcome) -> None:
        """Reports that a duty was done for a table, or failed there."""

    def failed(self, error: TableStoreError) -> None:
        """A round failed as a whole, such as without an answer of the catalog."""

    def note(self, text: str) -> None:
        """A remark for the operator."""


def report_to(log_format: LogFormat) -> Report:
    """Returns the report of this process, and makes it log in that form."""
    log_to(log_format)
    if log_format is LogFormat.text:
        return _Lines()
    _logger.setLevel(logging.INFO)
    return _Records()


class _Lines:
    def outcome(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            complain(outcome.error, f"{outcome.table} {outcome.duty}")
        else:
            print_lines([f"{outcome.table} {outcome.duty}: {outcome.done}"])

    def failed(self, error: TableStoreError) -> None:
        complain(error)

    def note(self, text: str) -> None:
        note(text)


class _Records:
    def outcome(self, outcome: Outcome) -> None:
        of = {"table": outcome.table, "duty": outcome.duty}
        if outcome.error is None:
            _logger.info("%s", outcome.done, extra=fields(**of))
            return
        level = logging.ERROR if outcome.failed else logging.INFO  # the next round repeats what lost a race
        _logger.log(level, "%s", outcome.error.message, extra=fields(**of, code=outcome.error.code))

    def failed(self, error: TableStoreError) -> None:
        _logger.error("%s", error.message, extra=fields(code=error.code))

    def note(self, text: str) -> None:
        _logger.info("%s", text)
