"""Every kind of checkpoint that the Delta protocol allows is read, compared, and removed when it expires."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from filestore.commit.fence import fence_files
from filestore.commit.proposal import AppVersion
from filestore.delta.actions import FENCES
from filestore.delta.checkpoint import write_checkpoint
from filestore.delta.checkpoint_files import LogListing
from filestore.delta.state import Replayed
from filestore.doctor import examine
from filestore.errors import Corrupt, Unavailable, Unsupported
from filestore.life.expiry import expire
from filestore.life.orphans import clean_orphans
from filestore.life.tags import create_tag, delete_tag
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FaultyStorage
from tests.filestore.checkpoint_kinds import (
    FEATURE,
    KINDS,
    forget_entries,
    set_feature,
    sidecars_of,
    write_kind,
)
from tests.filestore.surgery import edit_entry
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


@pytest.mark.few(8)
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


@contextmanager
def spark_settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Has settings for what Delta does itself: it looks at the active session, which other tests may have left."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


@pytest.mark.few(1)
@pytest.mark.parametrize("main", ["json", "parts", "parquet"])
def test_what_delta_spark_writes_is_read(made: FileStore, folder: Path, spark: SparkSession, main: str) -> None:
    """It may commit nothing to the table, but it may write a checkpoint."""
    store = copied(made, folder, "multi-part" if main == "parts" else "v2-json")
    if main != "parts":
        policy = {"delta.checkpointPolicy": "v2"}
        edit_entry(store, 0, lambda actions: actions[2]["metaData"]["configuration"].update(policy))
    expected = reopen(store).state()
    delta = "spark.databricks.delta"
    settings = {f"{delta}.checkpoint.partSize": "3"}
    settings |= {} if main == "parts" else {f"{delta}.checkpointV2.topLevelFileFormat": main}
    with spark_settings(spark, settings):
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, store.location).checkpoint()
    [(version, [files])] = store.delta_log.listing().complete.items()
    assert files.names[0].endswith(".json" if main == "json" else ".parquet")
    assert (len(files.names), len(sidecars_of(store.location))) == ((3, 0) if main == "parts" else (1, 3))
    forget_entries(store.location, version)
    assert reopen(store).state() == expected
    assert_others_read(reopen(store), v2=main != "parts")


@pytest.mark.few(4)
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


@pytest.mark.few(8)
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


def first_add(lines: Lines) -> dict[str, Any]:
    return next(line["add"] for line in lines if "add" in line)


def twice(lines: Lines) -> None:
    lines.append({"add": first_add(lines)})


def rows_say(number: object) -> Callable[[Lines], None]:
    def edit(lines: Lines) -> None:
        stats = json.loads(first_add(lines)["stats"])
        first_add(lines)["stats"] = json.dumps(stats | {"numRecords": number}, separators=(",", ":"))

    return edit


def says(**members: object) -> Callable[[Lines], None]:
    return lambda lines: first_add(lines).update(members)


def lacks_of_vector(name: str) -> Callable[[Lines], None]:
    def edit(lines: Lines) -> None:
        vector = next(line["add"]["deletionVector"] for line in lines if line.get("add", {}).get("deletionVector"))
        vector[name] = None

    return edit


def other_feature(lines: Lines) -> None:
    features = next(line["protocol"]["writerFeatures"] for line in lines if "protocol" in line)
    features[features.index("invariants")] = "invarianus"


DAMAGES: dict[str, Callable[[Lines], None]] = {
    "a file twice": twice,
    **{f"{number!r} rows": rows_say(number) for number in ("5", 2.5, True, -3, None)},
    "statistics that end early": says(stats='{"numRecords":1,'),
    **{f"a vector without {name}": lacks_of_vector(name) for name in ("pathOrInlineDv", "sizeInBytes", "cardinality")},
    "another feature": other_feature,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_value_that_cannot_be_right_is_found_when_it_is_read(made: FileStore, folder: Path, damage: str) -> None:
    """There is no checksum. Found later, it was an error without an older checkpoint, or rows that were there twice."""
    store = copied(made, folder, "v2-json-flat")
    expected = store.delta_log.replayed(AT)
    [path] = write_kind(store.location, "v2-json-flat", AT)

    def edit(lines: Lines) -> Lines:
        DAMAGES[damage](lines)
        return lines

    edit_lines(path, edit)
    assert reopen(store).delta_log.at(AT) == expected
    forget_entries(store.location, AT)
    with pytest.raises((Corrupt, Unsupported)):
        reopen(store).delta_log.at(AT)


def test_a_partition_that_its_column_does_not_have_is_found(folder: Path) -> None:
    """Each plan with a condition on that column failed, with an error of Python."""
    store = create(
        folder / "t", define("id BIGINT, p INT", ["id", "p"], ["p"], checkpoint_interval=10_000), ambient=seeded(1)
    )
    set_feature(store.location)
    store = reopen(store)
    write(store, [{"id": number, "p": number % 2} for number in range(4)])
    expected = store.state()
    [path] = write_kind(store.location, "v2-json-flat", 1)

    def edit(lines: Lines) -> Lines:
        first_add(lines)["partitionValues"] = {"p": "x"}
        return lines

    edit_lines(path, edit)
    assert reopen(store).delta_log.at(1) == expected
    forget_entries(store.location, 1)
    with pytest.raises(Corrupt):
        reopen(store).delta_log.at(1)


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


def aged(store: FileStore) -> None:
    """Makes all sidecars older than a day by the clock of the tests."""
    for path in sidecars_of(store.location):
        os.utime(path, (1, 1))


def next_version(store: FileStore) -> None:
    write(store, [{"id": 5, "p": "é x", "s": store.state().version}])


def expiring(folder: Path, kind: str) -> FileStore:
    """A table that keeps one version, and another one by a tag."""
    store = table(folder, **KEEP_FEW)
    delete_tag(store, "kept")
    if KINDS[kind].v2:
        set_feature(store.location)
    create_tag(store, "held", AT)
    return reopen(store)


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_expiry_removes_all_of_an_expired_one(folder: Path, kind: str) -> None:
    store, each = expiring(folder, kind), 3 if kind == "multi-part" else 1
    write_kind(store.location, kind, EARLIER)
    former = sidecars_of(store.location)
    write_kind(store.location, kind, AT, hint=True)
    later = [path for path in sidecars_of(store.location) if path not in former]
    write_kind(store.location, kind, LAST)
    last = [path for path in sidecars_of(store.location) if path not in former + later]
    assert len(former) == len(later) == len(last)
    Path(store.location, "_delta_log", f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet").write_bytes(b"")
    expected = read(store)
    assert expire(store).log_entries == AT + 1 + each
    assert sidecars_of(store.location) == sorted(former + later + last), "they are young"
    assert list(store.delta_log.listing().stored) == [AT, LAST]
    assert read(reopen(store)) == expected
    assert_others_read(reopen(store), v2=KINDS[kind].v2)
    assert_healthy(reopen(store))

    aged(store)
    assert {f.code for f in examine(reopen(store)).findings} == ({Invariant.ORPHAN} if former else set())
    orphans = clean_orphans(store, 0, dry_run=True, even_young=True)
    assert [left.path for left in orphans] == [str(path.relative_to(store.location)) for path in former]
    delete_tag(store, "held")
    assert expire(store).log_entries == LAST - AT + each
    assert sidecars_of(store.location) == last
    assert store.delta_log.checkpoints() == [LAST]
    assert read(reopen(store)) == expected
    assert_others_read(reopen(store), v2=KINDS[kind].v2)
    assert_healthy(reopen(store))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIDECARS)
def test_a_sidecar_stays_as_long_as_a_checkpoint_names_it(folder: Path, kind: str) -> None:
    store = expiring(folder, kind)
    version = store.state().version
    write_kind(store.location, kind, version - 1)
    shared = sidecars_of(store.location)
    write_kind(store.location, kind, version, hint=True, reuse=shared)  # a tag has changed no file
    assert sidecars_of(store.location) == shared
    assert store.delta_log.checkpoint(version).same(store.state())
    delete_tag(store, "held")
    aged(store)
    expected = read(store)
    assert expire(store).log_entries == version + 1
    assert store.delta_log.checkpoints() == [version]
    assert clean_orphans(store, 0, dry_run=False, even_young=True) == []
    assert sidecars_of(store.location) == shared
    assert read(reopen(store)) == expected
    assert_others_read(reopen(store), v2=True)
    assert_healthy(reopen(store))

    next_version(store)
    write_checkpoint(store.delta_log, replace(store.state(), replayed=Replayed(version, 10_000)))
    expected = read(store)
    assert expire(store).log_entries
    assert sidecars_of(store.location) == []
    assert read(reopen(store)) == expected
    assert_healthy(reopen(store))


@pytest.mark.parametrize("kind", SIDECARS)
def test_a_clean_up_removes_sidecars_without_a_checkpoint(made: FileStore, folder: Path, kind: str) -> None:
    """A writer died before it wrote the file that names them. The clean-up took all sidecars for data files."""
    store = copied(made, folder, kind)
    [main] = write_kind(store.location, kind, AT)
    gone = sidecars_of(store.location)
    main.unlink()
    write_kind(store.location, kind, EARLIER)
    assert clean_orphans(store, 0, dry_run=False, even_young=True) == []
    aged(store)
    [damaged] = Path(store.location, "_delta_log").glob(f"{EARLIER:020d}.checkpoint*")
    whole = damaged.read_bytes()
    damaged.write_bytes(b"PAR1xxxxPAR1")
    assert clean_orphans(store, 0, dry_run=False, even_young=True) == [], "it may name any of them"
    damaged.write_bytes(whole)
    assert len(clean_orphans(store, 0, dry_run=False, even_young=True)) == len(gone)
    assert [path for path in gone if path.exists()] == []
    assert store.delta_log.checkpoint(EARLIER).same(store.state(EARLIER))
    assert_healthy(reopen(store))


@pytest.mark.few(5)
@pytest.mark.parametrize("call", range(1, 8))
@pytest.mark.parametrize("kind", ["multi-part", "v2-json"])
def test_an_expiry_that_dies_leaves_what_all_readers_read(folder: Path, kind: str, call: int) -> None:
    """No reader takes what is left of an expired checkpoint."""
    store = expiring(folder, kind)
    for version in (EARLIER, AT, LAST):
        write_kind(store.location, kind, version, hint=True)
    delete_tag(store, "held")
    aged(store)
    expected, left = read(store), [call * 2]

    def dies(made: Call) -> None:
        if made.operation in ("delete", "delete_all") and "_delta_log" in made.path and not made.done:
            left[0] -= 1
            if left[0] == 0:
                raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        expire(reopen(store, FaultyStorage(LocalStorage(), dies)))
    assert read(reopen(store)) == expected
    assert_others_read(reopen(store), v2=KINDS[kind].v2)
    expire(reopen(store))
    assert store.delta_log.checkpoints() == [LAST]
    assert_healthy(reopen(store))


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_doctor_and_an_expiry_find_one_that_is_not_what_the_entries_say(folder: Path, kind: str) -> None:
    store = expiring(folder, kind)
    delete_tag(store, "held")
    written = write_kind(store.location, kind, AT, without=1)
    [finding] = examine(reopen(store)).problems
    assert (finding.code, finding.message) == (
        Invariant.CHECKPOINT,
        f"the checkpoint of version {AT} differs from the log in files, totals",
    )
    assert expire(store).log_entries == 0
    if kind != "classic":
        write_kind(store.location, "classic", AT)
        if "classic-name" not in kind:
            assert [f.code for f in examine(reopen(store)).problems] == [Invariant.CHECKPOINT]
            assert expire(store).log_entries == 0, "other readers may choose the wrong one"
    for path in written:
        path.unlink()
    write_kind(store.location, "classic", AT)
    next_version(store)
    next_version(store)
    assert expire(store).log_entries == AT
    assert_healthy(reopen(store))


def test_deltalake_writes_v2_by_the_classic_name(made: FileStore, folder: Path) -> None:
    """It does so in a table with the feature."""
    store = copied(made, folder, "v2-json")
    expected = store.state()
    deltalake.DeltaTable(store.location).create_checkpoint()
    path = Path(store.location, layout.checkpoint_path(expected.version))
    assert "checkpointMetadata" in pq.read_schema(path).names
    forget_entries(store.location, expected.version)
    assert reopen(store).state() == expected
    assert_others_read(reopen(store), v2=True)


def test_a_table_with_the_feature_keeps_it(made: FileStore, folder: Path) -> None:
    """Without it Spark refuses its V2 checkpoints. Ours are the classic ones there, too."""
    store = copied(made, folder, "v2-json")
    edit_entry(store, 0, lambda actions: actions[1]["protocol"]["writerFeatures"].remove(FENCES))
    store = reopen(store)
    assert not store.state().fences
    fence_files(store, [layout.change_path("none")])
    assert store.state().fences, "the commit has a new protocol"
    for kind in ("readerFeatures", "writerFeatures"):
        assert FEATURE in store.state().protocol[kind]
    next_version(store)
    assert write_checkpoint(store.delta_log, store.state()) is not None
    forget_entries(store.location, store.state().version)
    assert reopen(store).state() == store.state()
    assert_others_read(reopen(store), v2=True)
    assert (
        "checkpointMetadata"
        not in pq.read_schema(Path(store.location, layout.checkpoint_path(store.state().version))).names
    )


@given(st.data())
def test_any_mix_of_kinds_is_what_the_entries_say(data: st.DataObject) -> None:
    with memory_folder() as folder:
        store = create(
            folder / "t",
            define("id BIGINT, p STRING, s BIGINT", ["id", "p"], ["p"], write__mode="merge-on-read", bucket=1),
            ambient=seeded(1),
        )
        set_feature(store.location)
        store = reopen(store)
        for version in range(data.draw(st.integers(1, 7))):
            ids = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))
            rows = [{"id": n, "p": p, "s": version} for n in ids for p in data.draw(st.sampled_from(["x", "xy"]))]
            write(store, rows, later=data.draw(st.booleans()))
        last = store.state().version
        states = [store.state(version) for version in range(last + 1)]
        log = store.delta_log
        for version in range(last + 1):
            for kind in data.draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=2, unique=True)):
                written = write_kind(store.location, kind, version, hint=data.draw(st.booleans()))
                if written and data.draw(st.integers(0, 4)) == 0:  # none, if another kind has its name already
                    data.draw(st.sampled_from(written)).unlink()
        for state in states:
            assert log.replayed(state.version) == state
            assert reopen(store).state(state.version) == state
            for files in log.listing().complete.get(state.version, ()):
                assert log.read_checkpoint(files) == state
        forget_entries(store.location, min(log.checkpoints(), default=0))
        assert reopen(store).state() == states[-1]


def test_a_damaged_one_of_the_classic_name_is_replaced_though_parts_are_whole(made: FileStore, folder: Path) -> None:
    """Readers that choose it would fail."""
    store = copied(made, folder, "multi-part")
    write_kind(store.location, "multi-part", LAST)
    path = Path(store.location, layout.checkpoint_path(LAST))
    path.write_bytes(b"PAR1xxxxPAR1")
    write_checkpoint(store.delta_log, store.state())
    assert [len(files.names) for files in store.delta_log.listing().until(LAST)] == [1, 3]
    assert_healthy(reopen(store))
    forget_entries(store.location, LAST)
    assert_others_read(reopen(store), v2=False)
