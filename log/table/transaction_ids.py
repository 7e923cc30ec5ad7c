"""Ids of log transactions (PROTOCOL.md section 1)."""

from __future__ import annotations

import re

from filestore.errors import InvalidRequest

__all__ = ["parse_transaction_id"]

# Printable ASCII that needs no escaping in JSON: readers compare a record's first bytes.
_TRANSACTION_ID = re.compile(r"([\w.-]+)/([\w.-]+)/([\w.-]+)", re.ASCII)


def parse_transaction_id(transaction_id: str) -> tuple[str, str, str]:
    """Splits a transaction id into table UUID, commit id and ``task.attempt``.

    Raises:
        InvalidRequest: ``log-transaction-id``: it has another shape.
    """
    match = _TRANSACTION_ID.fullmatch(transaction_id)
    if match is None:
        raise InvalidRequest(
            f"transaction id {transaction_id!r} is not <table uuid>/<commit id>/<task>.<attempt>",
            code="log-transaction-id",
        )
    return match[1], match[2], match[3]
