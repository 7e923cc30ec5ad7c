"""Describes an open transaction, for which ``read_committed`` readers wait: whose, where, since when; what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["OpenTransaction"]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in one bucket. Readers with ``read_committed`` wait where the first one begins.

    Attributes:
        bucket: The partition.
        start: The offset of its first record there.
        id: Its transactional id; None if no coordinator knows it, or we may not ask.
        producer_id: Kafka's id of its producer; -1 in an embedded log.
        since_ms: When it began, in milliseconds since 1970 UTC; None if nobody knows.
    """

    bucket: int
    start: int
    id: str | None
    producer_id: int = -1
    since_ms: int | None = None

    def is_of(self, table_id: str) -> bool:
        """Returns whether a writer of that table began it. Writers and recovery of the table end no others."""
        return self.id is not None and self.id.startswith(f"{table_id}/")

    def described(self, table_id: str, where: str) -> str:
        """Describes it in a sentence for people.

        Args:
            table_id: Whose log it is.
            where: The topic, or the folder.
        """
        named = f"transaction {self.id}" if self.id is not None else f"a transaction of producer {self.producer_id}"
        since = (
            ""
            if self.since_ms is None
            else f" since {datetime.fromtimestamp(self.since_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
        place = f"readers with read_committed wait at offset {self.start} of bucket {self.bucket}{since} for {named}"
        if self.is_of(table_id):
            return f"{place}, which a writer of this table has begun: it ends with that writer, or by recover"
        return (
            f"{place}, which another program has begun: end that program or its transaction, if need be by "
            f"kafka-transactions.sh abort --topic {where} --partition {self.bucket} --start-offset {self.start}"
        )
