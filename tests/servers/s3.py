"""Real S3 servers for tests, on the loopback interface; they die with the thread that started them.

    with MotoServer() as server:
        with server.client() as s3:
            s3.put_object(Bucket=server.bucket, Key="a", Body=b"1")

`MotoServer` is moto, from a wheel: it starts in a second, keeps objects in memory and looks at no signature.
`VersityServer` is versitygw over a folder, in Go: it checks signatures and the region, and runs requests
side by side.
A `tests.servers.s3_proxy.S3Proxy` in front of either counts requests and injects faults.

versitygw has no wheel: ``make versitygw`` (``python -m tests.servers.s3``) builds it once with Go. Tests never build
it; those that want it are skipped if it is not there, and the report says so.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import botocore.config
import botocore.session

from tablestore.jars import cache_root
from tests.folders import memory_folder
from tests.servers.system import die_with_the_parent, free_ports
from tests.waiting import until

if TYPE_CHECKING:
    import pytest

__all__ = ["REGION", "MotoServer", "NotBuilt", "S3Endpoint", "VersityServer", "build_versitygw", "versitygw"]

REGION = "eu-central-1"  # not the one that clients assume
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "1.8.0"
BUILD_SECONDS = 1800.0
HINT = "`make versitygw` builds it once, which takes Go and a few minutes"
ROOT = Path(__file__).parents[2]


class S3Endpoint:
    """Where S3 answers, and with which credentials.

    Args:
        endpoint: Its URL; buckets are in the path.
        access_key: The name of the user.
        secret_key: Its secret.
        region: Clients have to sign for it.
    """

    def __init__(self, endpoint: str, access_key: str, secret_key: str, region: str = REGION) -> None:
        self.endpoint = endpoint
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = region
        self.bucket = ""
        """An empty one of its start; tests that share a server take one of `new_bucket`."""
        self._buckets = count(1)

    def environment(self) -> dict[str, str]:
        """The variables with which a process uses it, and no settings of the machine's user."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",  # object_store, in obstore, polars and deltalake
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def set_environment(self, patch: pytest.MonkeyPatch) -> None:
        """Makes this process one that uses it."""
        for name, value in self.environment().items():
            patch.setenv(name, value)

    def new_bucket(self) -> str:
        """Creates an empty bucket with a name that no other has, and returns the name."""
        name = f"tests-{next(self._buckets)}-{secrets.token_hex(3)}"
        with self.client() as client:
            client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": self.region})
        return name

    @contextmanager
    def client(self, attempts: int = 1, timeout_s: float = 60.0) -> Iterator[Any]:
        """A client of boto3's kind, which tries each call so many times and closes its connections at the end."""
        settings = botocore.config.Config(
            retries={"total_max_attempts": attempts, "mode": "standard"},
            s3={"addressing_style": "path"},
            read_timeout=timeout_s,
            max_pool_connections=64,
        )
        client = _session().create_client(
            "s3",
            region_name=self.region,
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=settings,
        )
        with closing(client):
            yield client

    def keys(self, bucket: str | None = None) -> list[str]:
        """The keys of a bucket, in order."""
        with self.client() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket or self.bucket)
            return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


@cache
def _session() -> botocore.session.Session:
    """One for all clients, because it parses the descriptions of S3's calls."""
    return botocore.session.Session()


class _Server(S3Endpoint):
    """A process with credentials of its own, and one empty bucket."""

    name: ClassVar[str]

    def __init__(self) -> None:
        [self._port] = free_ports(1)
        super().__init__(f"http://127.0.0.1:{self._port}", secrets.token_hex(10).upper(), secrets.token_urlsafe(30))
        self._process: subprocess.Popen[bytes] | None = None
        self._memory = memory_folder()

    def __enter__(self) -> Self:
        self.folder = self._memory.__enter__()
        try:
            self._start()
            self.bucket = self.new_bucket()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def kill(self) -> None:
        """Ends it at once, as a crash would; `restart` starts it again."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Starts it again, at the same address, with what it keeps on disk: `MotoServer` keeps nothing there."""
        self._start()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """What the process has printed."""
        return self.folder / "log"

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """What starts it, and the variables that it needs."""

    def _start(self) -> None:
        command, variables = self._command()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_the_parent,
            )
        until(self._answers, what=f"{self.name} answers; its log is {self.log}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended:\n{self.log.read_text(errors='replace')}"
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5.0):
                return True
        except OSError:
            return False

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._memory.__exit__(None, None, None)


class MotoServer(_Server):
    """One moto server; it keeps connections, and what it stores ends with it."""

    name = "moto"

    def _command(self) -> tuple[list[str], dict[str, str]]:
        # moto signs its own requests with made-up credentials, and must not find those of the machine's user
        return [sys.executable, "-m", "tests.servers.s3_moto", str(self._port)], self.environment()


class VersityServer(_Server):
    """One versitygw server over a folder of its own: each object is a file in ``data/<bucket>``.

    Raises:
        NotBuilt: There is no binary in the cache.
    """

    name = "versitygw"

    @property
    def access_log(self) -> Path:
        """One line for each request that it got."""
        return self.folder / "access.log"

    def _command(self) -> tuple[list[str], dict[str, str]]:
        data, metadata = self.folder / "data", self.folder / "metadata"
        data.mkdir(exist_ok=True)
        metadata.mkdir(exist_ok=True)
        command = [str(versitygw()), "--port", f"127.0.0.1:{self._port}", "--region", self.region]
        command += ["--keep-alive", "--quiet", "--access-log", str(self.access_log), "posix"]
        if not _has_attributes(data):  # then an object and its ETag are two files, which do not change at once
            command += ["--sidecar", str(metadata)]
        command += [str(data)]
        return command, {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}


def _has_attributes(folder: Path) -> bool:
    """Whether the file system has extended attributes."""
    try:
        os.setxattr(folder, "user.tests", b"")
    except OSError:
        return False
    return True


class NotBuilt(Exception):
    """There is no binary of versitygw; the text says what to do."""


def versitygw() -> Path:
    """Returns the binary in the cache.

    Raises:
        NotBuilt: It is not there.
    """
    binary = _binary()
    if not binary.exists():
        raise NotBuilt(f"versitygw {VERSION} is not in {binary.parent}: {HINT}.")
    return binary


def build_versitygw() -> Path:
    """Returns the binary in the cache; builds it if it is not there. One process builds, the others wait for it.

    Raises:
        NotBuilt: Go is missing, or the build failed.
    """
    binary = _binary()
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise NotBuilt(
            f"versitygw {VERSION}, an S3 server of the tests, is not built because there is no `go` on the path: "
            "tests that need it are skipped, and moto alone is used."
        )
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (binary.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in binary.parent.glob("building-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        if not binary.exists():
            _build(go, binary)
    return binary


def _binary() -> Path:
    return cache_root() / "servers" / f"versitygw-{VERSION}" / "versitygw"


def _build(go: str, binary: Path) -> None:
    print(
        f"Building versitygw {VERSION}, an S3 server of the tests (once, a few minutes)…", file=sys.stderr, flush=True
    )
    with tempfile.TemporaryDirectory(prefix="building-", dir=binary.parent) as folder:
        variables = {
            "GOPATH": f"{folder}/path",
            "GOMODCACHE": f"{folder}/modules",
            "GOCACHE": f"{folder}/cache",
            "GOBIN": folder,
            "GOFLAGS": "-modcacherw -trimpath",  # so that the folder can be removed
            "CGO_ENABLED": "0",
        }
        command = ["nice", go, "install", "-ldflags=-s -w", f"{VERSITYGW}@v{VERSION}"]
        try:
            subprocess.run(
                command,
                check=True,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            lines = (error.stderr or "").strip().splitlines()[-3:] if isinstance(error.stderr, str) else []
            raise NotBuilt(
                f"versitygw {VERSION}, an S3 server of the tests, could not be built: {' '.join(lines) or error} "
                "Tests that need it are skipped, and moto alone is used."
            ) from error
        (Path(folder) / "versitygw").rename(binary)


def main() -> int:
    """Builds versitygw; returns 1 after a failure, and prints the reason."""
    try:
        build_versitygw()
    except NotBuilt as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
