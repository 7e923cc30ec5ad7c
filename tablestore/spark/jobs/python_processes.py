"""Functions of ours run in Python processes that all sessions share: Spark keeps a session's own for ever."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from tablestore.spark.jobs.java_classes import our_class

__all__ = ["in_shared_processes"]


def in_shared_processes(rows: DataFrame) -> DataFrame:
    """Makes such processes run the function of ours with which `mapInArrow` has made the rows, and returns these.

    Rows stay as they are with Spark Connect's client, whose functions are the user's for the server, and in a session
    without our jar.
    """
    if isinstance(rows, ClassicDataFrame):
        processes = our_class(rows.sparkSession.sparkContext, "SharedProcesses")
        if processes is not None:
            processes.use(rows._jdf)
    return rows
