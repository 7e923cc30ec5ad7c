"""``make bench``: the `orders` workload, ours beside plain Parquet and Delta MERGE in one run, printed as ratios."""
