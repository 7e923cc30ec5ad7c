"""Metrics of a process, put together: the page of all of them (tablestore/METRICS.md), and ``/metrics``."""
