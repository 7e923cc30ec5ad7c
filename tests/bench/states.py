"""``python -m tests.bench.states [--files N...] [--shape S...] [--versions N...] [--catalog N]``: large versions.

What does the number of a version's files cost whoever opens it, keeps it, writes one row, looks one key up, plans a
scan, or sends it to another process? The tables have metadata only (`tests.bench.states_tables`), and rows where rows
are read. A state is opened from our checkpoint and from one that deltalake wrote, beside deltalake itself. Then the
same for a number of versions, and with ``--catalog`` for a number of tables in one catalog.

Each measurement has a process of its own, but writes and gets, which use the tables of all sizes in turn, row by row.
Openings have the least of some times; writes and gets the median of a turn, and of these the least. In brackets is the
processor's time, also of what is done beside. Behind ``x`` is the ratio to the first size. What is above its bar is
marked, and is not hidden by an exit status.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

from filestore import layout
from filestore.delta.checkpoint import write_checkpoint
from tests.bench.folders import cached_folder
from tests.bench.states_measured import (
    Cost,
    Opened,
    catalog,
    earlier,
    in_process,
    lazily,
    looked_over,
    made,
    made_old,
    opened,
    ours,
    pickled,
    planned,
    used,
    versions_made,
    with_files,
)
from tests.bench.states_tables import SHAPES, location, log_of, make_files, with_same_entries

TURNS, TURNS_OF_MANY, MANY = 5, 3, 500_000
ENOUGH = 1_000
"""With fewer files their bytes are lost among those of everything else."""
BAR = 1.2
"""How much more a write or a get may take than at the first size."""


@dataclass
class Figures:
    """What was found, by what it is and for which size.

    Attributes:
        title: The tables.
        sizes: Their sizes.
        noun: What these count.
    """

    title: str
    sizes: Sequence[int]
    noun: str
    found: dict[str, dict[int, tuple[float, str]]] = field(default_factory=lambda: defaultdict(dict))
    bars: dict[str, float] = field(default_factory=dict)

    def add(self, what: str, size: int, value: float, beside: str = "", bar: float | None = None) -> None:
        self.found[what][size] = value, beside
        if bar is not None:
            self.bars[what] = bar
        print(f"{self.title}, {size:,} {self.noun}: {what}: {shown(value)}{beside}", file=sys.stderr, flush=True)

    def cost(self, what: str, size: int, cost: Cost, bar: float | None = None) -> None:
        self.add(f"{what}, ms", size, cost.wall, f" ({shown(cost.processor)})", bar)

    def printed(self) -> Printed:
        table = Printed("", *(f"{size:,} {self.noun}" for size in self.sizes), "asked", title=self.title)
        for what, values in self.found.items():
            bar, (first, _) = self.bars.get(what), values.get(self.sizes[0], (0.0, ""))
            cells = []
            for size in self.sizes:
                value, beside = values.get(size, (0.0, ""))
                ratio = value / first if first and size != self.sizes[0] else 0.0
                cell = f"{shown(value)}{beside}" + (f" x {ratio:.2f}" if ratio else "") if size in values else ""
                cells.append(f"[red]{cell} MISSED[/red]" if bar is not None and ratio > bar else cell)
            table.add_row(what, *cells, "" if bar is None else f"≤ x {bar}")
        return table


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def report_openings(figures: Figures, size: int, places: Mapping[str, str], smalls: Mapping[str, str]) -> None:
    """Opens the same table from several checkpoints, by us and by deltalake."""
    ways = {"ours": ours, "deltalake": lazily, "deltalake with files": with_files}
    found: dict[tuple[str, str], list[Opened]] = defaultdict(list)
    for turn in range(TURNS_OF_MANY if size >= MANY else TURNS):
        for checkpoint, place in places.items():
            for name, way in ways.items():
                if turn and checkpoint and size >= MANY:
                    continue  # once takes minutes
                found[checkpoint, name].append(in_process(opened, way, place, smalls[checkpoint]))
    for (checkpoint, name), times in found.items():
        figures.cost(f"open{checkpoint}, {name}", size, Cost.least([one.cost for one in times]))
        if name != "deltalake" and size >= ENOUGH:
            figures.add(f"memory{checkpoint}, {name}, bytes a file", size, min(one.kept for one in times) / size)
            figures.add(f"peak{checkpoint}, {name}, bytes a file", size, min(one.peak for one in times) / size)
    for checkpoint in places:
        mine, theirs = (
            min(one.cost.wall for one in found[checkpoint, name]) for name in ("ours", "deltalake with files")
        )
        figures.add(f"open{checkpoint}, ours / deltalake with files", size, mine / theirs)


def report_uses(figures: Figures, folders: Mapping[int, Path], shape: str) -> None:
    """Uses the tables of all sizes row by row in turn, so that others on the machine disturb all alike."""
    found: dict[tuple[int, str], list[Cost]] = defaultdict(list)
    for turn in range(TURNS_OF_MANY if max(folders) >= MANY else TURNS):
        for key, cost in in_process(used, folders, shape, turn).items():
            found[key].append(cost)
    for (size, what), costs in found.items():
        figures.cost(what, size, Cost.least(costs), BAR)


def megabytes(place: str) -> float:
    return max(path.stat().st_size for path in Path(place, layout.DELTA_LOG).glob("*.checkpoint.parquet")) / 1e6


def of_files(folder: Path, shape: str, sizes: Sequence[int]) -> Figures:
    """Tables of one shape and several numbers of files."""
    figures, folders, small, small_old = Figures(shape, sizes, "files"), {}, folder / "small", folder / "small-old"
    make_files(small, SHAPES[shape], 10)
    smalls = {"": location(small), " (old checkpoint)": with_same_entries(small, small_old)}
    write_checkpoint(log_of(small), log_of(small).latest())
    for size in sizes:
        folders[size] = here = folder / str(size)
        cost = in_process(made, here, small_old, shape, size)
        old = with_same_entries(here, folder / f"{size}-old")
        for path in Path(old, layout.DELTA_LOG).glob("*checkpoint*"):
            path.unlink()
        places, arguments = {"": location(here), " (old checkpoint)": old}, (location(here), smalls[""])
        figures.cost("checkpoint beside a commit", size, cost)
        figures.add("checkpoint, MB", size, megabytes(places[""]))
        figures.cost("old checkpoint, by deltalake", size, in_process(made_old, old, smalls[" (old checkpoint)"]))
        figures.add("old checkpoint, MB", size, megabytes(old))
        report_openings(figures, size, places, smalls)
        for about, where in SHAPES[shape].conditions.items():
            first, second = in_process(planned, *arguments, where)
            figures.cost(f"plan of a scan by {about}, first", size, first)
            figures.cost(f"plan of a scan by {about}, then", size, second)
        cost, length = in_process(pickled, *arguments)
        figures.cost("pickle", size, cost)
        figures.add("pickle, MB", size, length / 1e6)
        figures.cost("first look for compaction", size, in_process(looked_over, *arguments))
    report_uses(figures, folders, shape)
    return figures


def of_versions(folder: Path, versions: Sequence[int]) -> Figures:
    """Tables of several numbers of versions."""
    figures, folders, small = Figures("10 files", versions, "versions"), {}, folder / "small"
    make_files(small, SHAPES["narrow"], 10)
    write_checkpoint(log_of(small), log_of(small).latest())
    for size in versions:
        folders[size] = folder / str(size)
        in_process(versions_made, folders[size], "narrow", size)
        arguments = location(folders[size]), location(small)
        for name, way in {"ours": ours, "deltalake with files": with_files}.items():
            costs = [in_process(opened, way, *arguments).cost for _ in range(TURNS)]
            figures.cost(f"open, {name}", size, Cost.least(costs))
        costs = [in_process(earlier, *arguments, size // 2 - 1) for _ in range(TURNS)]
        figures.cost("state of an old version", size, Cost.least(costs))
    report_uses(figures, folders, "narrow")
    return figures


def of_catalogs(folder: Path, sizes: Sequence[int]) -> Figures:
    """Catalogs of several numbers of tables."""
    figures = Figures("catalog", sizes, "tables")
    for size in sizes:
        for what, cost in in_process(catalog, folder / str(size), size).items():
            figures.cost(what, size, cost, BAR)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.states", description=__doc__)
    parser.add_argument("--files", type=int, nargs="*", default=[10, 10_000, 50_000])
    parser.add_argument("--shape", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--versions", type=int, nargs="*", default=[10, 10_000])
    parser.add_argument("--catalog", type=int, help="also catalogs of 10 and of so many tables")
    arguments = parser.parse_args()
    console, benches = Console(), list[Callable[[Path], Figures]]()
    if arguments.files:
        benches += [partial(of_files, shape=shape, sizes=arguments.files) for shape in arguments.shape]
    if arguments.versions:
        benches.append(partial(of_versions, versions=arguments.versions))
    if arguments.catalog:
        benches.append(partial(of_catalogs, sizes=[10, arguments.catalog]))
    for bench in benches:
        with cached_folder("states") as folder:
            console.print(bench(folder).printed())
    return 0


if __name__ == "__main__":
    sys.exit(main())
