"""Requests and answers about leases."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from catalog_service.wire.messages import AnswerModel, RequestModel, with_examples

__all__ = ["LeaseInfo", "LeaseRequest"]

_TABLE_ID = "6f1c2f0e-9d3b-4c39-8a53-0c7f0a2d7c11"
_OWNER = "host-1/4711/0b0f6b52"


class LeaseRequest(RequestModel):
    """The body of ``POST`` and ``PUT …/lease``."""

    model_config = with_examples({"owner": _OWNER, "seconds": 60})

    owner: str = Field(min_length=1, max_length=200, description="Each start of a process uses another one.")
    seconds: float = Field(gt=0, le=3600, description="When the lease expires unless its owner renews it.")


class LeaseInfo(AnswerModel):
    """A lease: which process maintains a table, such as a compactor."""

    model_config = with_examples({"table_id": _TABLE_ID, "owner": _OWNER, "expires_at": "2026-11-21T12:01:00Z"})

    table_id: str
    owner: str
    expires_at: datetime = Field(description="The time by the clock of the catalog's database.")
