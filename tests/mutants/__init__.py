"""``make mutants``: small wrong changes of the product, each of which a test has to notice (README.md)."""
