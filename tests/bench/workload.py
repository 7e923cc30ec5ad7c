"""The `orders` workload: 5 M rows of 8 columns, then 10 upserts of 250 k rows, 80 % of them to existing keys.

Deterministic: the same seed gives the same rows and the same answers. Made once, kept in the cache.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMA_SQL = (
    "order_id BIGINT NOT NULL, customer_id BIGINT, product_id INT, status STRING, amount DOUBLE, note STRING, "
    "updated_at TIMESTAMP, region STRING"
)
_SEED = 20261121
_NEW_SHARE = 0.2
_FILES = 4
_STATUS = ["CREATED", "PAID", "PACKED", "SHIPPED", "DELIVERED", "RETURNED", "REFUNDED", "CANCELLED"]
_REGIONS = [f"{area}-{side}" for area in ("eu", "us", "ap", "sa") for side in ("west", "east", "north")]
_T0 = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z in microseconds
_DAY = 86_400_000_000
_SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        ("customer_id", pa.int64()),
        ("product_id", pa.int32()),
        ("status", pa.string()),
        ("amount", pa.float64()),
        ("note", pa.string()),
        ("updated_at", pa.timestamp("us", tz="UTC")),
        ("region", pa.string()),
    ]
)


@dataclass(frozen=True)
class Workload:
    """Input files and the answers that they must give.

    Attributes:
        rows: Rows of the load.
        base: Folder of the load's files.
        upserts: One file an upsert.
        counts: Rows after the load and after each upsert.
        sums: Sum of `amount` likewise.
        point_keys: Keys to look up.
    """

    rows: int
    base: Path
    upserts: tuple[Path, ...]
    counts: tuple[int, ...]
    sums: tuple[float, ...]
    point_keys: tuple[int, ...]


def workload(folder: Path, rows: int, upserts: int, upsert_rows: int) -> Workload:
    """Makes the workload below `folder`, unless it is there."""
    root = folder / f"orders-{rows}-{upserts}x{upsert_rows}"
    answers = root / "answers.json"
    if not answers.exists():
        shutil.rmtree(root, ignore_errors=True)
        _generate(root, rows, upserts, upsert_rows)
    known = json.loads(answers.read_text())
    files = tuple(root / f"upsert-{k:02d}.parquet" for k in range(upserts))
    return Workload(
        rows, root / "base", files, tuple(known["counts"]), tuple(known["sums"]), tuple(known["point_keys"])
    )


def _generate(root: Path, rows: int, upserts: int, upsert_rows: int) -> None:
    (root / "base").mkdir(parents=True)
    rng = np.random.default_rng(_SEED)
    words = _words(rng)
    new = int(upsert_rows * _NEW_SHARE)
    amount = np.full(rows + new * upserts, np.nan)
    counts, sums, last = [], [], rows

    def note() -> None:
        counts.append(last)
        sums.append(float(amount[:last].sum()))

    for number, keys in enumerate(np.array_split(rng.permutation(rows).astype("int64"), _FILES)):
        batch = _batch(rng, words, keys, _T0, _T0 + 30 * _DAY)
        amount[keys] = batch["amount"].to_numpy()
        pq.write_table(batch, root / "base" / f"part-{number}.parquet", row_group_size=500_000)
    note()
    for number in range(upserts):
        old = rng.choice(last, upsert_rows - new, replace=False)
        keys = rng.permutation(np.concatenate([old, np.arange(last, last + new)])).astype("int64")
        last += new
        begin = _T0 + (40 + number) * _DAY
        batch = _batch(rng, words, keys, begin, begin + _DAY)
        amount[keys] = batch["amount"].to_numpy()
        pq.write_table(batch, root / f"upsert-{number:02d}.parquet")
        note()
    points = [int(key) for key in rng.choice(rows, 20, replace=False)]
    (root / "answers.json").write_text(json.dumps({"counts": counts, "sums": sums, "point_keys": points}))


def _words(rng: np.random.Generator) -> pa.Array:
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return pa.array(["".join(rng.choice(letters, n)) for n in rng.integers(4, 9, 4096)])


def _batch(rng: np.random.Generator, words: pa.Array, keys: np.ndarray, begin: int, end: int) -> pa.Table:
    n = len(keys)
    four = [words.take(pa.array(rng.integers(0, len(words), n))) for _ in range(4)]
    tail = pa.array(rng.integers(10**9, 10**10, n)).cast(pa.string())
    return pa.table(
        [
            pa.array(keys, pa.int64()),
            pa.array(rng.integers(1, 1_000_001, n), pa.int64()),
            pa.array(rng.integers(1, 50_001, n).astype("int32")),
            pa.array(_STATUS).take(pa.array(rng.integers(0, len(_STATUS), n))),
            pa.array(np.round(rng.gamma(2.0, 60.0, n), 2)),
            pc.binary_join_element_wise(*four, tail, " "),
            pa.array(rng.integers(begin, end, n), pa.timestamp("us", tz="UTC")),
            pa.array(_REGIONS).take(pa.array(rng.integers(0, len(_REGIONS), n))),
        ],
        schema=_SCHEMA,
    )
