"""Metrics: what a process counts and measures of itself, in Prometheus' terms.

`meter` is all that measuring code knows, `registry` keeps the values, in Prometheus' own client, which also writes them
down. What is measured is defined beside the code that does it; tablestore/METRICS.md has all of it.
"""
