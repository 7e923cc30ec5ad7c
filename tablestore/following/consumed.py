"""The consumers of a table: the positions of its readers, which it keeps."""

from __future__ import annotations

from filestore.arguments import checks_arguments
from filestore.life.consumers import Consumer, consumers_of, remove_consumer
from filestore.retention.holds import ConsumerInfo
from filestore.table import FileStore
from tablestore.following.progress import Lag, lags

__all__ = ["Consumed"]


@checks_arguments()
class Consumed:
    """The part of `tablestore.Table` that is about its consumers.

    Attributes:
        filestore: The table.
    """

    filestore: FileStore

    def consumer(self, consumer_id: str) -> Consumer:
        """Returns a consumer: ``with table.consumer("report").register(7): ...`` keeps version 7 and later ones."""
        return Consumer(self.filestore, consumer_id)

    def consumers(self) -> list[ConsumerInfo]:
        """Lists the consumers that have shown within ``consumer.expiration-time`` that they live, by id."""
        return consumers_of(self.filestore)

    def consumer_lags(self) -> dict[str, Lag]:
        """Returns what each of `consumers` has still to read, by id."""
        held = {consumer.id: consumer.version for consumer in self.consumers()}
        found = lags(self.filestore, set(held.values()))
        return {name: found[version] for name, version in held.items()}

    def delete_consumer(self, consumer_id: str) -> None:
        """Removes a consumer whose reader will not continue. `NotFound` (``no-such-consumer``)."""
        remove_consumer(self.filestore, consumer_id)
