"""Every kind of checkpoint that the Delta protocol allows is read, compared, and removed when it expires."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.compact import compact_table
from filestore import layout
from filestore.checks.report import Invariant
from filestore.commit.proposal import AppVersion
from filestore.delta.checkpoint import write_checkpoint
from filestore.delta.checkpoint_files import LogListing
from filestore.delta.state import Replayed
from filestore.doctor import examine
from filestore.errors import Corrupt
from filestore.life.expiry import expire
from filestore.life.orphans import clean_orphans
from filestore.life.tags import create_tag
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.filestore.checkpoint_kinds import (
    FEATURE,
    KINDS,
    forget_entries,
    set_feature,
    sidecars_of,
    write_kind,
)
from tests.folders import memory_folder
from tests.tables import (
    assert_healthy,
    create,
    define,
    in_order,
    read,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP_FEW = {"snapshot_num__retained_min": 1, "snapshot_time__retained": "0 ms"}
EARLIER, AT, LAST = 6, 10, 12
V2 = [kind for kind in KINDS if KINDS[kind].v2]
SIDECARS = [kind for kind in KINDS if KINDS[kind].sidecars]


def grow(store: FileStore, until: int) -> None:
    """Adds versions with vectors, pending runs, tombstones, an app's number and domains."""
    while (version := store.state().version) < until:
        match version % 5:
            case 1:
                rows = [{"id": 9, "p": "é x", "s": version, "_kind": "-D"}, {"id": 8, "p": "%2F", "s": version}]
                write(store, rows, app=AppVersion("app", version))
            case 4:
                write(store, [{"id": 1, "p": "é x", "s": version}], later=True)
            case _:
                write(store, [{"id": n, "p": p, "s": version} for n in range(3 + version % 2) for p in ("é x", "%2F")])


def table(folder: Path, **options: object) -> FileStore:
    columns = "id BIGINT, p STRING, s BIGINT"
    how = {"bucket": 2, "sequence_field": "s", "write__mode": "merge-on-read", "checkpoint_interval": 10_000}
    store = create(folder / "t", define(columns, ["id", "p"], ["p"], **(how | options)), ambient=seeded(1))
    grow(store, 3)
    compact_table(store, full=True)
    create_tag(store, "kept", 2)
    grow(store, LAST)
    return store


@pytest.fixture(scope="module")
def made() -> Iterator[FileStore]:
    with memory_folder() as folder:
        yield table(folder)


def copied(made: FileStore, folder: Path, kind: str) -> FileStore:
    """A copy of a table, whose protocol allows checkpoints of a kind."""
    shutil.copytree(made.location, folder / "t")
    if KINDS[kind].v2:
        set_feature(str(folder / "t"))
    return FileStore.open(LocalStorage(), str(folder / "t"), seeded(2))


def assert_others_read(store: FileStore, *, v2: bool) -> None:
    expected = read(store)
    assert in_order(read_deltalake(store.location)) == expected
    if not v2:  # polars refuses the feature
        assert in_order(read_polars(store.location)) == expected


def test_the_table_has_all_that_a_checkpoint_may_have(made: FileStore) -> None:
    state = made.state(AT)
    assert state.totals.vectors and list(state.pending) and list(state.tombstones)
    assert state.app_versions["app"] and "tablestore.tag.kept" in state.domains
    assert len(list(state.files.slots)) > 1


@pytest.mark.parametrize("hint", [True, False], ids=["hint", "no hint"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_what_the_entries_say(made: FileStore, folder: Path, kind: str, hint: bool) -> None:
    store = copied(made, folder, kind)
    states = {version: store.state(version) for version in range(AT, LAST + 1)}
    write_kind(store.location, kind, AT, hint=hint)
    assert store.delta_log.checkpoints() == [AT]
    assert_healthy(reopen(store))
    forget_entries(store.location, AT)
    found = reopen(store)
    assert found.delta_log.checkpoint(AT).same(states[AT])
    assert found.state() == states[LAST]
    assert {version: found.state(version) for version in states} == states
    assert_others_read(found, v2=KINDS[kind].v2)
    grow(found, LAST + 3)
    assert_others_read(reopen(found), v2=KINDS[kind].v2)
    assert reopen(found).state() == found.state()


def test_delta_spark_reads_what_we_read(made: FileStore, folder: Path, spark: SparkSession) -> None:
    for kind in KINDS:
        store = copied(made, folder / kind, kind)
        write_kind(store.location, kind, AT, hint=True)
        forget_entries(store.location, AT)
        frame = spark.read.format("delta").load(store.location)
        assert in_order(row.asDict() for row in frame.collect()) == read(reopen(store)), kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_one_is_read_around(made: FileStore, folder: Path, kind: str) -> None:
    """Each of its files is lost, cut off, and damaged somewhere; and nothing is left but the damaged one."""
    store = copied(made, folder, kind)
    write_kind(store.location, kind, EARLIER)
    others = sidecars_of(store.location)
    files = write_kind(store.location, kind, AT, hint=True)
    expected = store.state(LAST)
    sidecars = [path for path in sidecars_of(store.location) if path not in others]
    assert len(sidecars) == 2 * KINDS[kind].sidecars
    assert len(files) == 3 if kind == "multi-part" else 1
    for path in (*files, *sidecars):
        whole = path.read_bytes()
        for damaged in (whole[:-40], whole[:9] + b"*" * 40 + whole[49:], b""):
            path.write_bytes(damaged)
            with pytest.raises(Corrupt) as caught:
                store.delta_log.checkpoint(AT)
            assert caught.value.code == "bad-delta-checkpoint"
            assert path.name in str(caught.value)
            assert reopen(store).state() == expected
        assert [f.code for f in examine(reopen(store)).problems] == [Invariant.CHECKPOINT]
        path.unlink()
        assert reopen(store).state() == expected
        path.write_bytes(whole)
    forget_entries(store.location, EARLIER)
    (sidecars or files)[0].write_bytes(b"PAR1")
    assert reopen(store).state() == expected, "the older checkpoint and entries are left"
    for version in range(EARLIER, AT):
        Path(store.location, layout.log_entry_path(version)).unlink()
    with pytest.raises(Corrupt) as caught:
        reopen(store).state()
    assert caught.value.code in ("bad-delta-checkpoint", "version-gap")


@pytest.mark.parametrize("kind", SIDECARS)
def test_a_lost_sidecar_without_entries_is_an_error_with_its_name(made: FileStore, folder: Path, kind: str) -> None:
    store = copied(made, folder, kind)
    write_kind(store.location, kind, AT)
    forget_entries(store.location, AT)
    gone = sidecars_of(store.location)[0]
    gone.unlink()
    with pytest.raises(Corrupt, match=rf"{gone.name} .* does not exist") as caught:
        reopen(store).state()
    assert caught.value.code == "bad-delta-checkpoint"


def test_a_sidecar_of_another_size_is_another_file(made: FileStore, folder: Path) -> None:
    """Another whole sidecar in its place has other files of the same table."""
    store = copied(made, folder, "v2-json")
    expected = store.state()
    write_kind(store.location, "v2-json", EARLIER)
    others = sidecars_of(store.location)
    write_kind(store.location, "v2-json", AT)
    for path in sidecars_of(store.location):
        if path not in others:
            shutil.copy(others[0], path)
    with pytest.raises(Corrupt, match=r"it has \d+ bytes instead of \d+"):
        store.delta_log.checkpoint(AT)
    assert reopen(store).state() == expected


@pytest.mark.parametrize("hint", [EARLIER, AT, 99])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_crash_leaves_is_as_if_it_were_not_there(made: FileStore, folder: Path, kind: str, hint: int) -> None:
    """Parts without the rest, sidecars without the file that names them, and a hint of what is not there."""
    store = copied(made, folder, kind)
    expected = store.state()
    write_kind(store.location, "classic", EARLIER, hint=True)
    written = write_kind(store.location, kind, AT)
    written[1 if kind == "multi-part" else 0].unlink()
    Path(store.location, layout.LAST_CHECKPOINT).write_text(json.dumps({"version": hint, "size": 1}))
    assert store.delta_log.checkpoints() == [EARLIER]
    assert reopen(store).state() == expected
    assert_healthy(reopen(store))
    if hint == EARLIER:
        assert_others_read(reopen(store), v2=KINDS[kind].v2)
    write_checkpoint(store.delta_log, replace(store.state(), replayed=Replayed(EARLIER, 10_000)))
    assert reopen(store).state() == expected


def test_only_sets_of_one_number_of_parts_are_complete() -> None:
    def part(number: int, parts: int) -> str:
        return f"{5:020d}.checkpoint.{number:010d}.{parts:010d}.parquet"

    unique = "0f2e1a68-7c0c-4a0b-8b4c-0d9c3c1b7a11"
    others = [f"{5:020d}.checkpoint.{unique}.json", f"{5:020d}.checkpoint.{unique.upper()}.parquet"]
    classic, entry = f"{5:020d}.checkpoint.parquet", f"{5:020d}.json"
    foreign = [
        f"{5:020d}.crc",
        part(0, 2),
        part(3, 2),
        f"{5:020d}.checkpoint.{unique}.crc",
        f"{5:020d}.checkpoint.json",
    ]
    listing = LogListing.of([part(1, 2), part(2, 3), part(3, 3), *foreign, entry])
    assert (listing.versions, listing.checkpoints) == ([5], [])
    assert listing.before(6) == [part(1, 2), part(2, 3), part(3, 3), entry]
    assert listing.before(5) == []
    listing = LogListing.of([part(2, 2), part(1, 2), part(1, 1), part(1, 3), *others, classic, entry])
    names = [files.names for files in listing.until(5)]
    assert names == [(classic,), (others[0],), (others[1],), (part(1, 1),), (part(1, 2), part(2, 2))] or names == [
        (classic,),
        (others[1],),
        (others[0],),
        (part(1, 1),),
        (part(1, 2), part(2, 2)),
    ]
    assert listing.until(4) == []


def test_of_several_of_a_version_a_whole_one_is_read(made: FileStore, folder: Path) -> None:
    store = copied(made, folder, "v2-json")
    expected = store.state()
    written = {kind: write_kind(store.location, kind, AT) for kind in KINDS if "classic-name" not in kind}
    forget_entries(store.location, AT)
    for kind, files in written.items():
        assert reopen(store).state() == expected, kind
        files[-1].write_bytes(b"PAR1xxxxPAR1")
    with pytest.raises(Corrupt):
        reopen(store).state()


Lines = list[dict[str, Any]]


def edit_lines(path: Path, edit: Callable[[Lines], Lines]) -> None:
    """Changes the actions of a checkpoint in JSON."""
    lines = edit([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def with_copies(lines: Lines) -> Lines:
    named = [line["sidecar"] for line in lines if "sidecar" in line]
    return [*lines, *({"sidecar": sidecar | {"path": f"copy-{sidecar['path']}"}} for sidecar in named)]


PARTS_THAT_DIFFER: dict[str, Callable[[Lines], Lines]] = {
    "each file is there twice": with_copies,
    "there is no protocol": lambda lines: [line for line in lines if "protocol" not in line],
    "there are two protocols": lambda lines: [*lines, *(line for line in lines if "protocol" in line)],
    "it is of another version": lambda lines: [{"checkpointMetadata": {"version": AT + 1}}, *lines[1:]],
    "it has an unknown action": lambda lines: [*lines[:-1], {"sidecaz": lines[-1]["sidecar"]}],
}


@pytest.mark.parametrize("change", ["two writers have mixed their parts", *PARTS_THAT_DIFFER])
def test_parts_that_do_not_belong_together_are_no_checkpoint(made: FileStore, folder: Path, change: str) -> None:
    kind = "v2-json" if change in PARTS_THAT_DIFFER else "multi-part"
    store = copied(made, folder, kind)
    expected = store.state()
    [path, *others] = write_kind(store.location, kind, AT)
    for other in others:
        shutil.copy(path, other)
    if not others:
        edit_lines(path, PARTS_THAT_DIFFER[change])
    for sidecar in sidecars_of(store.location):
        shutil.copy(sidecar, sidecar.with_name(f"copy-{sidecar.name}"))
    with pytest.raises(Corrupt) as caught:
        store.delta_log.checkpoint(AT)
    assert caught.value.code == "bad-delta-checkpoint"
    assert reopen(store).state() == expected


def named_otherwise(lines: Lines, name: str, to: str) -> Lines:
    """Gives a sidecar another name; other writers also write members that are null."""
    changed = [
        {"sidecar": line["sidecar"] | {"path": to}} if (line.get("sidecar") or {}).get("path") == name else line
        for line in lines
    ]
    return [line if "sidecar" in line else line | {"sidecar": None} for line in changed]


@pytest.mark.parametrize("path", ["{}", "_sidecars/{}", "file:/elsewhere/t/_delta_log/_sidecars/{}"])
def test_sidecars_are_found_by_their_names(made: FileStore, folder: Path, path: str) -> None:
    """Writers may store more than the name, and the table may have been moved since."""
    store = copied(made, folder, "v2-json")
    then = store.state(AT)
    [file] = write_kind(store.location, "v2-json", AT)
    for number, sidecar in enumerate(sidecars_of(store.location)):
        odd = sidecar.rename(sidecar.with_name(f"a b%é{number}.parquet"))
        renamed = path.format(layout.encode_path(odd.name))
        edit_lines(file, lambda lines, name=sidecar.name, to=renamed: named_otherwise(lines, name, to))  # type: ignore[misc]
    assert store.delta_log.checkpoint(AT).same(then)
    edit_lines(file, lambda lines: named_otherwise(lines, renamed, "x.json"))
    with pytest.raises(Corrupt, match=r"names a sidecar 'x\.json'"):
        store.delta_log.checkpoint(AT)
