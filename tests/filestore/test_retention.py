"""What an expiry decides, purely: which versions stay, which files nobody needs, which log entries may go."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.delta.actions import add_action, remove_action
from filestore.delta.by_slot import BySlot
from filestore.delta.checkpoint_files import LogListing
from filestore.delta.columns import ColumnFiles
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.errors import InvalidRequest
from filestore.layout import checkpoint_path, log_entry_path, parse_log_entry
from filestore.life.expiry import base_checkpoint, first_to_keep, removable_entries
from filestore.life.tags import Period, last_period, surplus_tags
from filestore.model.files import DataFile, DeletionVector, Slot
from filestore.retention.lifetimes import Lifetimes, Retained
from filestore.retention.paths import Paths, named_by, runs_of
from filestore.retention.rules import Tag, check_tag_name, first_retained, is_retained, tag_of, tags_of
from tests.tables import define

NOTHING: frozenset[int] = frozenset()


def state(version: int, first: int = 0, tags: dict[str, int] | None = None, **options: object) -> TableState:
    domains = {"tablestore.retention": json.dumps({"first": first})} if first else {}
    for name, tagged in (tags or {}).items():
        domains[f"tablestore.tag.{name}"] = json.dumps(Tag(name, tagged, 5, 6).to_json())
    return TableState(version, 0, "t", define("id BIGINT", ["id"], **options), domains=domains)


# what the options keep ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current_then", "held", "options", "first"),
    [
        (0, NOTHING, {}, 0),
        (60, NOTHING, {}, 60),
        (95, NOTHING, {}, 91),  # ten are kept whatever their age
        (60, frozenset([70]), {}, 60),
        (60, frozenset([40, 70]), {}, 40),
        (10, NOTHING, {"snapshot_num__retained_max": 20}, 81),  # too many, however young
        (90, NOTHING, {"snapshot_num__retained_max": 20}, 90),
        (10, frozenset([30]), {"snapshot_num__retained_max": 20}, 30),
        (100, NOTHING, {"snapshot_num__retained_min": 1}, 100),
    ],
)
def test_the_first_version_that_is_kept(
    current_then: int, held: frozenset[int], options: dict[str, object], first: int
) -> None:
    assert first_to_keep(state(100, **options), current_then, held) == first


def test_what_has_expired_stays_so() -> None:
    assert first_to_keep(state(100, first=50), 20, NOTHING) == 50
    assert first_to_keep(state(100, first=50), 60, frozenset([7])) == 50


def test_fewer_may_not_be_the_most() -> None:
    with pytest.raises(InvalidRequest, match=r"max = 3 is below .*min = 10"):
        define("id BIGINT", ["id"], snapshot_num__retained_max=3)


def test_retained_and_tagged_versions_can_be_read() -> None:
    known = state(9, first=5, tags={"a": 2, "b": 7})
    assert [v for v in range(-1, 11) if is_retained(known, v)] == [2, 5, 6, 7, 8, 9]
    assert (first_retained(known), list(tags_of(known)), tag_of(known, "a").version) == (5, ["a", "b"], 2)


@pytest.mark.parametrize("name", ["", "7", "-a", ".", "a/b", "a b", "é", "a" * 101, "a\n"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name for a tag"):
        check_tag_name(name)


@pytest.mark.parametrize("name", ["a", "2026-01-31", "0a", "a.b_c-d", "a" * 100])
def test_names_that_are_taken(name: str) -> None:
    check_tag_name(name)


# automatic tags -------------------------------------------------------------------------------------------------------

HOUR, DAY = 3_600_000, 86_400_000


def test_the_last_period() -> None:
    now = 20_000 * DAY  # 2024-10-04T00:00Z
    assert last_period("daily", now) == last_period("daily", now + DAY - 1) == Period("2024-10-03", now - 1)
    assert last_period("hourly", now) == Period("2024-10-03-23", now - 1)
    assert last_period("hourly", now + HOUR) == Period("2024-10-04-00", now + HOUR - 1)


def test_the_oldest_automatic_tags_are_too_many() -> None:
    tags = [Tag("mine", 0, 0, 0), *(Tag(f"d{n}", n, 0, 0, automatic=True) for n in (3, 1, 2))]
    assert [tag.name for tag in surplus_tags(tags, 1)] == ["d1", "d2"]
    assert surplus_tags(tags, 3) == surplus_tags(tags, None) == ()


# lifetimes ------------------------------------------------------------------------------------------------------------

Versions = list[dict[str, int | None]]
SLOT = Slot((), 0)


def file(path: str, vector: int | None = None) -> DataFile:
    made = None if vector is None else DeletionVector("u", chr(48 + vector) * 20, 1, 10, 1)
    return DataFile(path, SLOT, 1, 2, 0, '{"numRecords":2}', vector=made)


def actions(before: dict[str, int | None], after: dict[str, int | None]) -> list[dict[str, Any]]:
    changed = [p for p in before if p not in after or before[p] != after[p]]
    added = [p for p in after if p not in before or before[p] != after[p]]
    return [remove_action(file(p, before[p]), 0, data_change=True) for p in changed] + [
        add_action(file(p, after[p]), data_change=True) for p in added
    ]


def names(version: dict[str, int | None]) -> set[str]:
    vectors = {vector_file(v) for p, n in version.items() if (v := file(p, n).vector) is not None}
    return set(version) | vectors


PATHS = ["a", "b %", "c", "d"]
EVERY = set().union(*(names(dict.fromkeys(PATHS, n)) for n in (None, *range(6))))
VERSIONS = st.lists(st.dictionaries(st.sampled_from(PATHS), st.none() | st.integers(0, 5)), min_size=1, max_size=12)


@given(VERSIONS, st.data())
def test_a_file_is_unneeded_if_no_kept_version_has_it(versions: Versions, data: st.DataObject) -> None:
    """Versions may come back to what they were, as after a rollback."""
    newest = len(versions) - 1
    begin = data.draw(st.integers(0, newest), label="oldest version that is left")
    first = data.draw(st.integers(begin, newest), label="first retained")
    tagged = data.draw(st.sets(st.integers(begin, newest)), label="tagged")
    entries = [(n, actions(versions[n - 1], versions[n])) for n in range(newest, begin, -1)]
    lives = Lifetimes.of(version_of(begin, versions[begin]), (), entries)
    kept = {v for v in range(begin, newest + 1) if v >= first or v in tagged}
    named = set().union(*(names(v) for v in versions[begin:]))
    needed = set().union(*(names(versions[v]) for v in kept))
    retained, end = Retained(first, tuple(sorted(tagged))), version_of(newest, versions[newest])
    assert lives.needed(retained, end) == needed - names(versions[newest])
    assert lives.unneeded(retained, end) == tuple(sorted(named - needed))
    assert lives.version == newest


def version_of(number: int, version: dict[str, int | None]) -> TableState:
    """A version, of whose files some are columns and others not."""
    files = BySlot(file(p, n) for p, n in version.items())
    base = BySlot.on(ColumnFiles.of(files, ()))
    gone = [found for path in PATHS[:2] if (found := files.get(path, SLOT)) is not None]
    again = base.changed([(found.path, SLOT) for found in gone], []).changed([], gone)
    return TableState(number, 0, "t", define("id BIGINT", ["id"]), again)


Entry = list[dict[str, Any]]


def lifetimes(*entries: Entry, oldest: TableState | None = None) -> Lifetimes:
    """Of versions from 0 on; the first entry is that of version 1."""
    later = [(number, entry) for number, entry in enumerate(entries, 1)]
    return Lifetimes.of(oldest or version_of(0, {}), (), reversed(later))


@pytest.mark.parametrize("there", [{"a": None}, {}])
def test_a_file_that_is_added_again_without_a_removal_lives_on(there: dict[str, int | None]) -> None:
    """No writer of ours does so. A tag of the oldest version that has the file needs it all the same."""
    again = [add_action(file("a"), data_change=False)]
    gone = [remove_action(file("a"), 0, data_change=True)]
    lives = lifetimes(again, again, again, gone, oldest=version_of(0, there))
    end = version_of(4, {})
    assert lives.unneeded(Retained(4), end) == ("a",)
    assert lives.needed(Retained(4, (1,)), end) == {"a"}
    assert lives.needed(Retained(4, (0,)), end) == set(there)


def test_a_file_of_vectors_is_needed_while_one_data_file_has_a_vector_in_it() -> None:
    [vectors] = names({"a": 1}) - {"a"}
    oldest = version_of(0, {"a": 1, "b": 1})
    gone = [[remove_action(file(path, 1), 0, data_change=True)] for path in "ab"]
    assert lifetimes(gone[0], oldest=oldest).unneeded(Retained(1), version_of(1, {"b": 1})) == ("a",)
    all_gone = lifetimes(*gone, oldest=oldest)
    assert all_gone.unneeded(Retained(2), version_of(2, {})) == tuple(sorted(["a", "b", vectors]))
    assert all_gone.needed(Retained(2, (1,)), version_of(2, {})) == {"b", vectors}
    assert all_gone.needed(Retained(2, (0,)), version_of(2, {})) == {"a", "b", vectors}


def test_runs_live_as_long_as_a_domain_names_them() -> None:
    run, other = (f"_runs/bucket-00000/{name}.parquet" for name in "xy")
    configuration = json.dumps({"pending": [{"path": run, "rows": 3}], "note": "see _runs/"})
    assert runs_of(configuration) == {run}

    def domain(text: str, *, removed: bool = False) -> dict[str, Any]:
        return {"domainMetadata": {"domain": "d", "configuration": text, "removed": removed}}

    lives = lifetimes([domain(configuration)], [], [domain("{}", removed=True)])
    end = version_of(3, {})
    assert lives.unneeded(Retained(2), end) == ()
    assert lives.unneeded(Retained(3), end) == (run,)
    assert lives.unneeded(Retained(3, (1,)), end) == ()
    oldest = replace(version_of(0, {}), domains={"d": configuration})
    changed = lifetimes([], [domain(configuration.replace(run, other))], oldest=oldest)
    assert changed.spans == {run: [(0, 1)]}
    assert changed.unneeded(Retained(2), replace(version_of(2, {}), domains={"d": configuration})) == ()


def test_change_files_live_in_their_version_only() -> None:
    change = [{"cdc": {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 1}}]
    lives, end = lifetimes(change, []), version_of(2, {})
    assert lives.unneeded(Retained(1), end) == ()
    assert lives.unneeded(Retained(2), end) == ("_change_data/x.parquet",)
    assert lives.unneeded(Retained(2, (0,)), end) == ("_change_data/x.parquet",)
    assert lives.unneeded(Retained(2, (1,)), end) == ()
    assert lifetimes(change).needed(Retained(0), version_of(1, {})) == set(), "the newest version's"


@given(VERSIONS, st.integers(0, 12), st.sampled_from([0, 1, 100_000]))
def test_paths_are_all_that_versions_name(versions: Versions, begin: int, together: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("filestore.retention.paths._TOGETHER", together)
        paths = Paths.of_version(version_of(begin, dict(versions[min(begin, len(versions) - 1)])))
        expected = names(versions[min(begin, len(versions) - 1)])
        for number in range(begin + 1, len(versions)):
            for action in actions(versions[number - 1], versions[number]):
                paths.update(named_by(action))
            expected |= names(versions[number])
        assert {path for path in EVERY if path in paths} == expected


# log entries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retained", "versions", "checkpoints", "base", "gone"),
    [
        (Retained(25), range(31), (10, 20, 30), 20, range(20)),
        (Retained(25, (12,)), range(31), (10, 20, 30), 10, range(10)),
        (Retained(25, (3,)), range(31), (10, 20, 30), 0, ()),
        (Retained(20), range(31), (10, 20, 30), 20, range(20)),
        (Retained(25), range(31), (), 0, ()),
        (Retained(25), range(15, 31), (10, 20), 20, (10, *range(15, 20))),  # an expiry was interrupted
        (Retained(15), range(12, 31), (10, 20), 0, ()),  # 10 has no entry any more, so nothing stands on it
    ],
)
def test_entries_go_below_the_checkpoint_that_all_stand_on(
    retained: Retained, versions: range, checkpoints: tuple[int, ...], base: int, gone: range | tuple[int, ...]
) -> None:
    assert base_checkpoint(retained, list(versions), list(checkpoints)) == base
    paths = [*map(log_entry_path, versions), *map(checkpoint_path, checkpoints)]
    names = removable_entries(retained, LogListing.of(path.rpartition("/")[2] for path in paths))
    found = [entry.version for name in names if (entry := parse_log_entry(name))]
    assert found == sorted(v for v in (*versions, *checkpoints) if v in gone), "oldest first"
