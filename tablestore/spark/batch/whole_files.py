"""Reads tables of ours as native Delta scans in which a file that is missing or damaged is an error.

Settings of a session can make Spark leave such files out, and move old times to another calendar. In a session with our
extension a rule fixes the options of every read, wherever it is made (``WholeFiles.java``, decision 118). Sessions with
nothing but Delta lack it, so these reads get the same options here.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

__all__ = ["FIXED", "read_whole"]

FIXED = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""The options of a read of a table, which go over the settings of a session."""


def read_whole(spark: SparkSession, location: str, version: int | None = None) -> DataFrame:
    """Reads a table, or an overlay of one; None: the newest version."""
    reader = spark.read.format("delta")
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(location)
    relation = frame._jdf.queryExecution().analyzed()
    files = relation.relation()
    options = files.options()
    if all(options.contains(name) for name in FIXED):
        return frame
    for name, value in FIXED.items():
        options = options.updated(name, value)
    # the arguments of Scala's case classes, in their order
    known = (files.location(), files.partitionSchema(), files.dataSchema(), files.bucketSpec(), files.fileFormat())
    fixed = files.copy(*known, options, files.sparkSession())
    read = relation.copy(fixed, relation.output(), relation.catalogTable(), relation.isStreaming(), relation.stream())
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, read), spark)
