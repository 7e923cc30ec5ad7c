"""What everybody asks of Kafka's clients, for topics of tables and of logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its names are not re-exported for mypy
    AclOperation,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from log.kafka.causes import Causes, LastingError, spoken_protocol

__all__ = ["COORDINATOR_MOVES", "Admin", "broker_setting", "described", "led", "made", "require_write", "retried"]

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
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._NOENT,
    }
)


_LOOK_SECONDS = 0.05


class Admin(AdminClient):
    """Kafka's admin client, which says why it has no connection.

    Args:
        settings: The client's.
        ambient: For the connection that finds out what a port speaks.
    """

    def __init__(self, settings: Mapping[str, Any], ambient: Ambient) -> None:
        self._given = settings
        self._ambient = ambient
        self._causes = Causes()
        self._answered = False
        # What its log would repeat several times a second is in the error.
        quiet = {} if "debug" in settings else {"log_level": "2"}
        own: dict[str, Any] = {"error_cb": self._causes.notice}
        super().__init__({**settings, **quiet, **own})

    def answer(self, asked: Future[T]) -> T:
        """The answer to a request that was just made.

        Raises:
            LastingError: as soon as it is certain that no waiting brings one. Never after an answer: settings that have
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
                probed, cause = True, spoken_protocol(self._given, self._ambient)
            if cause is not None:
                raise LastingError(cause)
        try:
            found = asked.result()
        except KafkaException as error:
            raise self._explained(error) from error
        finally:
            # IMPORTANT: The error's traceback holds this frame, so the future, which holds the error, would close a
            # cycle with the client in it. The garbage collector would destroy the client in any thread, and librdkafka
            # ends the process if that thread is its own.
            del asked
        self._answered = True
        return found

    def _explained(self, error: KafkaException) -> KafkaException:
        cause = error.args[0]
        if not self._causes.text or not isinstance(cause, KafkaError):
            return error
        return KafkaException(KafkaError(cause.code(), f"{cause.str()}; {self._causes.text}"))


def described(admin: Admin, topic: str, *, rights: bool = False) -> TopicDescription | None:
    """A topic as the brokers know it, if asked with what this user may do with it; None if they do not."""
    asked = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=rights)[topic]
    try:
        found: TopicDescription = admin.answer(asked)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return found


def require_write(found: TopicDescription) -> None:
    """Raises `KafkaException` if this user may not write a topic that was described with rights."""
    if AclOperation.WRITE not in found.authorized_operations:
        raise KafkaException(
            KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, f"WRITE on topic {found.name} is not allowed")
        )


def made(admin: Admin, topic: NewTopic) -> None:
    """Makes a topic, unless another process was faster."""
    try:
        admin.answer(admin.create_topics([topic])[topic.topic])
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def broker_setting(admin: Admin, name: str) -> str | None:
    """A setting as one of the brokers tells it; hosted ones leave some out, or their values.

    Raises:
        KafkaException: also if the broker may not tell this user.
    """
    nodes = admin.answer(admin.describe_cluster()).nodes
    resource = ConfigResource(ResourceType.BROKER, str(nodes[0].id))
    told: dict[str, ConfigEntry] = admin.answer(admin.describe_configs([resource])[resource])
    return told[name].value if name in told else None


def led(admin: AdminClient, topic: str, request: Callable[[], T], seconds: float, ambient: Ambient) -> T:
    """The answer to a request to the leaders of a topic, made again while its partitions find theirs.

    IMPORTANT: librdkafka sends these requests to the leader, and with the leader's epoch, that it has seen last, and no
    error makes it look again: without that, a client from before an election gets `FENCED_LEADER_EPOCH` for minutes.
    """

    def look_again(_: RetryCallState) -> None:
        admin.list_topics(topic, timeout=seconds)

    return retried(request, _TRANSIENT, seconds, ambient, look_again)


def retried(
    request: Callable[[], T],
    passing: Collection[int],
    seconds: float,
    ambient: Ambient,
    between: Callable[[RetryCallState], None] | None = None,
) -> T:
    """The answer to a request that is made again after errors that pass.

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
