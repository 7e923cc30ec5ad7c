"""A real Kafka broker for tests: one KRaft node on the loopback interface, which dies with its parent.

    with KafkaBroker(folder) as broker:
        Producer(quiet(broker.bootstrap))
        broker.kill()       # ends it like a crash
        broker.restart()    # with the same data and address

A new broker answers after about 3 seconds and takes 200 MB. It dies when the thread that started it ends,
so start it in a thread that outlives its use.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from log.kafka import producers
from tablestore.jars import find_java, kafka_jars
from tests.servers.class_archive import KAFKA, archived
from tests.servers.system import Startable, die_with_the_parent, free_ports

START_SECONDS = 300.0  # machines may be busy
STOP_SECONDS = 60.0
BROKER = "kafka.Kafka"
NEVER_MS = 2_147_483_647
# On a busy machine a broker may send no heartbeat for seconds. Its controller then takes its partitions away from it.
NEVER_KILLED = {"broker.session.timeout.ms": "60000", "broker.heartbeat.interval.ms": "500"}
API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)  # key, version, correlation id, no client id


def quiet(servers: str) -> dict[str, Any]:
    """Returns settings of a client of librdkafka whose own log is silent.

    It would print each connection that it loses: also when the broker ends, long after the test that has used it.
    """
    return {"bootstrap.servers": servers, "log_level": "0"}


class KafkaBroker(Startable):
    """One node that is broker and controller; its folder holds the settings, the data and ``kafka.log``.

    Args:
        folder: An empty folder, or one of an earlier broker whose data is to be served again.
        settings: Server properties that add to, or replace, the ones below.
        scram: Users of SCRAM and their passwords, with both hashes; they are added when the folder is new.
        options: Options of the broker's JVM, instead of the archive of its classes.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        scram: Mapping[str, str] | None = None,
        options: Sequence[str] | None = None,
    ) -> None:
        self.folder = folder
        self.log = folder / "kafka.log"
        self._port, self._controller_port = free_ports(2)
        self._scram = dict(scram or {})
        self._options = archived(KAFKA) if options is None else options
        self._settings = self._base_settings() | dict(settings or {})
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """What clients take as ``bootstrap.servers``; it stays the same over restarts."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._running.pid if self._running else None

    def start(self) -> Self:
        """Formats the folder if it is new, starts, and waits until the broker answers."""
        if self._running is not None:
            raise RuntimeError(f"the broker at {self.bootstrap} runs already")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        if not (self._data / "meta.properties").exists():
            self._format()
        self._running = self._java(BROKER, str(self._properties))
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stops it cleanly; kills it if it does not end in time. Nothing happens if it is not running."""
        forget_producers()
        if self._running is None:
            return
        self._running.send_signal(signal.SIGTERM)
        try:
            self._running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        self._running = None

    def kill(self) -> None:
        """Ends it at once, as a crash would. Nothing happens if it is not running."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def restart(self) -> Self:
        """Starts it again on the same data and address; stops it first if it is running."""
        self.stop()
        return self.start()

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _base_settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._data),
            "auto.create.topics.enable": "false",
            # Open transactions never time out: the snapshot decides about them.
            "transaction.max.timeout.ms": str(NEVER_MS),
            # A restart after a kill waits for the old session's end.
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "200",
            # One node, and small coordinator topics, so that the first transaction and group start quickly.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
        }

    def _format(self) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        arguments = ["format", "--config", str(self._properties), "--cluster-id", cluster_id]
        for name, password in self._scram.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                arguments += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
        if self._java("kafka.tools.StorageTool", *arguments).wait(START_SECONDS) != 0:
            raise RuntimeError(f"Kafka could not format {self._data}:\n{self._last_lines()}")

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        class_path = os.pathsep.join(map(str, kafka_jars()))
        # the JVM's first compiler alone: a broker of tests ends before the second has paid for itself
        flags = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += self._options if main == BROKER else archived(KAFKA)
        logger = ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.logFile=System.err"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [str(find_java()), *flags, *logger, "-cp", class_path, main, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_the_parent,
            )

    def _wait_until_it_answers(self) -> None:
        assert self._running is not None
        until = time.monotonic() + START_SECONDS
        while not _answers(self._port):
            if self._running.poll() is not None:
                raise RuntimeError(f"Kafka ended with code {self._running.returncode}:\n{self._last_lines()}")
            if time.monotonic() > until:
                raise RuntimeError(f"Kafka did not answer in {START_SECONDS:.0f} s:\n{self._last_lines()}")
            time.sleep(0.05)

    def _last_lines(self, count: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def _answers(port: int) -> bool:
    """Whether a broker replies to ApiVersions without an error code."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
            reply = connection.recv(10)
    except OSError:
        return False
    return len(reply) == 10 and struct.unpack(">iih", reply)[1:] == (1, 0)


def forget_producers() -> None:
    """Closes the producers that this process keeps for later: they would try to reach a broker that has ended."""
    with producers._lock:
        producers._idle.clear()
