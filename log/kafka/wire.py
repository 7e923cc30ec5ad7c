"""Kafka's messages on the wire, by kafka-python's classes: no other module of the product imports kafka-python."""

from __future__ import annotations

import struct
import warnings
from typing import Any

with warnings.catch_warnings():
    # It reads its schemas with a function that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import errors
    from kafka.net.sasl import get_sasl_mechanism
    from kafka.protocol.admin.transactions import (
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        ListTransactionsRequest,
    )
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.consumer.fetch import FetchRequest
    from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
    from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest, WriteTxnMarkersRequest
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
    from kafka.record.memory_records import MemoryRecords

__all__ = [
    "ApiMessage",
    "BrokenConnectionError",
    "CoordinatorType",
    "DescribeProducersRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "FindCoordinatorRequest",
    "InitProducerIdRequest",
    "ListTransactionsRequest",
    "MemoryRecords",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "WriteTxnMarkersRequest",
    "decoded",
    "encoded",
    "errors",
    "get_sasl_mechanism",
]

_CLIENT_ID = "tablestore"


class BrokenConnectionError(ConnectionError):
    """The other side hung up, or does not speak Kafka.

    An `OSError`, so that callers try again like after any other.
    """


def encoded(message: ApiMessage, correlation: int) -> bytes:
    """A request with its header and, in front, its length.

    IMPORTANT: Not by kafka-python's `KafkaProtocol`: it logs all messages at DEBUG, and so passwords.
    """
    message.with_header(correlation_id=correlation, client_id=_CLIENT_ID)
    return bytes(message.encode(header=True, framed=True))


def decoded(message: ApiMessage, correlation: int, data: bytes) -> Any:
    """The response to a request.

    Raises:
        BrokenConnectionError: it is none, or belongs to another request.
    """
    try:
        response = message.header.get_response_class().decode(data, header=True)
    except (ValueError, LookupError, struct.error) as error:
        raise BrokenConnectionError(f"the answer is not what Kafka's protocol has there: {error}") from error
    if response.header.correlation_id != correlation:
        raise BrokenConnectionError("the answer belongs to another request")
    return response
