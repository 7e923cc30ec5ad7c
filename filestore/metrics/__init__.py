"""Metrics of a process in Prometheus' terms.

Measuring code uses only `meter`; `registry` keeps the values in Prometheus' own client, which also exports them. A
metric is defined beside the code that measures it; tablestore/METRICS.md lists all.
"""
