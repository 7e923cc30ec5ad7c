"""Runs as the Python process of a JVM that has no Python driver: it answers until its standard input ends.

``PythonProcess.java`` starts it, with the port and the secret of a Py4J server in the environment. Its argument is the
number of processes that were started so far.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from tablestore.spark.sql.bridge import start_bridge

__all__ = ["main"]


def main() -> None:
    """Takes over the JVM's SparkContext, and answers."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    # when the JVM collects an object of a process that died, it says so to this one, by the number that it had there
    gateway.gateway_property.pool.next_id = int(sys.argv[1]) << 32
    jvm = gateway.jvm
    assert jvm is not None
    session = jvm.org.apache.spark.sql.classic.SparkSession.active()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf, serializer=CPickleSerializer())
    SparkSession(context, session)
    # at the JVM's end it would print that the connection broke
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the shell is for its statement
    start_bridge(context, sessions_of_others=True)
    sys.stdin.read()
    os._exit(0)  # the JVM is gone: what PySpark would do at exit needs it


if __name__ == "__main__":
    main()
