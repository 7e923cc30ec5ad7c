"""Requests to Kafka's admin client: waits for answers, and repeats requests after errors that pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from log.kafka.causes import Causes, LastingError, spoken_protocol

__all__ = ["COORDINATOR_MOVES", "Admin", "led", "retried"]

T = TypeVar("T")

COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
)
"""Codes while a group's coordinator moves, or right after the cluster's first one was asked for."""

# While partitions move, or right after they were made
_TRANSIENT = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know the end yet (KIP-207)
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._NOENT,
    }
)


_LOOK_SECONDS = 0.05


class Admin(AdminClient):
    """Kafka's admin client, which says why it has no connection.

    Args:
        settings: The client's.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._given = settings
        self._causes = Causes()
        self._answered = False
        # What its log would repeat several times a second is in the error.
        quiet = {} if "debug" in settings else {"log_level": "2"}
        own: dict[str, Any] = {"error_cb": self._causes.notice}
        try:
            super().__init__({**settings, **quiet, **own})
        except KafkaException as error:
            raise _with_files(error, settings) from error

    def answer(self, asked: Future[T]) -> T:
        """Waits for the answer to a request that was just made.

        Raises:
            LastingError: as soon as it is certain that waiting does not help. Never after an answer: settings that have
                worked are not wrong, so a follower outlives a name service that is away.
            KafkaException: the request's own error, with what is known of the connections.
        """
        self.poll(0)  # what was noticed before belongs to another request
        self._causes.clear()
        probed = self._answered
        while not wait([asked], _LOOK_SECONDS).done:
            self.poll(0)
            cause = None if self._answered else self._causes.lasting
            if cause is None and self._causes.wordless and not probed:
                probed, cause = True, spoken_protocol(self._given)
            if cause is not None:
                raise LastingError(cause)
        # IMPORTANT: The future's own error is not raised: its traceback would hold frames that hold the future, and so
        # close a cycle with this client in it. The garbage collector would destroy the client in any thread, and
        # librdkafka ends the process if that thread is the client's own, which runs Python to give answers.
        error = asked.exception()
        if isinstance(error, KafkaException):
            raise self._explained(error)
        found = asked.result()
        self._answered = True
        return found

    def _explained(self, error: KafkaException) -> KafkaException:
        cause = error.args[0]
        if not self._causes.text or not isinstance(cause, KafkaError):
            return KafkaException(*error.args)
        return KafkaException(KafkaError(cause.code(), f"{cause.str()}; {self._causes.text}"))


def _with_files(error: KafkaException, settings: Mapping[str, Any]) -> KafkaException:
    """The error of settings that no client can be made with; librdkafka names a file's setting, but not the file."""
    cause = error.args[0]
    files = [f"{name} = {settings[name]}" for name in sorted(settings) if f"{name} failed" in cause.str()]
    if not files:
        return error
    return KafkaException(KafkaError(cause.code(), f"{cause.str()}: can this process read {', '.join(files)}?"))


def led(admin: AdminClient, topic: str, request: Callable[[], T], seconds: float, ambient: Ambient) -> T:
    """Makes a request to the leaders of a topic, again while its partitions elect theirs, and returns the answer.

    IMPORTANT: librdkafka sends these requests to the leader, and with the leader's epoch, that it has seen last, and no
    error makes it look again: without that, a client from before an election gets `FENCED_LEADER_EPOCH` for minutes.
    """

    def refresh_leaders(_: RetryCallState) -> None:
        admin.list_topics(topic, timeout=seconds)

    return retried(request, _TRANSIENT, seconds, ambient, refresh_leaders)


def retried(
    request: Callable[[], T],
    passing: Collection[int],
    seconds: float,
    ambient: Ambient,
    between: Callable[[RetryCallState], None] | None = None,
) -> T:
    """Makes a request, again after errors that pass, and returns the answer.

    Args:
        request: May raise `KafkaException`.
        passing: Kafka's codes of those errors.
        seconds: For how long; then the last error is raised.
        ambient: Waits.
        between: Is called before each wait.
    """

    def passes(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in passing

    retrying = Retrying(
        retry=retry_if_exception(passes),
        wait=wait_exponential(multiplier=0.01, max=0.5),
        stop=stop_after_delay(seconds),
        sleep=ambient.sleep,
        before_sleep=between,
        reraise=True,
    )
    return retrying(request)
