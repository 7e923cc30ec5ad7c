"""The bytes of a log entry: a JSON object in each line, and a checksum of all (FORMAT.md section 2).

The Delta protocol has none: a bit that turns a digit of a file's statistics into another one would hide rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from filestore.crc import crc32, is_alike
from filestore.delta.actions import Action

__all__ = ["decode", "decode_first", "encode"]

_ZEROS = b"00000000"
_MEMBER = "crc32"
_BEFORE, _BEHIND = b'"crc32":"', b'"}}}'
_LENGTH = len(_BEFORE) + len(_ZEROS) + len(_BEHIND)


def encode(actions: Sequence[Action]) -> bytes:
    """Returns the content of a commit file; it gets a checksum if its first action is a ``commitInfo`` of ours."""
    lines = [*map(_with_place, actions[:1]), *actions[1:]]
    data = "".join(json.dumps(a, separators=(",", ":"), ensure_ascii=False) + "\n" for a in lines).encode()
    place = _place(data)
    return data if place is None else data[:place] + _sum(data, place) + data[place + len(_ZEROS) :]


def decode(data: bytes) -> list[Action]:
    """Reads what `encode` wrote, or a former version or another writer, which have no checksum.

    Raises:
        ValueError: it is damaged.
    """
    return _parsed(_checked(data).splitlines())


def decode_first(data: bytes) -> list[Action]:
    """Reads only the first action. For errors see `decode`."""
    return _parsed([_checked(data).partition(b"\n")[0]])


def _with_place(action: Action) -> Action:
    """Adds a place for the checksum: it is the last member of the last member."""
    info = action.get("commitInfo", {})
    if "tablestore" not in info:
        return action
    own = {name: value for name, value in info["tablestore"].items() if name != _MEMBER}
    others = {name: value for name, value in info.items() if name != "tablestore"}
    return {"commitInfo": {**others, "tablestore": {**own, _MEMBER: _ZEROS.decode()}}}


def _parsed(lines: Sequence[bytes]) -> list[Action]:
    actions = [json.loads(line) for line in lines if line]
    if not all(isinstance(action, dict) for action in actions):
        raise ValueError("a line is no JSON object")
    return actions


def _checked(data: bytes) -> bytes:
    place = _place(data)
    if place is not None and data[place : place + len(_ZEROS)] != _sum(data, place):
        raise ValueError("its bytes are not those that were written; an entry that was changed on purpose has no crc32")
    return data


def _sum(data: bytes, place: int) -> bytes:
    """Computes the checksum of an entry with zeros in the checksum's place."""
    whole = memoryview(data)
    found = crc32(whole[place + len(_ZEROS) :], crc32(_ZEROS, crc32(whole[:place])))
    return f"{found:08x}".encode()


def _place(data: bytes) -> int | None:
    """Returns where the checksum is: at the end of the first line. None without one.

    Its name may be damaged, too: then it is found all the same, and differs.
    """
    end = data.find(b"\n") if b"\n" in data else len(data)
    found, place = data[end - _LENGTH : end], end - len(_BEHIND) - len(_ZEROS)
    mark = found[: len(_BEFORE)] + found[-len(_BEHIND) :]
    return place if len(found) == _LENGTH and is_alike(mark, _BEFORE + _BEHIND) else None
