"""Writes checkpoints (FORMAT.md section 2): deltalake makes them, and they get the checksums of our files.

deltalake writes files without checksums, and a file of a table is written once. So it makes the checkpoint in a folder
of this machine, from the entries since the last one, and the table gets the finished file.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from filestore import layout
from filestore.delta.log import DeltaLog
from filestore.errors import AlreadyExists, Corrupt, NotFound
from filestore.parquet.whole import check_parquet, parquet_bytes, parquet_rows

__all__ = ["write_checkpoint"]

logger = logging.getLogger(__name__)


def write_checkpoint(log: DeltaLog, version: int) -> None:
    """Writes the checkpoint of a version, unless there is one, and names it as the last one.

    Raises:
        NotFound: an entry has expired meanwhile.
        Unavailable: the storage failed, also that of this machine.
        deltalake.exceptions.DeltaError: deltalake cannot read the entries.
    """
    import deltalake  # imported here, since readers do not need it

    with tempfile.TemporaryDirectory(prefix="tablestore-checkpoint-") as folder:
        for path, data in _needed(log, version):
            file = Path(folder, path)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
        deltalake.DeltaTable(folder).create_checkpoint()
        path = layout.checkpoint_path(version)
        made = parquet_bytes(parquet_rows(Path(folder, path).read_bytes(), path))
        hint = json.loads(Path(folder, layout.LAST_CHECKPOINT).read_bytes()) | {"sizeInBytes": len(made)}
    try:
        log.storage.write_new(layout.join(log.location, path), made)
    except AlreadyExists:
        return  # another process has written it, and its hint
    log.storage.replace(layout.join(log.location, layout.LAST_CHECKPOINT), json.dumps(hint).encode())


def _needed(log: DeltaLog, version: int) -> Iterator[tuple[str, bytes]]:
    """Yields what describes a version: the newest whole checkpoint before it, if there is one, and later entries."""
    first = 0
    for base in sorted((found for found in log.checkpoints() if found < version), reverse=True):
        path = layout.checkpoint_path(base)
        [(_, data)] = _read(log, [path])
        try:
            check_parquet(data, path)  # deltalake looks at no checksum
        except Corrupt as error:
            logger.warning("a checkpoint of %s is not used for the next one: %s", log.location, error)
            continue
        yield path, data
        first = base + 1
        break
    yield from _read(log, [layout.log_entry_path(number) for number in range(first, version + 1)])


def _read(log: DeltaLog, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    listed = list(paths)
    found = log.storage.read_each([layout.join(log.location, path) for path in listed])
    for path, data in zip(listed, found, strict=True):
        if data is None:
            raise NotFound(f"{path} of {log.location} is gone", code="no-such-version")
        yield path, data
