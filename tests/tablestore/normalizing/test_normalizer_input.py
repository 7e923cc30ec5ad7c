"""What feeds normalizers: topics' batches over restarts, and the parts of an input in tasks."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import Conflict, InvalidRequest, NotFound
from log.connector.ranges import PartitionRange
from tablestore.normalizing.normalizer import Normalizer
from tablestore.normalizing.parts import OpenNormalizers, opened_part
from tablestore.normalizing.progress import Positions
from tablestore.topics.changes import followed_changes
from tablestore.topics.offsets import named, offsets_of
from tablestore.topics.ranges import check_follows, pieces_of
from tablestore.topics.spec import is_complete, spec_of
from tests.folders import memory_folder
from tests.log.connector.tables import KAFKA, UPSERT, declared
from tests.tablestore.normalizing.upserts import Known, Upsert, after, between, changed, listed, rows_of, spec

UPSERTS = st.lists(
    st.tuples(st.sampled_from(["+U", "+U", "-D"]), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=8
)


@pytest.mark.slow
@given(batches=st.lists(UPSERTS, max_size=5), takes=st.lists(st.integers(0, 4), max_size=4))
def test_a_reader_that_begins_again_misses_nothing(batches: Sequence[list[Upsert]], takes: Sequence[int]) -> None:
    """Each reader takes some batches and is gone: the one that it had in hand comes again, whole, and no other."""
    steps: list[list[Upsert]] = []
    rows: Known = {}
    for batch in batches:
        now = after(rows, batch)
        steps.append(between(rows, now))
        rows = now
    wanted = [step for step in steps if step]
    at = 0
    with memory_folder() as folder:
        for most in [*takes, 1000]:
            with Normalizer(spec(folder / "state")) as normalizer:
                begin = normalizer.positions.get("t/0", 0)
                rest = ((rows_of(batch), {"t/0": begin + n + 1}) for n, batch in enumerate(batches[begin:]))
                found = [listed(b) for _, b in zip(range(most), followed_changes(normalizer, rest), strict=False)]
            assert found == wanted[at : at + most]
            at = at + most - 1 if 0 < most == len(found) else at + len(found)


@pytest.mark.slow
def test_what_was_delivered_does_not_come_again() -> None:
    with memory_folder() as folder:
        normalizer = Normalizer(spec(folder / "state"))
        assert normalizer.undelivered() is None
        first = normalizer.apply(rows_of([("+U", 1, 1)]), {"0": 1})
        assert changed(Normalizer(spec(folder / "state")).undelivered() or ()) == [("+I", 1, 1)]
        normalizer.delivered(first)
        assert Normalizer(spec(folder / "state")).undelivered() is None
        other = Normalizer(spec(folder / "state"))
        other.delivered(other.apply(rows_of([("+U", 1, 2)]), {"0": 2}))
        with pytest.raises(Conflict) as caught:
            normalizer.delivered(first)
        assert caught.value.code == "consumer-taken"


def test_parts_have_states_of_their_own_and_repeat_what_they_gave() -> None:
    with memory_folder() as folder:
        whole = pickle.loads(pickle.dumps(spec(folder / "state")))
        ends: Positions = {"0": 5}
        first = changed(opened_part(whole, "0").apply(rows_of([("+U", 1, 1)]), ends))
        assert first == [("+I", 1, 1)] == changed(opened_part(whole, "0").apply(rows_of([("+U", 1, 9)]), ends))
        assert changed(opened_part(whole, "1").apply(rows_of([("+U", 1, 2)]), {"1": 3})) == [("+I", 1, 2)]
        assert changed(opened_part(whole, "0").apply(rows_of([("-D", 1, 0)]), {"0": 6})) == [("-D", 1, 1)]


def test_few_normalizers_stay_open() -> None:
    with memory_folder() as folder:
        kept = OpenNormalizers(most=1)
        first = kept.of(spec(folder / "a"))
        assert kept.of(pickle.loads(pickle.dumps(spec(folder / "a")))) is first
        kept.of(spec(folder / "b"))
        assert kept.of(spec(folder / "a")) is not first
        kept.close()


def test_positions_say_whose_offsets_they_are() -> None:
    assert offsets_of("x", named("x", {0: 7, 11: 3}), "it") == {0: 7, 11: 3}
    with pytest.raises(NotFound) as caught:
        offsets_of("y", named("x", {0: 7}), "the state at s")
    assert caught.value.code == "topic-replaced"


def test_which_topics_need_a_normalizer() -> None:
    keyed = "id BIGINT, v INT, at TIMESTAMP METADATA FROM 'timestamp', PRIMARY KEY (id) NOT ENFORCED"
    assert not is_complete(declared(keyed, UPSERT))
    assert is_complete(declared("id BIGINT", KAFKA))
    changes = declared("id BIGINT, v INT", KAFKA, value_format="debezium-json")
    assert not is_complete(changes)
    with pytest.raises(InvalidRequest) as caught:
        spec_of(changes, "s", None)
    assert caught.value.code == "no-primary-key"
    assert spec_of(declared(keyed, UPSERT), "s", ["at"]).definition.schema.names == ("id", "at")


@given(start=st.integers(0, 10), length=st.integers(0, 400_000))
def test_a_range_has_few_pieces_that_follow_each_other(start: int, length: int) -> None:
    pieces = pieces_of(PartitionRange(3, start, start + length))
    ends = [start, *(piece.end for piece in pieces)]
    assert [piece.start for piece in pieces] == ends[:-1]
    assert ends[-1] == start + length
    assert len(pieces) <= 4
    assert all(piece.start < piece.end for piece in pieces)


@pytest.mark.parametrize(
    ("known", "part", "goes"),
    [
        (None, (5, 9), True),  # the reader sets out
        (None, (9, 12), False),  # the state is gone, or on another worker's disk
        (9, (9, 12), True),
        (8, (9, 12), False),
        (12, (9, 12), True),  # the batch comes again
        (50_009, (9, 90_000), True),  # the rest of it
        (50_008, (9, 90_000), False),  # another reader's
    ],
)
def test_a_state_goes_on_where_its_batches_do(known: int | None, part: tuple[int, int], goes: bool) -> None:
    found = True
    try:
        check_follows("the state", known, PartitionRange(0, *part), 5)
    except InvalidRequest as error:
        found = error.code != "state-gap"
    assert found is goes
