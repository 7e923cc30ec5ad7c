"""Fences of files: a clean-up of orphans refuses commits that name what it removes (FORMAT.md section 15).

A file that no version names may belong to a writer at work, which no age and no lease says for certain. So before files
are removed, a version names them, and from then on no commit may. A writer reads every entry between its base and its
own, and its base is older than its files: it finds the fence, or its commit is there already when the history is read
behind the fence. It then begins again, with new files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from filestore.commit.proposal import Proposal
from filestore.delta.log import Commit, DeltaLog
from filestore.delta.vectors import stored_paths
from filestore.errors import Conflict, Corrupt, NotFound

__all__ = ["any_fenced", "check_new_files", "explained", "fenced_files", "new_files"]


def new_files(proposal: Proposal) -> set[str]:
    """Returns the files that a commit may name for the first time. Pure."""
    files, runs = proposal.files, proposal.runs
    changes, pending = {file.path for file in files.cdc}, {run.path for run in runs.pending}
    return stored_paths((*files.adds, *files.vectors, *runs.tombstones)) | changes | pending


def fenced_files(entries: Iterable[Commit]) -> dict[str, int]:
    """Returns the files that entries fence, and the version of each fence. Pure."""
    return {path: entry.version for entry in entries for path in entry.fenced_files}


def check_new_files(proposal: Proposal, fenced: Mapping[str, int]) -> None:
    """Refuses a proposal that names a file which was removed as an orphan meanwhile. Pure.

    Raises:
        Conflict: ``file-removed``: the operation begins again.
    """
    gone = sorted(new_files(proposal) & fenced.keys()) if fenced else []
    if gone:
        raise _removed(gone[0], fenced[gone[0]])


def any_fenced(log: DeltaLog, since: int, until: int) -> bool:
    """Returns whether files that an operation keeps for another attempt may be gone: whether a version fences any.

    Args:
        log: The table's log.
        since: The version on which they were begun.
        until: The version on which the other attempt begins. What follows is its own to find.
    """
    entries = log.read_entries(range(since + 1, until + 1))
    return any(entry is None or entry.fenced_files for entry in entries)


@contextmanager
def explained(log: DeltaLog, version: int) -> Iterator[None]:
    """Surrounds work on new files: the loss of one that a clean-up has removed becomes the conflict ``file-removed``.

    Args:
        log: The table's log.
        version: The version on which the work began.
    """
    try:
        yield
    except (NotFound, Corrupt) as error:
        for path, fence in fenced_files(log.read_entries_after(version)).items():
            raise _removed(path, fence) from error
        raise


def _removed(path: str, version: int) -> Conflict:
    return Conflict(
        f"version {version} says that {path} was removed as an orphan, since no version named it yet: nothing was "
        "committed; retry, and remove only orphans that are older than any write and any compaction takes",
        code="file-removed",
        again=True,
    )
