"""``compactor``: keeps all tables of a catalog, by schedule or once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from filestore.errors import TableStoreError
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Token
from tablestore.cli.opening import open_catalog
from tablestore.cli.output import complain, note, print_lines

if TYPE_CHECKING:
    from compaction.compactor import Compactor
    from compaction.duties import Duty

__all__ = ["compactor"]


def compactor(
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, and end: for cron.")] = False,
    databases: Annotated[
        list[str] | None, typer.Option("--database", "-d", help="Only this one; may be given several times.")
    ] = None,
    every: Annotated[
        float | None, typer.Option("--every", min=0.1, metavar="SECONDS", help="How often to look; default: 30.")
    ] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPRESSION", help="Instead: when to look, in UTC: '*/5 * * * *'.")
    ] = None,
    lease: Annotated[
        float,
        typer.Option(
            "--lease", min=1, max=3600, metavar="SECONDS", help="How long a table stays taken after a compactor died."
        ),
    ] = 60,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Compact the tables of a catalog whenever they need it, until Ctrl-C or SIGTERM.

    Several may run at once, on one machine or many: each table is taken by one at a time. One that is killed leaves
    nothing half done, and the others take over. With [bold]--once[/bold] the exit code is 1 if a table failed.
    """
    if sum((once, every is not None, cron is not None)) > 1:
        raise typer.BadParameter("give only one of --once, --every and --cron", param_hint="--once")
    # Here and not above: it brings Arrow, polars and SQL, and `--help` shall not wait for them.
    from compaction.compactor import Compactor
    from filestore.ambient import system_ambient
    from filestore.storage import LocalStorage

    with open_catalog(catalog, token) as opened:
        worker = Compactor(opened, LocalStorage(), system_ambient(), databases or (), lease)
        with _ending(worker.stopping):
            if once:
                _once(worker)
            else:
                _scheduled(worker, every, cron)


def _once(worker: Compactor) -> None:
    from compaction.duties import DUTIES
    from tablestore.log_duty import LOG

    failed = [_work(worker, duty) for duty in (*DUTIES, LOG)]
    if any(failed):
        raise typer.Exit(1)


def _scheduled(worker: Compactor, every: float | None, cron: str | None) -> None:
    from compaction.duties import DUTIES
    from compaction.schedule import cron_trigger, run_until
    from compaction.schedule import every as interval
    from filestore.ambient import system_ambient
    from tablestore.log_duty import LOG

    def work(duty: Duty) -> None:
        try:
            _work(worker, duty)
        except TableStoreError as error:  # such as a catalog that is away: the next time will tell
            complain(error)

    triggers = interval(system_ambient(), every) if cron is None else cron_trigger(cron)
    note("keeping tables; Ctrl-C ends it")
    run_until(worker.stopping, (*DUTIES, LOG), triggers, work)


def _work(worker: Compactor, duty: Duty) -> bool:
    """Does a duty for all tables; whether one failed."""
    failed = False
    for outcome in worker.run(duty):
        if outcome.error is not None:
            complain(outcome.error, f"{outcome.table} {outcome.duty}")
        else:
            print_lines([f"{outcome.table} {outcome.duty}: {outcome.done}"])
        failed |= outcome.failed
    return failed


@contextmanager
def _ending(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C let the table that is being worked on be finished; a second one does not wait."""
    kinds = (signal.SIGTERM, signal.SIGINT)

    def stop(_: int, __: FrameType | None) -> None:
        stopping.set()
        for kind in kinds:
            signal.signal(kind, before[kind])

    before = {kind: signal.getsignal(kind) for kind in kinds}
    for kind in kinds:
        signal.signal(kind, stop)
    try:
        yield
    finally:
        for kind in kinds:
            signal.signal(kind, before[kind])
