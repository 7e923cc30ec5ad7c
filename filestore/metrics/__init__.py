"""Metrics: what a process counts and measures of itself, in Prometheus' terms and without its client.

`meter` is all that measuring code knows, `registry` keeps the values, `exposition` writes them as Prometheus reads
them. What is measured is defined beside the code that does it; tablestore/METRICS.md has all of it.
"""
