"""Reads tables of ours as native Delta scans that leave out nothing: a file that is missing or damaged is an error.

Settings of a session can make Spark leave such files out, and move old times to another calendar. In a session with our
extension a rule fixes the options of every read, wherever it is made (``WholeFiles.java``, decision 118). Sessions with
nothing but Delta lack it, so these reads get the same options here.

In files of edition 1 Spark skips row groups whose NaN is beyond their bounds: a version with such files is read whole.
"""

from __future__ import annotations

import itertools

from pyspark.sql import DataFrame, SparkSession

from filestore.delta.state import TableState
from filestore.files.leaves import leaves

__all__ = ["EVERY_ROW_GROUP", "FIXED", "hides_values", "read_whole"]

FIXED = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""The options of a read of a table, which go over the settings of a session; ``WholeFiles.java`` has the same."""

EVERY_ROW_GROUP = {f"parquet.filter.{way}.enabled": "false" for way in ("stats", "columnindex", "dictionary")}
"""The options with which Parquet's reader skips nothing, as in ``WholeFiles.java``."""


def hides_values(state: TableState) -> bool:
    """Returns whether a reader that skips row groups may miss rows (FORMAT.md section 7, rule 9). Pure."""
    floating = any(leaf.floating for leaf in leaves(state.definition.schema.to_arrow()))
    stored = itertools.chain(state.files, (run.as_file() for run in state.pending))
    return floating and any(file.bounds_floats for file in stored)


def read_whole(spark: SparkSession, location: str, state: TableState, version: int | None = None) -> DataFrame:
    """Reads a table, or an overlay of one.

    Args:
        spark: The session.
        location: Where it is.
        state: The version that is read, or whose overlay it is.
        version: The version that is read whatever is committed later; None: the newest one.
    """
    fixed_options = FIXED | (EVERY_ROW_GROUP if hides_values(state) else {})
    reader = spark.read.format("delta")
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(location)
    relation = frame._jdf.queryExecution().analyzed()
    files = relation.relation()
    options = files.options()
    if all(options.contains(name) and options.apply(name) == value for name, value in fixed_options.items()):
        return frame
    for name, value in fixed_options.items():
        options = options.updated(name, value)
    # the arguments of Scala's case classes, in their order
    known = (files.location(), files.partitionSchema(), files.dataSchema(), files.bucketSpec(), files.fileFormat())
    fixed = files.copy(*known, options, files.sparkSession())
    read = relation.copy(fixed, relation.output(), relation.catalogTable(), relation.isStreaming(), relation.stream())
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, read), spark)
