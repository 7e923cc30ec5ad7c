"""A shallow run has a part of the tests of a deep run, and the shares of a deep run together have all of them."""

from __future__ import annotations

import itertools

import pytest

from tests.depth import Depth, Share, TimeLimit, few, sampled


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SHARE", raising=False)


@pytest.mark.parametrize("length", range(8))
@pytest.mark.parametrize("count", range(1, 5))
def test_a_sample_is_a_part_in_order_with_both_ends(length: int, count: int) -> None:
    cases = list(range(length))
    assert Depth.DEEP.sample(cases, count) == cases
    chosen = Depth.TEST.sample(cases, count)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, length)
    assert set(chosen) <= set(cases)
    assert chosen[:1] == cases[:1]
    assert chosen[1:][-1:] == cases[1:][-1:][: len(chosen) - 1]
    assert chosen == Depth.TEST.sample(cases, count)


def test_few_cases_of_a_test_are_the_same_ones_each_time() -> None:
    assert few(9, 1) == {0}
    assert few(9, 2) == {0, 8}
    assert len(few(9, 4)) == 4
    assert few(9, 4) == few(9, 4) > few(9, 3) > few(9, 2)
    assert few(3, 9) == {0, 1, 2}


def test_a_run_without_a_limit_of_time_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_MINUTES", raising=False)
    assert TimeLimit.of_this_run() is None
    monkeypatch.setenv("TEST_MINUTES", "")
    assert TimeLimit.of_this_run() is None


def test_a_limit_of_time_is_over_when_its_minutes_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MINUTES", "0.5")
    now = 1000.0
    monkeypatch.setattr("tests.depth.time.monotonic", lambda: now)
    limit = TimeLimit.of_this_run()
    assert limit is not None
    now += 29.9
    assert not limit.is_over()
    now += 0.2
    assert limit.is_over()


def test_a_shallow_count_leaves_numbers_out() -> None:
    assert list(itertools.islice(Depth.TEST.counting(5), 4)) == [1, 6, 11, 16]
    assert list(itertools.islice(Depth.DEEP.counting(5), 4)) == [1, 2, 3, 4]


def test_a_deep_sample_may_leave_cases_out_but_in_the_end_has_each() -> None:
    assert {tuple(Depth.DEEP.sample("abcde", 1, deep=2)) for _ in range(200)} == {("a", "c", "e"), ("b", "d")}
    assert Depth.DEEP.sample("a", 1, deep=2) == ["a"]
    assert Depth.DEEP.sample("", 1, deep=2) == []


def test_a_deep_count_may_leave_numbers_out_but_in_the_end_has_each() -> None:
    begun = {tuple(itertools.islice(Depth.DEEP.counting(9, deep=3), 4)) for _ in range(200)}
    assert begun == {(1, 2, 5, 8), (1, 3, 6, 9), (1, 4, 7, 10)}


def test_a_shallow_run_repeats_less() -> None:
    assert Depth.TEST.times(2, 5) == 2
    assert Depth.DEEP.times(2, 5) == 5


def test_rare_tests_of_a_share_take_turns() -> None:
    tests = [f"tests/test_{number}.py::test" for number in range(200)]
    share = Share(2, 3)
    turns = [{test for test in tests if share.has(test, 4, seed)} for seed in range(4)]
    assert set().union(*turns) == {test for test in tests if share.has(test)}
    assert sum(map(len, turns)) == len(set().union(*turns))
    assert all(turns)


def test_a_share_has_a_part_of_the_cases_and_repeats_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SHARE", "2/3")
    twelve = {tuple(Depth.DEEP.sample("abcdefghijkl", 1)) for _ in range(400)}
    assert twelve == {("a", "g"), ("b", "h"), ("c", "i"), ("d", "j"), ("e", "k"), ("f", "l")}
    assert {tuple(Depth.DEEP.sample("abcdefg", 1, deep=2)) for _ in range(400)} == set(map(tuple, "abcdefg"))
    assert {tuple(Depth.DEEP.sample("abcde", 2)) for _ in range(200)} == {("a", "c", "e"), ("b", "d")}
    assert {tuple(Depth.DEEP.sample("abcde", 5)) for _ in range(200)} == {tuple("abcde")}
    assert {tuple(itertools.islice(Depth.DEEP.counting(9), 2)) for _ in range(400)} == {(1, n) for n in range(2, 8)}
    assert {tuple(itertools.islice(Depth.DEEP.counting(2), 2)) for _ in range(200)} == {(1, 2), (1, 3)}
    assert Depth.DEEP.times(2, 50) == 9
    assert Depth.DEEP.times(2, 3) == 2
    assert Depth.TEST.times(2, 50) == 2


@pytest.mark.parametrize(("fast", "test"), [(4, 1), (4, 2), (2, 4), (1, 1), (100, 100)])
def test_parametrized_cases_keep_their_order_and_are_marked(fast: int, test: int) -> None:
    cases = sampled(range(10), fast, test)
    assert [case.values for case in cases] == [(n,) for n in range(10)]
    slow, deep = ([name in {mark.name for mark in case.marks} for case in cases] for name in ("slow", "deep"))
    assert slow.count(False) == -(-10 // fast)
    assert deep.count(False) == -(-10 // min(fast, test))
    assert all(s for s, d in zip(slow, deep, strict=True) if d), "a deep one is never fast"


def test_cases_of_several_values() -> None:
    assert [case.values for case in sampled([(1, 2), (3, 4)], 2, names=2)] == [(1, 2), (3, 4)]


def test_each_test_is_in_one_share() -> None:
    shares = [Share(part, 3) for part in (1, 2, 3)]
    tests = [f"tests/test_a.py::test_{n}" for n in range(300)]
    found = [[share.has(test) for share in shares].count(True) for test in tests]
    assert found == [1] * 300
    assert all(60 < sum(map(share.has, tests)) < 140 for share in shares)


def test_a_share_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SHARE", "2/3")
    assert Share.of_this_run() == Share(2, 3)
    monkeypatch.setenv("TEST_SHARE", "")
    assert Share.of_this_run() is None
