"""Translates errors of the operating system: each cause gets a code and a sentence that says what to do.

Every write may fail because of a full disk, a file system that is mounted read-only, missing rights or the limit of
open files. The cause decides what the user can do, so each has a code and advice of its own. A read may also find that
the bytes are lost: the disk does not return them, or something else has the file's name.
"""

from __future__ import annotations

import errno

from filestore.errors import Corrupt, TableStoreError, Unavailable

__all__ = ["UNREADABLE", "refused", "unreadable"]

UNREADABLE = "unreadable"
"""The code of a file that is there, and whose bytes the operating system does not return."""

_SPACE = "free space on its disk, then retry"
_RIGHTS = "give the user of this process that right, then retry"
_HANDLES = "close tables and readers that are not used any more, or raise the limit (ulimit -n), then retry"
_CAUSES = {
    errno.ENOSPC: ("disk-full", _SPACE),
    errno.EDQUOT: ("disk-full", "free space or raise the quota, then retry"),
    errno.EFBIG: ("disk-full", "raise the limit of a file's size (ulimit -f), then retry"),
    errno.EROFS: ("read-only", "only reading works there: mount it read-write to change anything"),
    errno.EACCES: ("no-permission", _RIGHTS),
    errno.EPERM: ("no-permission", _RIGHTS),
    errno.EMFILE: ("too-many-open-files", _HANDLES),
    errno.ENFILE: ("too-many-open-files", _HANDLES),
}
_PLACE = "move away what has its name, or a name of its folders"
_LOST = {
    errno.EIO: "look into the system's log for errors of its disk",
    errno.EISDIR: _PLACE,
    errno.ENOTDIR: _PLACE,
    errno.ELOOP: "repair the symbolic links of its path",
    errno.ENAMETOOLONG: "move the warehouse to a shorter path",
}


def refused(what: str, error: OSError, code: str = "storage-error", *, read_only: str | None = None) -> Unavailable:
    """Makes the error to raise.

    Args:
        what: What failed, such as ``cannot write /data/part-1.parquet``.
        error: The cause.
        code: The code for other causes than the known ones.
        read_only: The code for ``read-only`` and ``no-permission`` where the caller has one of its own.
    """
    other = _LOST.get(error.errno or 0, "check disk and permissions")
    cause, advice = _CAUSES.get(error.errno or 0, (code, f"{other}, then retry"))
    if read_only is not None and cause in ("read-only", "no-permission"):
        cause = read_only
    return Unavailable(f"{what}: {error.strerror or error}; {advice}", code=cause)


def unreadable(what: str, error: OSError) -> TableStoreError:
    """Makes the error of reading what is there: `Corrupt` if no retry returns its bytes, else as `refused`."""
    advice = _LOST.get(error.errno or 0)
    if advice is None:
        return refused(what, error)
    return Corrupt(
        f"{what}: {error.strerror or error}; {advice}, and restore the file from a backup. `tablestore doctor` lists "
        "all that cannot be read",
        code=UNREADABLE,
    )
