"""A lease is dead if nobody renewed it for the time-out, by the clock of the one who looks, and by two of its looks."""

from __future__ import annotations

import pytest

from filestore.leases.watch import Look, Watch


def after(*looks: tuple[float, dict[str, str]]) -> Watch:
    """What is known after looks, each of which took a second."""
    watch = Watch()
    for asked_s, tags in looks:
        watch = watch.after(Look(tags, asked_s, asked_s + 1))
    return watch


def test_nothing_is_known_without_a_look_or_after_one() -> None:
    assert Watch().dead(0.0) == frozenset()
    assert after((1e9, {"c": "1"})).dead(60) == frozenset()


@pytest.mark.parametrize(("asked_s", "dead"), [(160.9, False), (161.0, True), (9e9, True)])
def test_the_same_tag_for_the_whole_time(asked_s: float, dead: bool) -> None:
    """From the end of the first look to the begin of the last: what a slow store takes does not count."""
    assert after((100, {"c": "1"}), (asked_s, {"c": "1"})).dead(60) == ({"c"} if dead else frozenset())


def test_looks_in_between_change_nothing() -> None:
    assert after(*((100 + n, {"c": "1"}) for n in range(62))).dead(60) == {"c"}
    assert after(*((100 + n, {"c": "1"}) for n in range(61))).dead(60) == frozenset()


def test_a_renewal_begins_the_time_anew() -> None:
    watch = after((100, {"c": "1", "d": "1"}), (150, {"c": "2", "d": "1"}), (200, {"c": "2", "d": "1"}))
    assert watch.dead(60) == {"d"}
    assert watch.after(Look({"c": "2"}, 211, 212)).dead(60) == {"c"}


def test_a_lease_that_is_gone_is_forgotten_and_may_come_again() -> None:
    assert after((100, {"c": "1"}), (200, {}), (300, {"c": "1"})).dead(60) == frozenset()
