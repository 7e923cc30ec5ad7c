"""Tasks in threads: all, in order, or none; also while the interpreter ends and starts no threads any more."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import filestore.threads
from filestore.threads import in_threads


def refusing_after(number: int) -> type[ThreadPoolExecutor]:
    class Ending(ThreadPoolExecutor):
        taken = 0

        def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if self.taken == number:
                raise RuntimeError("cannot schedule new futures after interpreter shutdown")
            self.taken += 1
            return super().submit(work, *args, **kwargs)

    return Ending


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
def test_all_tasks_are_done_in_order(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestore.threads, "ThreadPoolExecutor", refusing_after(threads))
    assert in_threads("test", lambda n: n * 10, [1, 2, 3], pytest.fail) == [10, 20, 30]


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
@pytest.mark.parametrize(("fails", "kept"), [(1, []), (2, [1]), (3, [1, 2])])
def test_what_the_others_did_is_forgotten_if_one_fails(
    threads: int, fails: int, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filestore.threads, "ThreadPoolExecutor", refusing_after(threads))
    done, forgotten = list[int](), list[int]()

    def work(task: int) -> int:
        if task == fails:
            raise ValueError(f"task {task}")
        done.append(task)
        return task

    with pytest.raises(ValueError, match=f"task {fails}"):
        in_threads("test", work, [1, 2, 3], forgotten.extend)
    assert sorted(forgotten) == sorted(done)
    assert set(kept) <= set(done)


def test_an_interrupt_lets_tasks_end_and_forgets_what_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C left the files of a compaction's finished tasks, since nobody looked at their results."""
    done, forgotten = list[int](), list[int]()

    def interrupted(futures: list[Future[int]]) -> None:
        futures[0].result()
        raise KeyboardInterrupt

    def work(task: int) -> int:
        done.append(task)
        return task

    monkeypatch.setattr(filestore.threads, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_threads("test", work, list(range(50)), forgotten.extend)
    assert sorted(forgotten) == sorted(done)
