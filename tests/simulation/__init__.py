"""The seeded simulation: all that happens to a table, interleaved and failing by one seed, in memory, against a dict.

`memory` is the storage, `turns` lets one actor at a time go on, `faults` is a process whose calls fail, `oracle` knows
what each version must hold, `shapes` are the kinds of table, `actors` are what can happen, and `run` puts it together.
``python -m tests.simulation --help`` says how to run it for long.
"""
