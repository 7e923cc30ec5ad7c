"""Makes and parses all paths; no other module does (FORMAT.md section 1).

It handles only texts: paths relative to a table's location, joined with ``/``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from filestore.model.files import Partition

__all__ = [
    "CHANGE_DATA",
    "CONSUMERS",
    "DELTA_LOG",
    "LAST_CHECKPOINT",
    "LEASES",
    "LOG_STORE",
    "OVERLAYS",
    "RUNS",
    "SIDECARS",
    "STAGED_COMMITS",
    "CheckpointName",
    "LogEntryName",
    "change_path",
    "checkpoint_path",
    "consumer_path",
    "data_path",
    "decode_path",
    "encode_path",
    "fresh_overlay_path",
    "is_run",
    "is_sidecar",
    "is_stray",
    "is_vector",
    "join",
    "log_entry_path",
    "log_file_path",
    "overlay_path",
    "parse_consumer",
    "parse_log_entry",
    "parse_staged_commit",
    "run_path",
    "sidecar_path",
    "staged_commit_path",
    "staged_path",
    "table_location",
    "vector_path",
]

DELTA_LOG = "_delta_log"
RUNS = "_runs"
CHANGE_DATA = "_change_data"
OVERLAYS = "_overlays"
CONSUMERS = "_consumers"
STAGED_COMMITS = "_staged_commits"
LOG_STORE = "_log"
LEASES = f"{LOG_STORE}/leases"
LAST_CHECKPOINT = f"{DELTA_LOG}/_last_checkpoint"
SIDECARS = f"{DELTA_LOG}/_sidecars"

_ENTRY = re.compile(r"([0-9]{20})\.json")
_VECTOR = "deletion_vector_"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CHECKPOINT = re.compile(
    r"(?P<version>[0-9]{20})\.checkpoint"
    rf"(?:\.(?P<part>[0-9]{{10}})\.(?P<parts>[0-9]{{10}})\.parquet|\.(?P<uuid>(?i:{_UUID}))\.(?:parquet|json)|\.parquet)"
)
_SIDECAR = re.compile(r"(?:.*/)?([^/.][^/]*\.parquet)")
_STRAY = re.compile(
    rf"{LEASES}/[^/]+"
    rf"|{CONSUMERS}/[^/]+"
    rf"|{_VECTOR}{_UUID}\.bin"
    rf"|{RUNS}/staged-{_UUID}\.parquet"
    rf"|{STAGED_COMMITS}/[0-9]{{20}}\.{_UUID}\.json"
    rf"|{OVERLAYS}/[0-9]{{20}}(?:-{_UUID})?/[A-Za-z0-9_.~/-]+"
    rf"|{CHANGE_DATA}/{_UUID}\.parquet"
    rf"|(?:{RUNS}/)?(?:[A-Za-z0-9_.~-]+/)*bucket-[0-9]{{5}}/{_UUID}\.parquet"
)
_RUN = re.compile(rf"{RUNS}/(?:[A-Za-z0-9_.~-]+/)*[A-Za-z0-9_.~-]+\.parquet")
_CONSUMER = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)\.json")
_STAGED_COMMIT = re.compile(rf"{STAGED_COMMITS}/([0-9]{{20}})\.{_UUID}\.json")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~-]")
_MAX_FOLDER = 120


@dataclass(frozen=True, slots=True)
class CheckpointName:
    """The name of a file of a checkpoint (Delta protocol, "Checkpoint Naming Scheme").

    Attributes:
        part: The number of this part, from 1 on.
        parts: The number of all parts; None if the checkpoint is not in parts.
        uuid: The UUID in the name; None without one.
    """

    part: int = 1
    parts: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class LogEntryName:
    """The name of a file in ``_delta_log``.

    Attributes:
        name: The name.
        version: The version of the entry or the checkpoint.
        checkpoint: What it says of a checkpoint; None if it is that of an entry.
    """

    name: str
    version: int
    checkpoint: CheckpointName | None = None


def join(location: str, relative: str) -> str:
    """Joins a location, which may be a local path or a URL, and a relative path."""
    return f"{location.rstrip('/')}/{relative}"


def table_location(warehouse: str, database: str, table: str) -> str:
    """Returns the location of a table in a warehouse."""
    return join(join(warehouse, database), table)


def log_entry_path(version: int) -> str:
    """Makes the path of a commit: ``_delta_log/00000000000000000007.json``."""
    return f"{DELTA_LOG}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """Makes the path of a checkpoint: ``_delta_log/00000000000000000010.checkpoint.parquet``."""
    return f"{DELTA_LOG}/{version:020d}.checkpoint.parquet"


def names_since(version: int) -> str:
    """Returns a text behind the names of all earlier versions in ``_delta_log``, and before those of this version."""
    return f"{version:020d}"


def parse_log_entry(name: str) -> LogEntryName | None:
    """Parses a file name in ``_delta_log``; returns None for files that are neither commit nor checkpoint."""
    if match := _ENTRY.fullmatch(name):
        return LogEntryName(name, int(match[1]))
    if (match := _CHECKPOINT.fullmatch(name)) is None:
        return None
    if match["parts"] is None:
        return LogEntryName(name, int(match["version"]), CheckpointName(uuid=match["uuid"]))
    part, parts = int(match["part"]), int(match["parts"])
    return LogEntryName(name, int(match["version"]), CheckpointName(part, parts)) if 1 <= part <= parts else None


def log_file_path(name: str) -> str:
    """Makes the path of a file in ``_delta_log`` from its name."""
    return f"{DELTA_LOG}/{name}"


def sidecar_path(named: str) -> str | None:
    """Makes ``_delta_log/_sidecars/<name>.parquet`` from what a checkpoint says; None if it names no such file.

    A checkpoint has the encoded name, or a path that ends with it: all sidecars are in that folder, also if the table
    was moved since.
    """
    match = _SIDECAR.fullmatch(decode_path(named))
    return None if match is None else f"{SIDECARS}/{match[1]}"


def is_sidecar(relative: str) -> bool:
    """Returns whether a path may be that of a sidecar."""
    folder, _, name = relative.rpartition("/")
    return folder == SIDECARS and _SIDECAR.fullmatch(name) is not None


def data_path(partition: Partition, bucket: int, file_id: str) -> str:
    """Makes the path of a merged file: ``p-v/bucket-00003/<id>.parquet``."""
    return f"{_slot_folder(partition, bucket)}/{file_id}.parquet"


def run_path(partition: Partition, bucket: int, file_id: str) -> str:
    """Makes the path of a run, whose rows Delta readers must not see: ``_runs/p-v/bucket-00003/<id>.parquet``."""
    return f"{RUNS}/{_slot_folder(partition, bucket)}/{file_id}.parquet"


def staged_path(file_id: str) -> str:
    """Makes the path of sorted rows of any slots before their commit: ``_runs/staged-<id>.parquet``."""
    return f"{RUNS}/staged-{file_id}.parquet"


def overlay_path(version: int) -> str:
    """Makes the folder of a version's overlay, a Delta table with merged runs: ``_overlays/00000000000000000007``."""
    return f"{OVERLAYS}/{version:020d}"


def fresh_overlay_path(version: int, overlay_id: str) -> str:
    """Makes the folder of an overlay that also has a reader's changes from the log: ``_overlays/0…7-<id>``."""
    return f"{overlay_path(version)}-{overlay_id}"


def change_path(file_id: str) -> str:
    """Makes the path of change data of one slot in one version: ``_change_data/<id>.parquet``."""
    return f"{CHANGE_DATA}/{file_id}.parquet"


def vector_path(vector_id: str) -> str:
    """Makes ``deletion_vector_<uuid>.bin`` (Delta protocol, "Deletion Vectors", storage type ``u`` without prefix)."""
    return f"{_VECTOR}{vector_id}.bin"


def is_vector(relative: str) -> bool:
    """Returns whether a path is that of a deletion vector file."""
    return relative.startswith(_VECTOR) and relative.endswith(".bin")


def is_run(relative: str) -> bool:
    """Returns whether a path is that of a run."""
    return _RUN.fullmatch(relative) is not None


def consumer_path(consumer_id: str) -> str:
    """Makes the path of a consumer's progress: ``_consumers/<id>.json``."""
    return f"{CONSUMERS}/{consumer_id}.json"


def parse_consumer(name: str) -> str | None:
    """Parses a file name in ``_consumers`` and returns the consumer's id; None for other files."""
    match = _CONSUMER.fullmatch(name)
    return None if match is None else match[1]


def staged_commit_path(version: int, file_id: str) -> str:
    """Makes the path of an entry before its version is claimed: ``_staged_commits/00000000000000000007.<id>.json``.

    The names are those of Delta's staged commits; the folder is not in that of the Delta log, so no reader finds it.
    """
    return f"{STAGED_COMMITS}/{version:020d}.{file_id}.json"


def parse_staged_commit(relative: str) -> int | None:
    """Parses the path of a staged entry and returns its version; None for other files."""
    match = _STAGED_COMMIT.fullmatch(relative)
    return None if match is None else int(match[1])


def is_stray(relative: str) -> bool:
    """Returns whether a writer may leave such a file in the folder of a table that was dropped during its write.

    It is never a file of the Delta log: where one exists, there is a table.
    """
    return _STRAY.fullmatch(relative) is not None


def encode_path(relative: str) -> str:
    """Encodes a path for ``add.path``: RFC 2396 URI-encoded, as the Delta protocol requires."""
    return quote(relative, safe="/-_.~")


def decode_path(encoded: str) -> str:
    """Reverses `encode_path`."""
    return unquote(encoded)


def partition_folder(partition: Partition) -> str:
    """Returns the folder of a partition's files in the table's; empty without partition columns."""
    return "/".join(_seen(f"{_plain(name)}-{_plain(str(value))}") for name, value in partition)


def _seen(folder: str) -> str:
    """Gives a folder another first character if readers would skip it: a column is called `日` or `.net`."""
    return f"~{folder}" if folder.startswith(("_", ".")) else folder


def _slot_folder(partition: Partition, bucket: int) -> str:
    return "/".join([*filter(None, [partition_folder(partition)]), f"bucket-{bucket:05d}"])


def _plain(text: str) -> str:
    """Makes a part of a folder's name for people; only ``partitionValues`` has a partition's exact value.

    It has no ``=`` and nothing that `encode_path` would change: polars 2.1 would read ``p=v`` as the value, which would
    have to be encoded, and loses the deletion vectors of files whose paths are encoded.
    """
    return _UNSAFE.sub("_", text)[:_MAX_FOLDER]
