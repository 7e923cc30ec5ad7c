"""Finds Spark's jars for Delta and for S3, and Kafka's jars for a broker, and fetches them once through Maven.

A folder of the cache is complete or absent: jars are downloaded into a temporary folder beside it, their
digest is compared, and one rename publishes them. A lock makes a second process wait
for the first, so that nothing is downloaded twice.

The cache is ``$TABLESTORE_CACHE``, else ``$XDG_CACHE_HOME/tablestore``, else ``~/.cache/tablestore``.
A machine without Maven or network can be given a copy of another machine's ``jars`` folder.

``python -m tablestore.jars [delta] [s3a] [kafka]`` fetches all, or the named ones.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filestore.errors import Corrupt, InvalidRequest, TableStoreError, Unavailable

__all__ = [
    "DELTA",
    "KAFKA",
    "S3A",
    "JarSet",
    "Progress",
    "cache_root",
    "delta_jars",
    "find_java",
    "jars_of",
    "kafka_jars",
    "s3a_jars",
]

Progress = Callable[[str], object]
"""Receives one line of text for each step."""

JAVA_MINIMUM = 17
_AWS_SDK = (
    *("annotations", "apache-client", "arns", "auth", "aws-core", "aws-query-protocol", "aws-xml-protocol"),
    *("checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth", "http-auth-aws"),
    *("http-auth-aws-eventstream", "http-auth-spi", "http-client-spi", "identity-spi", "json-utils", "metrics-spi"),
    *("profiles", "protocol-core", "regions", "retries", "retries-spi", "s3", "s3-transfer-manager", "sdk-core", "sts"),
    *("third-party-jackson-core", "utils", "utils-lite"),
)
MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
JARS_A_PROGRESS_LINE = 20


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together and share one folder of the cache.

    Args:
        name: The name on the command line: ``delta``, ``s3a`` or ``kafka``.
        title: The name in messages.
        version: The folder's suffix; it changes whenever the jars do.
        artifacts: ``group:artifact:version`` of each jar, or of the roots if ``transitive``.
        transitive: Whether the dependencies of the artifacts belong to the set.
        count: The number of jars, for the message.
        megabytes: The size of the download, for the message.
        digest: SHA-256 over the sorted lines ``<file name> <SHA-256 of the file>``.
    """

    name: str
    title: str
    version: str
    artifacts: tuple[str, ...]
    transitive: bool
    count: int
    megabytes: int
    digest: str

    @property
    def folder(self) -> str:
        """The name of the set's folder in the cache."""
        return f"{self.name}-{self.version}"


# Spark has everything else that these need (Jackson, Parquet, Hadoop, RoaringBitmap, Scala),
# and a second copy on the class path would clash with it.
DELTA = JarSet(
    name="delta",
    title="Delta's jars for Spark",
    version="4.4.0-spark-4.2",
    artifacts=(
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "io.delta:delta-kernel-api:4.4.0",
        "io.delta:delta-kernel-defaults:4.4.0",
        "io.delta:delta-kernel-unitycatalog:4.4.0",
        "io.unitycatalog:unitycatalog-client:0.6.0",
        "io.unitycatalog:unitycatalog-hadoop:0.6.0",
    ),
    transitive=False,
    count=7,
    megabytes=13,
    digest="2cc43a3d49ccda21e6309f125a5963cd8c21010a30810e69ff6b8a763e6c5e43",
)

# What of the 686 MB of AWS's bundle Hadoop's S3A loads for S3, and for roles that are assumed by a token (STS). Netty,
# HTTP client, slf4j and commons are Spark's own.
S3A = JarSet(
    name="s3a",
    title="Spark's jars for S3",
    version="3.5.0-aws-2.35.4",
    artifacts=(
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(f"software.amazon.awssdk:{name}:2.35.4" for name in _AWS_SDK),
        "software.amazon.eventstream:eventstream:1.0.1",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "org.reactivestreams:reactive-streams:1.0.4",
    ),
    transitive=False,
    count=35,
    megabytes=13,
    digest="dc0b2a4351f89d718c8da901026df8b384870be791dd16fd13fa3d3998075823",
)

KAFKA = JarSet(
    name="kafka",
    title="Kafka's broker jars",
    version="4.3.1",
    artifacts=("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"),
    transitive=True,
    count=46,
    megabytes=44,
    digest="929899bc0205a413e019af82b4ea9cd72ca842beec55d2912c6e09780eb2d3d6",
)


def delta_jars(progress: Progress | None = None) -> list[Path]:
    """Returns the jars with which a Spark 4.2 session reads and writes Delta; fetches them if they are absent.

    Raises:
        Unavailable: Java or Maven is missing, or the download failed.
        Corrupt: The downloaded bytes are not the expected ones.
    """
    return jars_of(DELTA, progress)


def s3a_jars(progress: Progress | None = None) -> list[Path]:
    """Returns the jars with which a Spark 4.2 session reads files in S3; fetches them if they are absent.

    Raises:
        Unavailable: Java or Maven is missing, or the download failed.
        Corrupt: The downloaded bytes are not the expected ones.
    """
    return jars_of(S3A, progress)


def kafka_jars(progress: Progress | None = None) -> list[Path]:
    """Returns the class path of a Kafka broker and its tools, with a logger to standard error; fetches absent jars.

    Raises:
        Unavailable: Java or Maven is missing, or the download failed.
        Corrupt: The downloaded bytes are not the expected ones.
    """
    return jars_of(KAFKA, progress)


def jars_of(jar_set: JarSet, progress: Progress | None = None, root: Path | None = None) -> list[Path]:
    """Returns the jars of a set, sorted by name; fetches them if they are not in the cache.

    Args:
        jar_set: The set.
        progress: Receives a line for each step of a download; standard error if None.
        root: The folder of the cache; `cache_root` if None.
    """
    jars = (root or cache_root()) / "jars"
    place = jars / jar_set.folder
    if not place.is_dir():
        _fetch(jar_set, place, progress or _say)
    return sorted(place.glob("*.jar"))


def cache_root() -> Path:
    """Returns the folder of the cache; the first download creates it."""
    if own := os.environ.get("TABLESTORE_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "tablestore"
    return Path.home() / ".cache" / "tablestore"


def find_java() -> Path:
    """Returns the Java for Spark, Maven and a broker: that of ``$JAVA_HOME``, else the first one on the path.

    Raises:
        Unavailable: There is none, or it is older than 17.
    """
    found = java_path()
    where = "in $JAVA_HOME" if os.environ.get("JAVA_HOME") else "on the path"
    advice = "install one, for example `apt install openjdk-17-jre-headless`, or point JAVA_HOME at it"
    if found is None:
        raise Unavailable(f"Java {JAVA_MINIMUM} or newer is needed and none is {where}: {advice}.", code="java-missing")
    version = _java_version(found)
    if version < JAVA_MINIMUM:
        raise Unavailable(
            f"Java {JAVA_MINIMUM} or newer is needed and {found} is Java {version}: {advice}.",
            code="java-too-old",
        )
    return Path(found)


def java_path() -> str | None:
    """Returns the Java of ``$JAVA_HOME``, else the first one on the path, of any version; None without one."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def _java_version(java: str) -> int:
    """Returns the major version, 8 for a version such as 1.8; 0 if it cannot be found out."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match else 0


def _fetch(jar_set: JarSet, place: Path, progress: Progress) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place.parent / f"{jar_set.folder}.lock"):
            if not place.is_dir():
                _remove_leftovers(jar_set, place.parent)
                _download_and_publish(jar_set, place, progress)
    except OSError as error:
        raise Unavailable(
            f"{jar_set.title} could not be stored in {place.parent}: {error}. "
            "Make room or give another folder in $TABLESTORE_CACHE.",
            code="cache-not-writable",
        ) from error


def _download_and_publish(jar_set: JarSet, place: Path, progress: Progress) -> None:
    maven = _find_maven(jar_set, place.parent)
    size = f"{jar_set.count} files, {jar_set.megabytes} MB"
    progress(f"Fetching {jar_set.title} ({size}, once) into {place}…")
    with tempfile.TemporaryDirectory(prefix=_leftover_prefix(jar_set), dir=place.parent) as folder:
        part = Path(folder) / "jars"
        part.mkdir()
        _run_maven([maven, *_copy_jars(jar_set, Path(folder), part)], jar_set, progress)
        digest = _digest(part)
        if digest != jar_set.digest:
            raise Corrupt(
                f"{jar_set.title} are not the expected bytes (digest {digest}, expected {jar_set.digest}): "
                "check whether a mirror in ~/.m2/settings.xml serves other files, or empty ~/.m2/repository.",
                code="jars-digest",
            )
        part.rename(place)
    progress(f"Fetched {jar_set.title}.")


def _find_maven(jar_set: JarSet, jars: Path) -> str:
    find_java()
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(
            f"Maven is needed once to fetch {jar_set.title}, and there is no `mvn` on the path: install it "
            "(`apt install maven`, `brew install maven`) and try again, or copy the folder "
            f"{jars} from a machine that has it.",
            code="maven-missing",
        )
    return maven


def _copy_jars(jar_set: JarSet, folder: Path, part: Path) -> list[str]:
    """Returns Maven's arguments to copy the jars into ``part``."""
    pom = folder / "pom.xml"
    pom.write_text(_pom(jar_set), encoding="utf-8")
    return [
        "--batch-mode",
        "--file",
        str(pom),
        MAVEN_GOAL,
        "-DincludeScope=runtime",
        f"-DoutputDirectory={part}",
    ]


def _run_maven(command: list[str], jar_set: JarSet, progress: Progress) -> None:
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as running:
        for line in running.stdout or ():
            lines.append(line.strip())
            _report(lines, progress)
    if running.returncode != 0:
        raise Unavailable(
            f"Maven could not fetch {jar_set.title}: {_reason(lines)} "
            "Check that this machine reaches a Maven repository, then try again.",
            code="jars-not-fetched",
        )


def _report(lines: list[str], progress: Progress) -> None:
    """Reports every twentieth download; the first time Maven's own plugins are counted, too."""
    if _is_download(lines[-1]):
        downloads = sum(map(_is_download, lines))
        if downloads % JARS_A_PROGRESS_LINE == 0:
            progress(f"  {downloads} jars so far…")


def _is_download(line: str) -> bool:
    return "Downloaded from" in line and ".jar " in line


def _reason(lines: list[str]) -> str:
    """Returns the cause that Maven reports, without its advice on command-line switches."""
    errors = [line.partition("[ERROR]")[2].strip() for line in lines if "[ERROR]" in line]
    first = next((error for error in errors if error), lines[-1] if lines else "it said nothing")
    return first.partition(" -> [Help")[0].rstrip(".") + "."


def _pom(jar_set: JarSet) -> str:
    """Returns a Maven project that only depends on the jars."""
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = "" if jar_set.transitive else f"<exclusions>{every}</exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{exclusions}</dependency>"
        for group, artifact, version in (name.split(":") for name in jar_set.artifacts)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>tablestore</groupId>"
        f"<artifactId>{jar_set.name}-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _digest(folder: Path) -> str:
    lines = (f"{jar.name} {hashlib.sha256(jar.read_bytes()).hexdigest()}\n" for jar in sorted(folder.glob("*.jar")))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Holds a lock between processes; the operating system releases it when its process dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _leftover_prefix(jar_set: JarSet) -> str:
    return f".partial-{jar_set.folder}-"


def _remove_leftovers(jar_set: JarSet, jars: Path) -> None:
    """Removes the folders that a killed process left behind. REQUIRES: the lock is held."""
    for leftover in jars.glob(_leftover_prefix(jar_set) + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """Fetches the named sets, or all of them; returns 1 after a failure, and prints the reason."""
    known = {jar_set.name: jar_set for jar_set in (DELTA, S3A, KAFKA)}
    unknown = [name for name in arguments if name not in known]
    try:
        if unknown:
            raise InvalidRequest(f"There are no jars named {', '.join(unknown)}: name {' or '.join(known)}.")
        for name in arguments or known:
            jars_of(known[name])
    except TableStoreError as error:
        _say(error.message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
