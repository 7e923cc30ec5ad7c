"""Sets up the log of a long-running process: lines for people on standard error, or JSON lines on standard output.

A JSON line is one object. It has ``time`` (UTC, ISO 8601 with milliseconds), ``level`` (``debug``, ``info``,
``warning``, ``error``, ``critical``), ``logger`` and ``message``; ``error`` has the traceback if there is one. A
record adds fields of its own with `fields`: ``logger.info("…", extra=fields(table="shop.orders"))``.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

__all__ = ["LogFormat", "fields", "log_to"]

_FIELDS = "tablestore_fields"
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFormat(StrEnum):
    """The form of a process's log."""

    text = "text"
    json = "json"


def fields(**values: object) -> dict[str, Any]:
    """Returns the ``extra`` of a record whose JSON line has these fields; lines for people do not show them."""
    return {_FIELDS: values}


def log_to(log_format: str) -> None:
    """Makes this process log in that form, from warnings on, unless it has handlers of its own already.

    Args:
        log_format: ``text``: lines on standard error; ``json``: JSON lines on standard output, as orchestrators collect
            them.
    """
    as_json = log_format == LogFormat.json
    handler = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter(_TEXT))
    logging.basicConfig(handlers=[handler])
    logging.captureWarnings(as_json)


class _JsonLines(logging.Formatter):
    """Formats a record as one line; what cannot be JSON becomes text."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
