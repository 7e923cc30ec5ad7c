"""Schedules a compactor's duties: each by its own interval, or all by one, or by a cron expression (APScheduler)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from compaction.duties import Duty
from filestore.ambient import Ambient
from filestore.errors import InvalidRequest

__all__ = ["cron_trigger", "every", "run_until"]

_JITTER = 0.1
"""The share of an interval by which compactors that were started together drift apart."""

Triggers = Callable[[Duty], BaseTrigger]


def every(ambient: Ambient, seconds: float | None = None) -> Triggers:
    """Triggers at once, and then every so many seconds; by each duty's own interval if None."""
    start = datetime.fromtimestamp(ambient.now_ms() / 1000, UTC)

    def trigger(duty: Duty) -> BaseTrigger:
        interval = seconds or duty.every_s
        return IntervalTrigger(seconds=interval, start_date=start, timezone=UTC, jitter=interval * _JITTER)

    return trigger


def cron_trigger(expression: str) -> Triggers:
    """Triggers by a cron expression of five fields, in UTC.

    Raises:
        InvalidRequest: ``bad-cron``.
    """
    try:
        trigger = CronTrigger.from_crontab(expression, timezone=UTC)
    except ValueError as error:
        raise InvalidRequest(
            f"{expression!r} is not a cron expression ({error}): write five fields, as in '*/5 * * * *'",
            code="bad-cron",
        ) from error
    return lambda duty: trigger


def run_until(stop: threading.Event, duties: Sequence[Duty], triggers: Triggers, work: Callable[[Duty], None]) -> None:
    """Performs duties at their times, one after the other, until the event is set and the running one is done.

    A duty that takes longer than its interval is performed once, and not for each time that it missed.
    """
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
    )
    # APScheduler would log a warning for each time that is missed because of running work
    logging.getLogger("apscheduler.scheduler").setLevel(logging.ERROR)
    for duty in duties:
        scheduler.add_job(work, triggers(duty), args=(duty,), id=duty.name)
    scheduler.start()
    try:
        stop.wait()
    finally:
        scheduler.shutdown(wait=True)
