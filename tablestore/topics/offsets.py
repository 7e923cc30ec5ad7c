"""A topic's offsets as the positions that normalizers and writes remember, and back."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.errors import NotFound
from tablestore.normalizing.progress import Positions

__all__ = ["named", "offsets_of"]


def named(topic_id: str, offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets by partition as positions. A topic of the same name that is made later gives others."""
    return {f"{topic_id}/{partition}": offset for partition, offset in offsets.items()}


def offsets_of(topic_id: str, positions: Positions, whose: str) -> dict[int, int]:
    """The offsets by partition that positions tell.

    Raises:
        NotFound: ``topic-replaced``: they are those of another topic.
    """
    parts = [(name.rpartition("/"), at) for name, at in positions.items()]
    if any(topic != topic_id for (topic, _, _), _ in parts):
        raise NotFound(
            f"{whose} was made from another topic than the one that there is now, whose id is {topic_id}: was it "
            "deleted and made again? Begin with another folder",
            code="topic-replaced",
        )
    return {int(partition): at for (_, _, partition), at in parts}
