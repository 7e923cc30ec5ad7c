"""What compose.yaml and settings.env say, and what it becomes on one machine. Pure: only `read` opens the files.

On one machine a service's name is the loopback address, and each port that it exposes is a free one. So ``s3:7070`` is
``127.0.0.1:23456`` everywhere, and in the service itself ``127.0.0.1:7070`` and a bare ``7070`` are, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "LOOPBACK",
    "SECRETS",
    "Ports",
    "Service",
    "in_order",
    "left_out",
    "on_this_machine",
    "read",
    "read_settings",
    "settings_of",
]

LOOPBACK = "127.0.0.1"
SECRETS = "/run/secrets"
"""Where containers find their secrets."""

_EVERYWHERE = ("0.0.0.0", "::")  # an address to listen at, which loopback replaces

Ports = Mapping[tuple[str, int], int]
"""The port on this machine of a service's port in its container."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service of compose.yaml, as far as one machine needs it.

    Attributes:
        name: Its name, and that of its host.
        image: The image, with its version.
        command: The program and its arguments.
        environment: The variables of settings.env, if it reads that file, and its own.
        ports: The ports that it exposes.
        files: Files of this repository by their paths in the container.
        needs: The services that have to be healthy, or done, before it starts.
        done_before: Whether others wait for its end instead of its health.
        check: The program of its health check; none if it has no check.
        stop_s: How long it may take to stop.
        replicas: How many of it there are.
        profiles: It runs only if one of these is asked for; always if there are none.
    """

    name: str
    image: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    done_before: bool = False
    check: tuple[str, ...] = ()
    stop_s: float = 10.0
    replicas: int = 1
    profiles: tuple[str, ...] = ()


def read(folder: Path) -> dict[str, Service]:
    """Reads ``compose.yaml`` of a folder, and the files of settings that it names."""
    document = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))
    services = document["services"]
    awaited = {
        name
        for service in services.values()
        for name, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_completed_successfully"
    }
    return {name: _service(name, service, awaited, folder) for name, service in services.items()}


def read_settings(path: Path) -> dict[str, str]:
    """Reads a file of settings, ``NAME=value`` in each line."""
    return settings_of(path.read_text(encoding="utf-8"))


def settings_of(text: str) -> dict[str, str]:
    """The settings of a text: the value is all behind the first ``=``, with its quotes and spaces."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def _service(name: str, given: Mapping[str, Any], awaited: Iterable[str], folder: Path) -> Service:
    environment: dict[str, str] = {}
    if (file := given.get("env_file")) is not None:
        environment |= read_settings(folder / file)
    environment |= given.get("environment", {})
    check = given.get("healthcheck", {}).get("test", [])
    return Service(
        name=name,
        image=given["image"],
        command=tuple(given.get("command", ())),
        environment=environment,
        ports=tuple(int(port) for port in given.get("expose", ())),
        files=dict(_files(given.get("volumes", ()), folder)),
        needs=tuple(given.get("depends_on", {})),
        done_before=name in awaited,
        check=tuple(check[1:]),
        stop_s=_seconds(given.get("stop_grace_period", "10s")),
        replicas=given.get("deploy", {}).get("replicas", 1),
        profiles=tuple(given.get("profiles", ())),
    )


def _files(volumes: Iterable[str], folder: Path) -> Iterator[tuple[str, Path]]:
    for volume in volumes:
        if volume.startswith("./"):
            outside, inside, *_ = volume.split(":")
            yield inside, folder / outside


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)(s|m)", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time such as 15s or 5m")
    return float(found[1]) * (60 if found[2] == "m" else 1)


def in_order(services: Mapping[str, Service], wanted: Sequence[str]) -> list[Service]:
    """Returns the wanted services and what they need, each behind those that it needs."""
    ordered: dict[str, Service] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"{' needs '.join((*above, name))}: none of them can start first")
        for needed in services[name].needs:
            add(needed, (*above, name))
        ordered.setdefault(name, services[name])

    for name in wanted:
        add(name, ())
    return list(ordered.values())


def left_out(service: Service, without: Sequence[str]) -> Service:
    """Returns the service without the variables that name the address of a service that does not run."""
    names = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, without))}):\d" if without else r"(?!)")
    return replace(service, environment={k: v for k, v in service.environment.items() if not names.search(v)})


def on_this_machine(service: Service, ports: Ports, secrets: Path) -> Service:
    """Returns the service with addresses and folders of this machine."""
    own = {inside: outside for (name, inside), outside in ports.items() if name == service.name}
    put = _Put({f"{name}:{inside}": f"{LOOPBACK}:{outside}" for (name, inside), outside in ports.items()}, own, secrets)
    return replace(
        service,
        command=tuple(str(service.files.get(argument, put(argument))) for argument in service.command),
        environment={name: _own_host(value, ports) or put(value) for name, value in service.environment.items()},
        check=tuple(map(put, service.check)),
    )


def _own_host(value: str, ports: Ports) -> str | None:
    """The address of a host whose name is a whole variable; as a word of a command a name may be something else."""
    return LOOPBACK if value in {name for name, _ in ports} else None


class _Put:
    """Puts addresses and folders of this machine in place of those of containers."""

    def __init__(self, hosts: Mapping[str, str], own: Mapping[int, int], secrets: Path) -> None:
        self._hosts = dict(hosts) | {f"{LOOPBACK}:{inside}": f"{LOOPBACK}:{outside}" for inside, outside in own.items()}
        self._whole = {str(inside): str(outside) for inside, outside in own.items()}
        self._whole |= dict.fromkeys(_EVERYWHERE, LOOPBACK)
        self._secrets = secrets
        names = sorted(self._hosts, key=len, reverse=True)
        self._known = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?!\d)") if names else None

    def __call__(self, text: str) -> str:
        if text in self._whole:
            return self._whole[text]
        text = text.replace(SECRETS, str(self._secrets))
        return self._known.sub(lambda found: self._hosts[found[0]], text) if self._known else text
