"""A standalone Spark cluster for tests: a master and its workers, real processes on the loopback interface.

    with SparkCluster(folder) as cluster:
        spark_session("tests", {"spark.master": cluster.url, **EXECUTORS})
        cluster.workers[0].kill()       # a host that is gone, with its executors
        cluster.workers[0].start()      # and comes back

A worker is as bare as a host can be on which only Spark is installed: it has an environment, a home and a working
folder of its own, its Python has no package, and pyspark's own modules come from the archive in `SPARK_HOME`.
Master and workers die with the thread that started them; an executor ends when its worker does.
``python -m tests.servers.spark_cluster`` starts a cluster on the terminal, and stops it at Ctrl-C.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from tablestore.jars import find_java
from tests.servers.spark import JVM
from tests.servers.system import Startable, die_with_the_parent, free_ports
from tests.waiting import until

__all__ = ["EXECUTORS", "SparkCluster", "SparkMaster", "SparkWorker"]

STOP_SECONDS = 60.0
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
DAEMON_JVM = ("-Xms32m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JVM,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""Settings of a session on such a cluster: small executors, and a driver on the loopback interface."""


class _Daemon(Startable):
    """A process of Spark's standalone mode."""

    main_class: str
    jvm: tuple[str, ...] = ()

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.folder = folder
        self._environment = dict(environment)
        self._running: subprocess.Popen[bytes] | None = None
        self.port, self.web_port = free_ports(2)

    @property
    def log(self) -> Path:
        """What the process has printed, in all of its runs."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._running.pid if self._running else None

    def start(self) -> Self:
        if self._running is not None:
            raise RuntimeError(f"{self.name} runs already")
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(find_java()), *DAEMON_JVM, *self.jvm, "-cp", str(_spark_home() / "jars" / "*")]
        command += [self.main_class, "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--webui-port", str(self.web_port)]
        with self.log.open("ab") as output:
            self._running = subprocess.Popen(
                command + self._arguments(),
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_the_parent,
            )
        return self

    def stop(self) -> None:
        """Stops it cleanly; kills it if it does not end in time. Nothing happens if it is not running."""
        if self._running is not None:
            self._running.send_signal(signal.SIGTERM)
            try:
                self._running.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._running.kill()
                self._running.wait()
            self._running = None

    def state(self) -> dict[str, object]:
        """What its page says; nothing as long as it does not answer."""
        assert self._running is None or self._running.poll() is None, f"{self.name} ended:\n{self.log.read_text()}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=30.0) as reply:
                answer: dict[str, object] = json.load(reply)
        except (OSError, json.JSONDecodeError):  # for a moment it answers anything with its page
            return {}
        return answer

    def _arguments(self) -> list[str]:
        return []


class SparkMaster(_Daemon):
    """A master that knows its workers and applications again after it was killed, as that of compose.yaml does."""

    main_class = "org.apache.spark.deploy.master.Master"

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__("master", folder, environment)
        self.jvm = (
            "-Dspark.master.rest.enabled=false",  # it would take a port that all masters share
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            f"-Dspark.deploy.recoveryDirectory={folder / 'recovery'}",
        )

    def kill(self) -> None:
        """Ends it at once. Workers and applications go on, and look for it at the same port."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None


class SparkWorker(_Daemon):
    """A worker, with the executors that it starts."""

    main_class = "org.apache.spark.deploy.worker.Worker"

    def __init__(self, number: int, cluster: SparkCluster) -> None:
        folder = cluster.folder / f"worker-{number}"
        home, bare = folder / "home", folder / "python"
        environment = {
            "PATH": f"{bare / 'bin'}:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "SPARK_HOME": str(_spark_home()),
            "SPARK_SCALA_VERSION": "2.13",  # Spark's scripts find it out, and a worker needs it for its executors
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            **cluster.environment,
        }
        super().__init__("worker", folder, environment)
        self._cluster = cluster
        self._home, self._bare = home, bare

    @property
    def work(self) -> Path:
        """The folder in which each application and executor has a folder, with ``stdout`` and ``stderr``."""
        return self.folder / "work"

    @property
    def local(self) -> Path:
        """What Spark and our tasks keep on the host's disk."""
        return self.folder / "local"

    def start(self) -> Self:
        """Starts it; the caller waits for its registration with `SparkCluster.wait`."""
        for folder in (self._home, self.local):
            folder.mkdir(parents=True, exist_ok=True)
        if not self._bare.exists():
            venv.create(self._bare, symlinks=True, with_pip=False)
        return super().start()

    def kill(self) -> None:
        """Ends it and all that it has started at once, as a host that is taken away, with its disk."""
        if self._running is None:
            return
        started = [psutil.Process(self._running.pid), *self._children()]
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._running.wait()
        psutil.wait_procs(started[1:], STOP_SECONDS)
        self._running = None
        for folder in (self.work, self.local):
            shutil.rmtree(folder, ignore_errors=True)

    def kill_executor(self, executor: psutil.Process) -> None:
        """Ends an executor's JVM at once. Its packages go, too: Spark keeps them, a gigabyte each, to the end."""
        packages = Path(executor.cwd()) / "tablestore-packages"
        with suppress(psutil.NoSuchProcess):
            executor.kill()
            executor.wait(STOP_SECONDS)
        # a Python process that outlives its executor may still write
        shutil.rmtree(packages, ignore_errors=True)
        with suppress(FileNotFoundError):  # other executors' folders come and go
            for fetched in self.local.rglob("*_cache"):  # executors have copied what they need of it
                fetched.unlink(missing_ok=True)

    def executors(self) -> list[psutil.Process]:
        """Its executors' JVMs that run now."""
        return [process for process in self._children() if EXECUTOR in _command(process)]

    def pythons(self) -> list[psutil.Process]:
        """The Python processes of its executors that run now: the daemons and what they have forked."""
        return [process for process in self._children() if "pyspark" in _command(process) and not _is_java(process)]

    def _children(self) -> list[psutil.Process]:
        try:
            return [] if self._running is None else psutil.Process(self._running.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _arguments(self) -> list[str]:
        limits = ["--cores", str(self._cluster.cores), "--memory", f"{self._cluster.memory_mb}m"]
        return [*limits, "--work-dir", str(self.work), self._cluster.url]


class SparkCluster(Startable):
    """A master and its workers.

    Args:
        folder: An empty folder for logs, working folders and temporary files.
        workers: How many workers there are.
        cores: How many tasks each of them takes at once.
        memory_mb: How much memory each of them gives to executors.
        environment: Variables that each worker has besides, as a host's administrator would set them.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        cores: int = 1,
        memory_mb: int = 1024,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.cores = cores
        self.memory_mb = memory_mb
        self.environment = dict(environment or {})
        own = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "SPARK_LOCAL_IP": "127.0.0.1"}
        self.master = SparkMaster(folder / "master", own)
        self.workers = [SparkWorker(number, self) for number in range(workers)]

    @property
    def url(self) -> str:
        """What a session takes as ``spark.master``."""
        return f"spark://127.0.0.1:{self.master.port}"

    def start(self) -> Self:
        """Starts all, and waits until the workers are registered."""
        try:
            self.master.start()
            # a worker that finds no master tries again after seconds only
            until(self.master.state, what=f"the master answers; its log is {self.master.log}")
            for worker in self.workers:
                worker.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def wait(self) -> None:
        """Waits until the master knows of all workers that run, and of no others."""
        until(self._complete, what=f"all workers are registered; the master's log is {self.master.log}")

    def stop(self) -> None:
        """Stops all. Nothing happens to what is not running."""
        for daemon in (*self.workers, self.master):
            daemon.stop()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of all executors that run now."""
        return [process for worker in self.workers for process in worker.executors()]

    def pythons(self) -> list[psutil.Process]:
        """The Python processes of all executors that run now."""
        return [process for worker in self.workers for process in worker.pythons()]

    def logs(self) -> Iterator[Path]:
        """All that master, workers and executors have printed."""
        yield self.master.log
        for worker in self.workers:
            yield worker.log
            yield from (path for name in ("stdout", "stderr") for path in worker.work.glob(f"*/*/{name}"))

    def _complete(self) -> bool:
        running = {worker.port for worker in self.workers if worker.pid is not None}
        known = self.master.state().get("workers", [])
        assert isinstance(known, list)
        return {worker["port"] for worker in known if worker["state"] == "ALIVE"} == running


def _spark_home() -> Path:
    import pyspark  # imported here: it takes long, and only what starts a cluster needs it

    return Path(pyspark.__file__).parent


def _command(process: psutil.Process) -> str:
    """A process's command line; nothing if it has just ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def _is_java(process: psutil.Process) -> bool:
    return EXECUTOR in _command(process)


def main() -> int:
    """Runs a cluster until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="tablestore-cluster-") as folder, SparkCluster(Path(folder)) as cluster:
        print(f"{cluster.url}; pages: http://127.0.0.1:{cluster.master.web_port}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
