"""Finds hanging transactions: their coordinator has ended them, and a partition never got the marker (KIP-664).

Nothing but another marker ends them: the coordinator has nothing left to do, and answers EndTxn with success. Until
then readers with ``read_committed`` wait there. `kafka-transactions.sh` can only abort; what a snapshot names must be
committed, so we write the marker that the coordinator's decision calls for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from log.kafka.transactions import Marker, ProducerState

__all__ = ["missing_markers", "open_producers"]

# While the coordinator is still in PrepareCommit or PrepareAbort it writes the markers itself.
_ENDED = {"CompleteCommit": True, "CompleteAbort": False}
_NO_EPOCH_YET = 0  # KIP-664's own choice: no coordinator's epoch is less


def open_producers(stored: Mapping[int, Mapping[int, ProducerState]]) -> set[tuple[int, int, int]]:
    """Returns partition, producer id and first offset of the transactions that partitions take for open."""
    return {
        (partition, producer_id, state.first_offset)
        for partition, states in stored.items()
        for producer_id, state in states.items()
        if state.first_offset >= 0
    }


def missing_markers(
    before: Mapping[int, Mapping[int, ProducerState]],
    known: Mapping[int, tuple[str, str]],
    after: Mapping[int, Mapping[int, ProducerState]],
    prefix: str,
) -> Iterator[tuple[str, Marker]]:
    """The markers that nobody else will write, each with its transaction's id.

    A transaction hangs if a partition takes it for open although its coordinator had ended it before the partition was
    asked: a coordinator says so only once every partition has answered that it has the marker.

    Args:
        before: What the partitions held before coordinators were asked.
        known: Transactional id and state by producer id, as coordinators know them.
        after: What the partitions held then.
        prefix: Of transactional ids that may be touched.
    """
    for partition, producer_id, _ in sorted(open_producers(before) & open_producers(after)):
        transaction_id, state = known.get(producer_id, ("", ""))
        if state not in _ENDED or not transaction_id.startswith(prefix):
            continue
        found = after[partition][producer_id]
        yield (
            transaction_id,
            Marker(
                partition,
                producer_id,
                found.producer_epoch,
                max(found.coordinator_epoch, _NO_EPOCH_YET),
                _ENDED[state],
            ),
        )
