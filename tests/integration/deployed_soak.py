"""``python -m tests.integration.soak --s3``: a whole deployment under load, whose parts are killed in turn.

It is the deployment of ``deploy/compose.yaml`` on this machine: S3, PostgreSQL, Kafka, the catalog service, a
compactor, a Spark cluster of a master and two workers; and beside it a second compactor, two writers, a reader that
stores changes, and a Spark stream on the cluster that copies the table. Each is killed and started again. At the end
the table has what was written, the reader's changes lead to it exactly, the copy is the table, and the doctor finds
nothing.

What a writer writes is a function of a number, and each commit contains its number, so that a restarted one goes on
with the next. Its keys are its own. A stream that ends because S3 or a worker is away is started again, as a supervisor
would; so does a part of the deployment.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from rich.console import Console

import tablestore
from deploy.local.machine import Deployment, Part, deployed
from filestore.errors import CommitUnknown, Conflict, TableStoreError, Unavailable
from tablestore import Store, Table
from tests.integration import soak
from tests.servers.s3 import VersityServer
from tests.servers.system import die_with_the_parent
from tests.waiting import until

WRITERS = 2
TABLE, COPY = "soak.rows", "soak.copy"
PATIENCE_S = 600.0
OUTAGE_S = 3.0
AGAIN = (Unavailable, Conflict, CommitUnknown)
"""What a writer does not know, or lost: it writes the same number again, which changes nothing if it was written."""


# ------------------------------------------------------------------------------------------- who writes and reads


def opened() -> Store:
    """The store of the deployment whose variables this process has."""
    token = Path(os.environ["TABLESTORE_TOKEN_FILE"]).read_text().strip()
    return tablestore.connect(os.environ["TABLESTORE_CATALOG"], token)


def patiently(work: Callable[[], Table]) -> Table:
    """Returns the result once the deployment answers."""
    while True:
        with contextlib.suppress(Unavailable):
            return work()


def table_of(store: Store, name: str) -> Table:
    return patiently(lambda: store.table(name))


def batch(writer: int, number: int, rate: int) -> pl.DataFrame:
    """The changes of one commit, of keys that no other writer has."""
    changes = soak.batch(number * WRITERS + writer, rate)
    return changes.with_columns(id=pl.col("id") * WRITERS + writer)


def expected(batches: Mapping[int, int], rate: int) -> pl.DataFrame:
    """The table's rows after so many commits of each writer."""
    rows = []
    for writer, count in batches.items():
        if count:
            changes = pl.concat([batch(writer, number, rate) for number in range(count)])
            rows.append(
                changes.group_by("id", maintain_order=True).last().filter(pl.col("_kind") != "-D").drop("_kind")
            )
    return pl.concat(rows).sort("id")


def app(writer: int) -> str:
    return f"soak-{writer}"


def written(table: Table, writer: int) -> int:
    """How many commits of a writer the table has."""
    return table.filestore.state().app_versions.get(app(writer), -1) + 1


def write(writer: int, rate: int, stop: Path) -> None:
    """Commits once each second, until the file `stop` exists."""
    table = table_of(opened(), TABLE)
    while not stop.exists():
        began = time.monotonic()
        with contextlib.suppress(*AGAIN):
            number = written(table, writer)
            table.write(batch(writer, number, rate), app=(app(writer), number))
        time.sleep(max(0.0, began + 1.0 - time.monotonic()))


def read(kept: Path) -> None:
    """Stores changes as they arrive, until it is killed."""
    table = table_of(opened(), TABLE)
    while True:
        with contextlib.suppress(Unavailable):
            soak.follow(table, kept)


def copy(checkpoint: Path, archive: Path) -> None:
    """Copies the table by a stream on the cluster, until it is killed or the stream fails."""
    from tablestore.spark import SparkStore, spark_session

    store = opened()
    options = table_of(store, TABLE).filestore.storage.options()
    spark = spark_session(
        "soak",
        {"spark.ui.enabled": "false", "spark.executor.memory": "768m", "spark.driver.memory": "768m"},
        master=os.environ["SPARK_MASTER"],
        archive=archive,
        storage_options=options,
    )
    lake = SparkStore(spark, store)
    changes = lake.read_stream(TABLE, "full", mode="changelog", max_versions_per_batch=50)
    query = lake.write_stream(COPY, changes, checkpoint=checkpoint, trigger={"processingTime": "1 second"})
    query.awaitTermination()


# ------------------------------------------------------------------------------------------------ who is killed


@dataclass
class Player:
    """A process of ours that is killed and started again."""

    name: str
    arguments: list[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    ended: int = 0

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.integration.deployed_soak",
            self.name.partition("-")[0],
            *self.arguments,
        ]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_the_parent,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Ends it with all that it has started: a driver of Spark is two processes."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def revive(self) -> None:
        """Starts it again if it has ended."""
        assert self.process is not None
        if self.process.poll() not in (None, 0):
            self.ended += 1
            self.kill()
            self.start()


@dataclass
class Cast:
    """All that is killed, and how: a call kills it and starts it again."""

    deployment: Deployment
    players: dict[str, Player]
    kept: Path
    victims: dict[str, Callable[[], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        servers = self.deployment.servers
        assert servers.postgres is not None
        assert servers.kafka is not None
        assert servers.spark is not None
        for name, player in self.players.items():
            self.victims[name] = _both(player.kill, player.start)
        for name, part in self.deployment.parts.items():
            if part.service.check:
                self.victims[name] = _both(part.kill, part.start)
        postgres, kafka = servers.postgres, servers.kafka
        self.victims["postgres"] = _both(lambda: postgres.stop(signal.SIGQUIT), _away, postgres.start)
        self.victims["kafka"] = _both(kafka.kill, _away, kafka.restart)
        self.victims["s3"] = self._s3()
        master = servers.spark.master
        self.victims["master"] = _both(master.kill, _away, master.start)
        for number, worker in enumerate(servers.spark.workers):
            self.victims[f"worker-{number}"] = _both(worker.kill, _away, worker.start)
        self.victims["executor"] = self._kill_executor

    def _s3(self) -> Callable[[], None]:
        server = self.deployment.servers.s3
        if isinstance(server, VersityServer):
            return _both(server.kill, _away, server.restart)
        # moto keeps objects in memory: it stands still instead
        return _both(lambda: os.kill(server.pid, signal.SIGSTOP), _away, lambda: os.kill(server.pid, signal.SIGCONT))  # type: ignore[union-attr]

    def _kill_executor(self) -> None:
        assert self.deployment.servers.spark is not None
        for executor in self.deployment.servers.spark.executors()[:1]:
            with contextlib.suppress(Exception):
                executor.kill()

    def revive(self) -> None:
        """Starts what has ended by itself."""
        for player in self.players.values():
            player.revive()
        for part in self.deployment.parts.values():
            _revive(part)


def _both(*steps: Callable[[], object]) -> Callable[[], None]:
    def all_of_them() -> None:
        for step in steps:
            step()

    return all_of_them


def _away() -> None:
    """How long a part is away: outages are shorter and longer than the patience of clients' first attempts."""
    time.sleep(OUTAGE_S)


def _revive(part: Part) -> None:
    assert part.process is not None
    if part.service.check and part.process.poll() is not None:
        part.start()


# --------------------------------------------------------------------------------------------------- the soak


@dataclass(frozen=True, slots=True)
class Reported:
    """The result of a soak without errors.

    Attributes:
        deaths: How often each part was killed.
        commits: How many commits each writer made.
        kept: How many changes the reader stored.
        rows: How many rows table and copy have.
        restarts: How often the stream ended by itself and was started again.
    """

    deaths: Mapping[str, int]
    commits: Mapping[int, int]
    kept: int
    rows: int
    restarts: int


def run(folder: Path, seconds: float, rate: int, kill_every: float, say: Console) -> Reported:
    """Runs everything; an AssertionError says what went wrong.

    Args:
        folder: An empty folder, into which every user may look.
        seconds: How long the parts work in all; restarts are not counted.
        rate: Changes in a commit of each writer.
        kill_every: About so many seconds are between two deaths.
        say: The console to which each death is printed.
    """
    died: Counter[str] = Counter()
    settings = {"TABLESTORE_COMPACTOR_EVERY": "5"}
    with (
        deployed(folder, say=say.print, settings=settings) as deployment,
        _variables(deployment.environment),
        opened() as store,
    ):
        table = make(store)
        cast = _cast(deployment, folder, rate)
        try:
            for player in cast.players.values():
                player.start()
            for pause, victim in deaths(seconds, kill_every, sorted(cast.victims)):
                work(table, cast, pause)
                counts = ", ".join(str(written(table, writer)) for writer in range(WRITERS))
                say.print(f"commits {counts}; {len(soak.spans(cast.kept))} files; {victim} dies")
                died[victim] += 1
                cast.victims[victim]()
            (folder / "stop").touch()
            finish(table, store, cast, rate)
            reported = judge(table, store, cast, rate, died)
        finally:
            for player in cast.players.values():
                if player.process is not None:
                    player.kill()
    say.print(f"{reported}: none lost, none doubled")
    return reported


@contextlib.contextmanager
def _variables(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def make(store: Store) -> Table:
    store.create_database("soak")
    options = {
        "bucket": "2",
        "changelog-producer": "lookup",
        "snapshot.num-retained.min": "100000",
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": os.environ["TABLESTORE_KAFKA"],
    }
    table = store.create_table(TABLE, soak.COLUMNS, primary_key=["id"], options=options)
    store.create_table(COPY, soak.COLUMNS, primary_key=["id"], options={"bucket": "2", "log.system": "none"})
    assert isinstance(table, Table)
    return table


def _cast(deployment: Deployment, folder: Path, rate: int) -> Cast:
    from tablestore.spark import spark_archive

    kept, archive = folder / "kept", folder / "packages.tar"
    kept.mkdir()
    spark_archive(archive)
    environment = deployment.environment
    arguments = {f"writer-{writer}": [str(writer), str(rate), str(folder / "stop")] for writer in range(WRITERS)}
    arguments |= {"reader": [str(kept)], "copy": [str(folder / "checkpoint"), str(archive)], "compactor-2": []}
    players = {name: Player(name, given, environment, folder / f"{name}.log") for name, given in arguments.items()}
    return Cast(deployment, players, kept)


def deaths(seconds: float, every: float, names: list[str]) -> Iterator[tuple[float, str]]:
    """Yields the part to kill and the seconds before that, each part once before one dies again."""
    dice, left = random.Random(seconds), seconds
    for _ in itertools.count():
        for victim in dice.sample(names, len(names)):
            pause = min(every * (0.5 + dice.random()), left)
            if pause <= 0:
                return
            left -= pause
            yield pause, victim


def work(table: Table, cast: Cast, seconds: float) -> None:
    """Waits so long, and until all writers and the reader have made progress: a dead part must not stop the others."""
    before, files = _commits(table), len(soak.spans(cast.kept))

    def further() -> bool:
        cast.revive()
        now = _commits(table)
        return len(soak.spans(cast.kept)) > files and all(now[writer] > before[writer] for writer in before)

    time.sleep(seconds)
    until(_calmly(further), PATIENCE_S, "that writers and reader go on")


def _calmly(holds: Callable[[], bool]) -> Callable[[], bool]:
    """A condition that is asked a few times a second: it costs requests."""

    def asked() -> bool:
        time.sleep(0.25)
        return holds()

    return asked


def _commits(table: Table) -> dict[int, int]:
    while True:
        with contextlib.suppress(Unavailable):
            return {writer: written(table, writer) for writer in range(WRITERS)}


def finish(table: Table, store: Store, cast: Cast, rate: int) -> None:
    """Ends the writers, and waits until the reader and the copy have all of their commits."""
    for name, player in cast.players.items():
        if name.startswith("writer"):
            assert player.process is not None
            assert player.process.wait(PATIENCE_S) == 0, player.log.read_text()
    versions = [_committed(table, rate) for _ in range(2)]  # so that the reader knows that it has all of the first
    cast.deployment.servers.spark.wait()  # type: ignore[union-attr]

    def caught_up() -> bool:
        cast.revive()
        return bool(soak.spans(cast.kept)) and soak.spans(cast.kept)[-1][1] >= versions[0]

    until(_calmly(caught_up), PATIENCE_S, "that the reader has everything")
    wanted = _rows(table, versions[-1])

    def copied() -> bool:
        cast.revive()
        with contextlib.suppress(TableStoreError):
            return _rows(store.table(COPY)).equals(wanted)
        return False

    until(_calmly(copied), PATIENCE_S, "that the copy is the table")


def _committed(table: Table, rate: int) -> int:
    while True:
        with contextlib.suppress(*AGAIN):
            number = written(table, 0)
            return table.write(batch(0, number, rate), app=(app(0), number)).version


def _rows(table: Table, version: int | None = None) -> pl.DataFrame:
    rows = pl.from_arrow(table.scan(version=version).to_arrow())
    assert isinstance(rows, pl.DataFrame)
    return rows.sort("id")


def judge(table: Table, store: Store, cast: Cast, rate: int, died: Mapping[str, int]) -> Reported:
    commits = _commits(table)
    held = _rows(table)
    assert held.equals(expected(commits, rate)), "the table is not what was written"
    last = soak.spans(cast.kept)[-1][1]
    changes = soak.kept_changes(cast.kept)
    assert soak.exact(changes).equals(_rows(table, last)), "what the reader kept is not the table"
    assert _rows(store.table(COPY)).equals(held), "the copy is not the table"
    for name in (TABLE, COPY):
        problems = store.table(name).examine().problems
        assert not problems, problems
    for name, player in cast.players.items():
        assert name == "copy" or player.ended == 0, f"{name} ended by itself:\n{player.log.read_text()[-4000:]}"
    return Reported(dict(died), commits, len(changes), len(held), cast.players["copy"].ended)


def main() -> None:
    """A player's process."""
    name, *given = sys.argv[1:]
    if name == "writer":
        write(int(given[0]), int(given[1]), Path(given[2]))
    elif name == "reader":
        read(Path(given[0]))
    elif name == "copy":
        copy(Path(given[0]), Path(given[1]))
    else:
        from tablestore.cli import app as commands

        commands(["compactor", "--every", "5"])


if __name__ == "__main__":
    main()
