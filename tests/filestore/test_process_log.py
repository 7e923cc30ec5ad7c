"""Logs as JSON lines: one object for each record, whatever its text is."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

from filestore.process_log import _JsonLines, fields
from tests.cli.programs import ROOT


def line_of(message: str, *arguments: object, level: int = logging.INFO, **more: object) -> str:
    extra = fields(**more)
    record = logging.LogRecord("a.b", level, __file__, 1, message, arguments, None)
    record.created = 1_700_000_000.0625
    record.__dict__.update(extra)
    return _JsonLines().format(record)


def test_a_record_is_one_object_with_its_fields() -> None:
    assert json.loads(line_of("%d of %s", 1, "x", level=logging.WARNING, table="shop.orders", rows=3)) == {
        "time": "2023-11-14T22:13:20.062+00:00",
        "level": "warning",
        "logger": "a.b",
        "message": "1 of x",
        "table": "shop.orders",
        "rows": 3,
    }


def test_a_line_break_does_not_end_the_line() -> None:
    line = line_of('a\nb "c" \u2028 ü', path="/x\r\n{}")
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(line)["message"] == 'a\nb "c" \u2028 ü'


def test_what_json_does_not_know_is_a_text() -> None:
    assert json.loads(line_of("x", kind=logging.Logger))["kind"].startswith("<class")


def test_a_process_logs_to_one_stream_only() -> None:
    code = (
        "import logging, sys, warnings\nfrom filestore.process_log import log_to\nlog_to(sys.argv[1])\n"
        "logging.getLogger('x').info('quiet')\nwarnings.warn('old')\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.getLogger('x').exception('failed')\n"
    )

    def run(form: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, form], cwd=ROOT, capture_output=True, text=True, check=True)

    as_json = run("json")
    lines = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert [(line["level"], line["logger"]) for line in lines] == [("warning", "py.warnings"), ("error", "x")]
    assert lines[1]["error"].endswith("ZeroDivisionError: division by zero")
    assert as_json.stderr == ""
    as_text = run("text")
    assert as_text.stdout == ""
    assert "ERROR x: failed" in as_text.stderr
    assert "quiet" not in as_text.stderr
