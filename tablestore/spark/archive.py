"""Makes an archive of the packages that Spark's tasks import, for hosts that have only Spark and a bare Python.

Spark copies the archive to each executor and unpacks it there, so nothing has to be installed on a cluster's hosts. It
contains the packages with which the driver runs, which makes driver and executors the same. Therefore the hosts need a
Python of the driver's version, and have to be of its kind of machine. What only the driver uses is left out: the
catalog, the service, and pyspark, which is on each of Spark's hosts.

The same packages make the same bytes. A file is complete or absent: it is written beside its place and then renamed.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import IO

from filestore.arguments import checked
from filestore.errors import InvalidRequest, NotFound, Unavailable
from tablestore.hidden_packages import PACKAGES

__all__ = ["UNPACKED", "ArchiveInfo", "archive_info", "checked_archive", "spark_archive"]

UNPACKED = "tablestore-packages"
"""The folder in an executor's working folder; no module can have this name, so the folder hides none."""

_ROOTS = ("confluent-kafka", "httpx", "kafka-python", "numpy", "polars", "pyarrow", "pyroaring", "tenacity")
_IF_INSTALLED = ("isal", "obstore", "s3fs")
_ON_SPARKS_HOSTS = frozenset({"pyspark", "py4j", "delta-spark"})
_OWN = (*PACKAGES, "tablestore", "pyspark_tablestore")
_INFO = "tablestore-archive.json"
_LEFT_OUT = frozenset({"tests", "include"})  # folders inside of packages; the includes are C's headers
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FASTEST = 1  # measured: level 6 makes 163 MB of 182, and takes nearly three times as long


@dataclass(frozen=True, slots=True)
class ArchiveInfo:
    """The description of an archive, which is its first member.

    Attributes:
        version: Of this package.
        python: The Python that can use it, such as ``3.11``.
        machine: The machines that can use it, such as ``linux-x86_64``.
        packages: The distributions in it, each as ``name==version``, sorted.
    """

    version: str
    python: str
    machine: str
    packages: tuple[str, ...]

    @classmethod
    def here(cls, packages: Iterable[str] = ()) -> ArchiveInfo:
        """Describes an archive that is made by the running Python."""
        machine = f"{sys.platform}-{platform.machine()}"
        return cls(_own_version(), f"{sys.version_info[0]}.{sys.version_info[1]}", machine, tuple(packages))


@checked()
def spark_archive(path: str | PathLike[str], packages: Sequence[str] = ()) -> ArchiveInfo:
    """Makes the archive; what was at the path is replaced.

    Args:
        path: It ends with ``.tar.gz`` or ``.tgz``, or, faster to make and three times as large, with ``.tar``.
        packages: More distributions, which the user's own functions need in tasks. Those that they depend on are
            added, as far as they are installed.

    Returns:
        What is in it.

    Raises:
        InvalidRequest: ``spark-archive``: the name's end is none of those, or one of the packages is not a plain
            install of a wheel.
        NotFound: ``package-not-found``: one of the packages is not installed.
        Unavailable: ``spark-archive-not-written``: the disk.
    """
    target = Path(path)
    if not target.name.endswith((".tar.gz", ".tgz", ".tar")):
        raise InvalidRequest(f"{target}: Spark unpacks files named .tar.gz, .tgz or .tar", code="spark-archive")
    found = _closure([*_ROOTS, *(name for name in _IF_INSTALLED if _installed(name)), *packages])
    info = ArchiveInfo.here(f"{name}=={found[name].version}" for name in sorted(found))
    members = {**_own_files()}
    for one in found.values():
        members |= _files(one)
    try:
        with _replaced(target) as output, _compressed(output, target) as stream:
            _write(stream, info, members)
    except OSError as error:
        raise Unavailable(
            f"{target} could not be written: {error}. Make room, or name another place",
            code="spark-archive-not-written",
        ) from error
    return info


def archive_info(path: str | PathLike[str]) -> ArchiveInfo:
    """Reads what an archive contains.

    Raises:
        NotFound: ``spark-archive-not-found``: there is no such file.
        InvalidRequest: ``spark-archive``: it was not made by `spark_archive`.
    """
    try:
        with tarfile.open(path) as archive:
            first = archive.next()
            member = archive.extractfile(first) if first is not None and first.name == _INFO else None
            if member is None:
                raise InvalidRequest(
                    f"{path} was not made by `tablestore spark-archive`: give it to Spark as spark.archives yourself, "
                    "or make one with that command",
                    code="spark-archive",
                )
            record = json.load(member)
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no {path}: make it with `tablestore spark-archive {path}`", code="spark-archive-not-found"
        ) from error
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InvalidRequest(
            f"{path} cannot be read ({error}): make it anew with `tablestore spark-archive {path}`",
            code="spark-archive",
        ) from error
    return ArchiveInfo(record["version"], record["python"], record["machine"], tuple(record["packages"]))


def checked_archive(path: Path) -> ArchiveInfo:
    """Reads what an archive contains; it has to fit to the running Python, which is the driver's.

    Raises:
        InvalidRequest: ``spark-archive``: it does not, or `spark_archive` did not make it.
        NotFound: ``spark-archive-not-found``.
    """
    info, here = archive_info(path), ArchiveInfo.here()
    for what, theirs, ours in (("version", info.version, here.version), ("Python", info.python, here.python)):
        if theirs != ours:
            raise InvalidRequest(
                f"{path} was made with {what} {theirs}, but the driver has {what} {ours}: make it anew with "
                f"`tablestore spark-archive {path}`",
                code="spark-archive",
            )
    return info


def _own_version() -> str:
    return version("lakehouse-tablestore")


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _closure(roots: Iterable[str]) -> dict[str, Distribution]:
    """Finds distributions and those that they need, by their plain names."""
    found: dict[str, Distribution] = {}
    waiting = [(name, True) for name in roots]
    while waiting:
        name, required = waiting.pop()
        plain = _plain(name)
        if plain in found or plain in _ON_SPARKS_HOSTS:
            continue
        try:
            found[plain] = distribution(name)
        except PackageNotFoundError as error:
            if required:
                raise NotFound(
                    f"the package {name} is not installed in {sys.prefix}, so it cannot be put into the archive: "
                    "install it there first",
                    code="package-not-found",
                ) from error
            continue  # needed on other systems, or in other versions of Python only
        waiting += [(needed, False) for needed in _needed(found[plain])]
    return found


def _needed(one: Distribution) -> Iterator[str]:
    """The names of the distributions that one requires, without those of its extras."""
    for requirement in one.requires or ():
        text, _, marker = requirement.partition(";")
        if "extra" not in marker and (name := _NAME.match(text.strip())):
            yield name[0]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(one: Distribution) -> dict[str, Path]:
    """The files of an installed wheel, by their names in the archive. Commands and what Python compiles stay behind."""
    listed = one.files
    names = [PurePosixPath(file) for file in listed or ()]
    own = [name for name in names if _is_package(name)]
    if not any(name.suffix in (".py", ".so") for name in own):
        raise InvalidRequest(
            f"the package {one.name} is not installed from a wheel (an editable install?), so its files are not "
            "known: install it as a wheel",
            code="spark-archive",
        )
    return {str(name): Path(str(one.locate_file(name))) for name in own if not _LEFT_OUT & set(name.parts[1:-1])}


def _is_package(name: PurePosixPath) -> bool:
    return ".." not in name.parts and not name.is_absolute() and name.suffix != ".pyc"


def _own_files() -> dict[str, Path]:
    """The files of our own packages, also of an editable install, and what their version is read from."""
    home = Path(__file__).parents[2]
    own = (path for name in _OWN for path in (home / name).rglob("*") if path.is_file())
    return {
        str(path.relative_to(home)): path
        for path in own
        if path.suffix != ".pyc" and not {"__pycache__"} & set(path.parts)
    }


@contextmanager
def _replaced(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes the target's place when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix=f".{target.name}-", dir=target.parent, delete=False) as output:
        part = Path(output.name)
        try:
            yield output
            output.flush()
            part.chmod(0o644)  # as other files; a temporary one is its owner's alone
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def _compressed(output: IO[bytes], target: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if target.name.endswith(".tar"):
        yield output
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=output, compresslevel=_FASTEST, mtime=0) as stream:
        yield stream


def _write(stream: IO[bytes] | gzip.GzipFile, info: ArchiveInfo, members: dict[str, Path]) -> None:
    record = {"version": info.version, "python": info.python, "machine": info.machine, "packages": info.packages}
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        text = json.dumps(record, indent=1).encode()
        archive.addfile(_member(_INFO, len(text), executable=False), io.BytesIO(text))
        for name in sorted(members):
            with members[name].open("rb") as file:
                status = os.fstat(file.fileno())
                archive.addfile(_member(name, status.st_size, executable=bool(status.st_mode & 0o100)), file)


def _member(name: str, size: int, *, executable: bool) -> tarfile.TarInfo:
    """Makes a member without what differs between machines: times, owners."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o755 if executable else 0o644
    return member
