"""Converts a topic's offsets to the positions that normalizers and writes remember, and back."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.errors import NotFound
from tablestore.normalizing.progress import Positions

__all__ = ["named", "offsets_of"]


def named(topic_id: str, offsets: Mapping[int, int]) -> dict[str, int]:
    """Converts offsets by partition to positions. Those of a later topic with the same name have other names."""
    return {f"{topic_id}/{partition}": offset for partition, offset in offsets.items()}


def offsets_of(topic_id: str, positions: Positions, whose: str) -> dict[int, int]:
    """Converts positions to offsets by partition.

    Raises:
        NotFound: ``topic-replaced``: the positions are those of another topic.
    """
    parts = [(name.rpartition("/"), at) for name, at in positions.items()]
    if any(topic != topic_id for (topic, _, _), _ in parts):
        raise NotFound(
            f"{whose} belongs to another topic than the existing one, whose id is {topic_id}: was it "
            "deleted and created again? Begin with another folder",
            code="topic-replaced",
        )
    return {int(partition): at for (_, _, partition), at in parts}
