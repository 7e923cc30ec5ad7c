"""Base classes of objects that are used in a ``with``."""

from __future__ import annotations

from typing import Protocol, Self

__all__ = ["Closing", "Discarding"]


class Closing(Protocol):
    """A context that calls `close` at its end; a protocol, so that protocols can extend it."""

    def close(self) -> None:
        """Ends the use of what is open."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Discarding:
    """A context that calls `discard` if it ends with an error."""

    def discard(self) -> None:
        """Removes what was written: no version names it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.discard()
