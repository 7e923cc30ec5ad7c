"""Starts the parts of a deployment in order, waits for their health, and stops what it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.description import LOOPBACK, Service, in_order, left_out, on_this_machine, read
from deploy.local.servers import SERVED, Servers
from tests.servers.system import die_with_the_parent, free_ports
from tests.waiting import until

__all__ = ["Deployment", "PartEnded", "deployed"]

ROOT = Path(__file__).parents[2]
HEALTHY_S = 300.0  # machines may be busy
_KEPT = ("PATH", "HOME", "LANG", "JAVA_HOME", "TABLESTORE_CACHE", "XDG_CACHE_HOME", "TMPDIR")
"""The variables of this machine that parts get: others could be settings of another deployment."""


class PartEnded(Exception):
    """A part has ended that should run, or failed; the text says where its log is."""


@dataclass
class Part:
    """A process of one of our services.

    Attributes:
        service: What runs.
        log: What it prints.
        environment: Its variables.
        process: The last process of it.
    """

    service: Service
    log: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it is healthy; if others wait for its end, until then."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.service.command,
                cwd=self.log.parent,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us, who stop the parts in their order
                preexec_fn=die_with_the_parent,
            )
        if self.service.done_before:
            self._finish()
        elif self.service.check:
            until(self.healthy, HEALTHY_S, f"{self.service.name} is healthy; its log is {self.log}")

    def healthy(self) -> bool:
        """Whether its health check passes.

        Raises:
            PartEnded: It does not run.
        """
        assert self.process is not None
        if self.process.poll() is not None:
            raise PartEnded(self._ended(self.process.returncode))
        checked = subprocess.run(
            self.service.check, env=self.environment, capture_output=True, check=False, timeout=HEALTHY_S
        )
        return checked.returncode == 0

    def stop(self) -> int:
        """Stops it as an orchestrator does: SIGTERM, and SIGKILL when its time is over. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(self.service.stop_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Ends it at once, as a host that is gone."""
        assert self.process is not None
        self.process.kill()
        return self.process.wait()

    def _finish(self) -> None:
        assert self.process is not None
        if (code := self.process.wait(HEALTHY_S)) != 0:
            raise PartEnded(self._ended(code))

    def _ended(self, code: int) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-5:]
        return "\n".join([f"{self.service.name} ended with code {code}; its log is {self.log}:", *lines])


class Deployment:
    """A deployment that runs on this machine.

    Attributes:
        servers: PostgreSQL, S3, Kafka, Spark.
        parts: The processes of our own services, by the service's name.
        environment: The variables with which a command on this machine uses it.
    """

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.parts: dict[str, Part] = {}
        self.environment: dict[str, str] = {}

    def run(self, command: Sequence[str]) -> int:
        """Runs a command with the deployment's settings, and returns its exit code; Ctrl-C ends it first."""
        with subprocess.Popen(command, env=_clean() | self.environment) as process:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:  # the terminal sends it to the command, too
                    continue


@contextmanager
def deployed(
    folder: Path,
    without: Sequence[str] = (),
    *,
    say: Callable[[str], None] = lambda _: None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Deployment]:
    """Starts the deployment of ``deploy/compose.yaml``, and stops it at the end of the block.

    Args:
        folder: An empty folder for logs, secrets and data of the servers.
        without: Services to leave out, with those that nothing else needs.
        say: Gets a line for each part.
        settings: Variables that replace those of settings.env.

    Raises:
        PartEnded: A part did not start.
    """
    services = {name: left_out(service, without) for name, service in read(ROOT / "deploy").items()}
    wanted = [name for name, service in services.items() if name not in without and not service.profiles]
    secrets = folder / "secrets"
    subprocess.run([ROOT / "deploy" / "secrets.sh", secrets], check=True, capture_output=True)
    servers = Servers(folder, secrets, say)
    deployment = Deployment(servers)
    with ExitStack() as stack:
        ports = _ports(services)
        for service in _left(in_order(services, wanted), without):
            if service.name in SERVED:
                servers.start(on_this_machine(service, ports, secrets), stack)
                ports |= _served(service, servers)
                continue
            part = _part(service, ports, servers, settings or {})
            deployment.parts[service.name] = part
            stack.callback(_stop, deployment, service.name)
            part.start()
            say(_line(service, ports))
        deployment.environment = dict(_part(services["client"], ports, servers, settings or {}).service.environment)
        deployment.environment["SPARK_LOCAL_IP"] = LOOPBACK
        yield deployment


def _left(services: Sequence[Service], without: Sequence[str]) -> list[Service]:
    return [service for service in services if service.name not in without]


def _stop(deployment: Deployment, name: str) -> None:
    part = deployment.parts[name]
    if part.process is not None and part.process.poll() is None:
        part.stop()


def _ports(services: Mapping[str, Service]) -> dict[tuple[str, int], int]:
    """A free port for each port of our own services."""
    inside = [(s.name, port) for s in services.values() if s.name not in SERVED for port in s.ports]
    return dict(zip(inside, free_ports(len(inside)), strict=True))


def _served(service: Service, servers: Servers) -> dict[tuple[str, int], int]:
    """The port at which a server of this machine answers for the first port of a service."""
    address = servers.addresses.get(service.name)
    return {(service.name, service.ports[0]): int(address.rpartition(":")[2])} if address else {}


def _part(
    service: Service, ports: Mapping[tuple[str, int], int], servers: Servers, settings: Mapping[str, str]
) -> Part:
    here = on_this_machine(service, ports, servers.secrets)
    folder = servers.folder / service.name
    folder.mkdir(exist_ok=True)
    environment = _clean() | dict(here.environment) | dict(settings)
    return Part(here, folder / "log", environment)


def _clean() -> dict[str, str]:
    """This machine's variables that are no settings, with the environment's programs on the path."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    programs = str(Path(sys.executable).parent)
    return kept | {
        "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
        "AWS_CONFIG_FILE": os.devnull,
    }


def _line(service: Service, ports: Mapping[tuple[str, int], int]) -> str:
    if service.done_before:
        return f"{service.name}: done"
    where = ", ".join(f"http://{LOOPBACK}:{ports[service.name, port]}" for port in service.ports)
    return f"{service.name}: healthy at {where}" if where else f"{service.name}: runs"
