"""``python -m tests.simulation [--shape NAME …] [--seed N | --seeds N] [--steps N]``: runs until something is wrong.

Prints the seed of each run that fails, and how to run it again. Exit status 1 if one did.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.run import SimulationFailed, simulate
from tests.simulation.shapes import SHAPES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--shape", nargs="*", choices=SHAPES, default=list(SHAPES), help="kinds of table; all if absent"
    )
    parser.add_argument("--seed", type=int, help="one seed, to run a failure again")
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3000, help="storage calls of a run")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    failed, counts, operations, began = 0, Counter[str](), Counter[str](), time.monotonic()
    for seed in seeds:
        for shape in given.shape:
            try:
                outcome = simulate(shape, seed, given.steps)
            except SimulationFailed as error:
                failed += 1
                lines = str(error).splitlines()
                print("\n".join(lines if given.seed is not None else lines[-8:]), flush=True)
                continue
            counts, operations = counts + outcome.counts, operations + outcome.operations
            if given.seed is not None:
                print(f"{shape} {seed}: {outcome.versions} versions, trace {outcome.trace}")
    print(f"{len(seeds) * len(given.shape)} runs, {failed} failed, {time.monotonic() - began:.0f} s")
    for name, count in sorted(counts.items()) + sorted(operations.items()):
        print(f"  {count:8} {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
