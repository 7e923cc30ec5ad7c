"""Checks Bloom filters: one that excludes a value of its column would hide the value's row (FORMAT.md section 12.2)."""

from __future__ import annotations

from filestore.checks.report import Findings, Invariant
from filestore.files.bloom import value_hashes
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.lookup.key_match import one_piece
from filestore.model.files import DataFile

__all__ = ["check_filters"]


def check_filters(table: TableFiles, file: DataFile, findings: Findings) -> None:
    """Checks the Bloom filters of a readable file's key columns, row group by row group."""
    with ParquetReader(table.storage, table.path(file.path)) as parquet:
        leaves = {name: parquet.leaf(name) for name in table.definition.sort_key}
        for group in range(len(parquet.group_rows)):
            for name, leaf in leaves.items():
                bloom = parquet.bloom_filter(group, leaf)
                if bloom is None:
                    continue
                values = one_piece(parquet.read(group, [name]).column(name))
                hashes = value_hashes(values, parquet.schema.column(leaf))
                if hashes is not None and not (there := bloom.may_hold(hashes)).all():
                    findings.add(
                        Invariant.BLOOM_FILTER,
                        f"{file.path} has a Bloom filter on {name!r} that excludes {(~there).sum()} of its values",
                        file.path,
                    )
