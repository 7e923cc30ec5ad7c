"""`our_class`: the classes of our jar, of which a session may have none."""

from __future__ import annotations

from py4j.java_gateway import JavaClass
from pyspark import SparkContext

__all__ = ["our_class"]


def our_class(context: SparkContext, name: str) -> JavaClass | None:
    """Returns a class of ``tablestore.spark`` in a context's JVM; None without our jar, where it is a package."""
    assert context._jvm is not None
    found = getattr(context._jvm.tablestore.spark, name)
    return found if isinstance(found, JavaClass) else None
