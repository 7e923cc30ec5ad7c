"""The words that signatures show to editors are those that the functions take."""

from __future__ import annotations

from typing import get_args

from tablestore.following.gaps import OnGap, OnLogGap
from tablestore.following.result_mode import Mode, ResultMode
from tablestore.lookup.request import Kind
from tablestore.views.plan.join_query import JoinKind


def test_each_word_is_taken_and_no_other() -> None:
    assert get_args(Mode) == tuple(map(str, ResultMode))
    assert get_args(OnGap) == tuple(map(str, OnLogGap))
    assert get_args(Kind) == tuple(map(str, JoinKind))
