"""The command ``compactor`` as a program that is started, stopped and killed."""

from __future__ import annotations

import json
import logging
import re
import signal
from collections.abc import Callable

import httpx
import polars as pl
import pytest

from compaction.compact import plan_compaction
from compaction.compactor import Outcome
from filestore.errors import Conflict, TableStoreError, Unavailable
from filestore.process_log import LogFormat
from tablestore import Store, Table
from tablestore.cli.report import report_to
from tests.cli.conftest import Run
from tests.cli.programs import Program
from tests.depth import sampled
from tests.waiting import until

Start = Callable[..., Program]


def wear(table: Table) -> None:
    for v in range(5):
        table.write(pl.DataFrame({"id": range(v, 50), "status": [str(v)] * (50 - v)}))


def due(table: Table) -> bool:
    return bool(plan_compaction(table.filestore.state()))


@pytest.mark.slow
def test_once_does_what_is_due_and_ends(run: Run, orders: Table) -> None:
    wear(orders)
    done = run("compactor", "--once")
    assert done.exit_code == 0
    assert done.stdout.startswith("shop.orders compaction: version 6: ")
    assert not due(orders)
    again = run("compactor", "--once", "--database", "shop")
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr.startswith("nothing was due: there was no work for fold, compaction, ")


@pytest.mark.slow
def test_once_reports_a_table_that_failed(run: Run, orders: Table, store: Store) -> None:
    wear(orders)
    other = store.create_table("shop.others", "id BIGINT, status STRING", primary_key=["id"])
    wear(other)
    victim = plan_compaction(orders.filestore.state())[0].files[0]
    orders.filestore.storage.delete(f"{orders.location}/{victim.path}")
    done = run("compactor", "--once")
    assert done.exit_code == 1
    assert victim.path in done.stderr.replace("\n", "")
    assert done.stderr.startswith("shop.orders compaction: error[")
    assert done.stdout.startswith("shop.others compaction: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--once", "--every", "5"), 2),
        (("--once", "--metrics-port", "0"), 2),
        (("--cron", "often"), 1),
        (("--once", "--database", "nowhere"), 1),
        (("--once", "--catalog", "no/such/folder"), 1),
    ],
    ids=["two schedules", "metrics of nobody", "not a cron", "no database", "no warehouse"],
)
def test_bad_arguments_are_one_line(run: Run, orders: Table, arguments: tuple[str, ...], code: int) -> None:
    result = run("compactor", *arguments)
    assert result.exit_code == code
    assert "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled([signal.SIGTERM, signal.SIGINT], 2, test=2))
def test_it_runs_until_a_signal_ends_it(start: Start, orders: Table, kind: signal.Signals) -> None:
    program = start("compactor", "--every", "0.2", "--metrics-port", "0")
    program.err.until_any("maintaining tables")
    (url,) = re.findall(r"metrics at (http://127.0.0.1:\d+/metrics)", "\n".join(program.err.lines))
    for _ in range(2):
        wear(orders)
        until(lambda: not due(orders), what="the compaction")
    program.out.until_any("shop.orders compaction: version ")
    until(
        lambda: (
            'duties_total{duty="compaction",outcome="done",table="shop.orders"} '
            in httpx.get(url, trust_env=False).text
        )
    )
    until(lambda: 'tablestore_log_end_offset{bucket="0",table="shop.orders"} ' in httpx.get(url, trust_env=False).text)
    program.process.send_signal(kind)
    assert program.wait() == 0
    assert not [line for line in program.err.lines if "error" in line or "Traceback" in line]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in program.err.lines if line)


@pytest.mark.deep
@pytest.mark.timeout(60)
@pytest.mark.slow
def test_after_a_kill_another_goes_on(start: Start, orders: Table) -> None:
    first = start("compactor", "--every", "0.1", "--lease", "1")
    first.err.until_any("maintaining tables")
    first.process.kill()
    wear(orders)
    start("compactor", "--cron", "* * * * *")
    second = start("compactor", "--every", "0.1", "--lease", "1")
    until(lambda: not due(orders), what="the compaction")
    second.out.until_any("shop.orders compaction")
    assert not orders.examine().problems


@pytest.mark.deep
@pytest.mark.slow
def test_settings_of_the_environment_and_a_log_in_json(store: Store, orders: Table) -> None:
    wear(orders)
    settings = {
        "TABLESTORE_CATALOG": store.target,
        "TABLESTORE_COMPACTOR_EVERY": "0.2",
        "TABLESTORE_COMPACTOR_DATABASES": "shop",
        "TABLESTORE_METRICS_PORT": "0",
        "TABLESTORE_LOG_FORMAT": "json",
    }
    with Program(["compactor"], **settings) as program:
        done = json.loads(program.out.until_any('"duty": "compaction"'))
        program.process.send_signal(signal.SIGTERM)
        assert program.wait() == 0
    assert {k: done[k] for k in ("level", "logger", "table", "duty")} == {
        "level": "info",
        "logger": "tablestore.compactor",
        "table": "shop.orders",
        "duty": "compaction",
    }
    messages = [json.loads(line)["message"] for line in program.out.lines]
    assert any(message.startswith("metrics at http://127.0.0.1:") for message in messages)
    assert program.err.lines == []


@pytest.mark.slow
def test_a_table_that_failed_is_a_record_with_its_code(store: Store, orders: Table) -> None:
    wear(orders)
    victim = plan_compaction(orders.filestore.state())[0].files[0]
    orders.filestore.storage.delete(f"{orders.location}/{victim.path}")
    with Program(["compactor", "--once", "--log-format", "json"], TABLESTORE_CATALOG=store.target) as program:
        assert program.wait() == 1
    (failed,) = [line for line in map(json.loads, program.out.lines) if line["level"] == "error"]
    assert failed["table"] == "shop.orders"
    assert failed["duty"] == "compaction"
    assert failed["code"]
    assert victim.path in failed["message"]


@pytest.mark.parametrize(
    ("error", "level"), [(Conflict("another was faster"), logging.INFO), (Unavailable("no answer"), logging.ERROR)]
)
def test_a_lost_race_is_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture, error: TableStoreError, level: int
) -> None:
    report_to(LogFormat.json).outcome(Outcome("shop.orders", "compaction", error=error))
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (level, error.message)
