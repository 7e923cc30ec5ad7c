"""The command ``compactor``: maintains all tables of a catalog, by schedule or once."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from filestore.errors import TableStoreError
from filestore.process_log import LogFormat
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, LogFormatOption, Token
from tablestore.cli.opening import open_catalog, storage_settings
from tablestore.cli.output import timed
from tablestore.cli.report import Report, report_to
from tablestore.cli.signals import ending

if TYPE_CHECKING:
    from compaction.compactor import Compactor
    from compaction.duties import Duty
    from filestore.metrics.registry import Metrics

__all__ = ["compactor"]


_Once = Annotated[bool, typer.Option("--once", help="Do what is due now, and exit: for cron.")]
_Databases = Annotated[
    list[str] | None,
    typer.Option(
        "--database",
        "-d",
        envvar="TABLESTORE_COMPACTOR_DATABASES",
        help="Only the tables of this database; may be repeated.",
    ),
]
_Every = Annotated[
    float | None,
    typer.Option(
        "--every",
        envvar="TABLESTORE_COMPACTOR_EVERY",
        min=0.1,
        metavar="SECONDS",
        help="How often to check; default: each duty's own interval, 30 to 600.",
    ),
]
_Cron = Annotated[
    str | None,
    typer.Option(
        "--cron",
        envvar="TABLESTORE_COMPACTOR_CRON",
        metavar="EXPRESSION",
        help="When to check instead, in UTC: '*/5 * * * *'.",
    ),
]
_Lease = Annotated[
    float,
    typer.Option(
        "--lease",
        envvar="TABLESTORE_COMPACTOR_LEASE",
        min=1,
        max=3600,
        metavar="SECONDS",
        help="When a table is free again after its compactor died.",
    ),
]
_MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        envvar="TABLESTORE_METRICS_PORT",
        min=0,
        max=65535,
        metavar="PORT",
        help="Serve /metrics there; 0: any free one.",
    ),
]
_MetricsHost = Annotated[
    str,
    typer.Option(
        "--metrics-host", envvar="TABLESTORE_METRICS_HOST", metavar="HOST", help="The address for --metrics-port."
    ),
]


def compactor(  # noqa: PLR0913  # what can be chosen are its arguments
    once: _Once = False,
    databases: _Databases = None,
    every: _Every = None,
    cron: _Cron = None,
    lease: _Lease = 60,
    metrics_port: _MetricsPort = None,
    metrics_host: _MetricsHost = "127.0.0.1",
    log_format: LogFormatOption = LogFormat.text,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Compact the tables of a catalog whenever they need it, until Ctrl-C or SIGTERM.

    Several may run at once, on one machine or many: only one works on a table at a time. One that is killed leaves
    nothing half done, and the others take over. With [bold]--once[/bold] the exit code is 1 if a table failed.
    """
    if sum((once, every is not None, cron is not None)) > 1:
        raise typer.BadParameter("pass only one of --once, --every and --cron", param_hint="--once")
    if once and metrics_port is not None:
        raise typer.BadParameter("with --once no scraper could read them", param_hint="--metrics-port")
    # imported here because Arrow, polars and SQL load slowly, and `--help` should not wait for them
    from compaction.compactor import Compactor
    from filestore.ambient import system_ambient
    from filestore.metrics.meter import NO_METER
    from filestore.metrics.registry import Metrics
    from filestore.storage.locations import Storages

    report = report_to(log_format)
    metrics = None if metrics_port is None else Metrics()
    with open_catalog(catalog, token) as opened:
        storages, meter = Storages(storage_settings()), metrics or NO_METER
        worker = Compactor(opened, storages, system_ambient(), databases or (), lease, meter)
        duties = _duties(once=once)
        # On a signal the work on the current table is finished. Whoever finds it ready by its metrics may send one.
        with (
            ending(worker.stopping, (signal.SIGTERM, signal.SIGINT)),
            nullcontext() if once else timed(system_ambient().now_ms),
            _serving(metrics, metrics_port, metrics_host, report),
        ):
            if once:
                _once(worker, duties, report)
            else:
                _scheduled(worker, duties, every, cron, report)


def _duties(*, once: bool) -> Sequence[Duty]:
    from compaction.duties import DUTIES
    from tablestore.logcare.duty import LOG, LOG_ONCE

    return (*DUTIES, LOG_ONCE if once else LOG)


@contextmanager
def _serving(metrics: Metrics | None, port: int | None, host: str, report: Report) -> Iterator[None]:
    if metrics is None or port is None:
        yield
        return
    from tablestore.metrics.server import serving_metrics

    with serving_metrics(metrics, port, host) as url:
        report.note(f"metrics at {url}")
        yield


def _once(worker: Compactor, duties: Sequence[Duty], report: Report) -> None:
    worked = [_work(worker, duty, report) for duty in duties]
    if not any(done for done, _ in worked):
        report.note(f"nothing was due: there was no work for {', '.join(duty.name for duty in duties)}")
    if any(failed for _, failed in worked):
        raise typer.Exit(1)


def _scheduled(
    worker: Compactor, duties: Sequence[Duty], every: float | None, cron: str | None, report: Report
) -> None:
    from compaction.schedule import cron_trigger, run_until
    from compaction.schedule import every as interval
    from filestore.ambient import system_ambient

    def work(duty: Duty) -> None:
        try:
            _work(worker, duty, report)
        except TableStoreError as error:  # such as a catalog that does not answer: the next round tries again
            report.failed(error)

    triggers = interval(system_ambient(), every) if cron is None else cron_trigger(cron)
    report.note("maintaining tables; Ctrl-C stops it")
    run_until(worker.stopping, duties, triggers, work)


def _work(worker: Compactor, duty: Duty, report: Report) -> tuple[int, bool]:
    """Performs a duty for all tables; returns the number of tables with a result or an error, and if one failed."""
    tables, failed = 0, False
    for outcome in worker.run(duty):
        tables += 1
        report.outcome(outcome)
        failed |= outcome.failed
    return tables, failed
