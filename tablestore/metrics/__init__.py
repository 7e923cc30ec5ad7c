"""Lists all metrics (tablestore/METRICS.md), and serves those of a process at ``/metrics``."""
