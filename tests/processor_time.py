"""Which tests take the processor's time: ``make test ARGS="-p tests.processor_time"``.

A test that waits for a server takes long and costs little, and one that starts a JVM the other way round. So a run that
shall end sooner has to be cut by the processor's time: that of the test's process and of all processes below it, such
as a Spark session or a broker. What a server does in the background counts for the test that runs at that time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOWN = 60
_KEY = "processor_s"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_seconds: Counter[str] = Counter()
_before = pytest.StashKey[float]()


def _processes() -> dict[int, tuple[int, int]]:
    """Of each process its parent, and the ticks that it and its ended children have taken (`man 5 proc_pid_stat`)."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        found[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return found


def _taken() -> float:
    """The processor's time of this process and of all below it, in seconds."""
    found = _processes()
    children: dict[int, list[int]] = {}
    for process, (parent, _) in found.items():
        children.setdefault(parent, []).append(process)
    below, total = [os.getpid()], 0
    while below:
        process = below.pop()
        total += found[process][1] if process in found else 0
        below += children.get(process, [])
    return total / _TICKS_PER_S


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    item.stash[_before] = _taken()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    if call.when == "teardown":
        report.user_properties.append((_KEY, max(0.0, _taken() - item.stash[_before])))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == _KEY and report.when == "teardown":
            assert isinstance(value, float)
            _seconds[report.nodeid] += value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: Counter[str] = Counter()
    for test, seconds in _seconds.items():
        files[test.partition("::")[0]] += seconds
    terminalreporter.section(f"processor time: {sum(files.values()) / 60:.1f} minutes")
    for title, found in (("files", files), ("tests", _seconds)):
        terminalreporter.write_line(f"{title} that take most, in seconds:")
        for name, seconds in found.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:8.1f}  {name}")
