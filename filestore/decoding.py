"""Makes the errors of decoding bytes that are damaged, or not ours, errors of the tree.

Arrow, polars and Python's own parsers raise whatever the bytes lead them to: an `OSError` of Thrift, a
`UnicodeDecodeError` in the name of a column, a `KeyError` where a member is missing, and a panic of Rust, which is no
`Exception` and so passes every handler. Whoever decodes does so inside `decoding` or `well_formed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from filestore.errors import Corrupt
from filestore.lazily import pl
from filestore.refused import unreadable

__all__ = ["MALFORMED", "decoding", "is_panic", "is_undecodable", "well_formed"]

MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""The errors that Python raises where parsed JSON has not the members, types and values that it must have."""

_RESTORE = "restore it from a backup"


def is_panic(error: BaseException) -> bool:
    """Returns whether a library that is written in Rust panicked. Each of them has a class of its own for this."""
    return type(error).__module__ == "pyo3_runtime"


def is_undecodable(error: BaseException) -> bool:
    """Returns whether an error of a library says that bytes cannot be decoded, and not that they cannot be read."""
    if isinstance(error, OSError):
        return error.errno is None  # Arrow's own; those of the operating system have a number
    if isinstance(error, MemoryError):
        return False  # Arrow's is an `ArrowException`, too
    if isinstance(error, pa.ArrowException | UnicodeError) or is_panic(error):
        return True
    return isinstance(error, pl.exceptions.PolarsError)


@contextmanager
def decoding(what: str, *, code: str, advice: str = _RESTORE) -> Iterator[None]:
    """Runs code in which a library decodes bytes.

    Args:
        what: What cannot be decoded, as in ``the checkpoint /lake/t/_delta_log/10.checkpoint.parquet``.
        code: The error's code.
        advice: What to do about it.

    Raises:
        Corrupt: the bytes cannot be decoded, or not be read (``unreadable``).
        Unavailable: the operating system refuses to read them.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(f"cannot read {what}", error) from error
        if not is_undecodable(error):
            raise
        raise _corrupt(what, error, code, advice) from error


@contextmanager
def well_formed(what: str, *, code: str, advice: str = _RESTORE) -> Iterator[None]:
    """Runs code that takes values out of parsed JSON. It must do nothing else: a mistake in it looks like damage.

    Args:
        what: What is not as the format says.
        code: The error's code.
        advice: What to do about it.

    Raises:
        Corrupt: a member is missing, or has another type or value.
    """
    try:
        yield
    except MALFORMED as error:
        raise _corrupt(what, error, code, advice) from error


def _corrupt(what: str, error: BaseException, code: str, advice: str) -> Corrupt:
    reason = str(error).partition("\n")[0]
    return Corrupt(f"{what} is damaged ({type(error).__name__}: {reason}): {advice}", code=code)
