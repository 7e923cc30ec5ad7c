"""The answers of a service about itself."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from catalog_service.wire.messages import AnswerModel

__all__ = ["CatalogConfig", "Health"]


class CatalogConfig(AnswerModel):
    """The service's limits and endpoints, which a client may read before its first request."""

    version: str = Field(description="The version of Tablestore.", examples=["0.1.0"])
    warehouse: str = Field(description="The folder that contains the databases.", examples=["/data/warehouse"])
    page_size: int = Field(description="The entries of a page if the request names no other number.", examples=[100])
    page_size_max: int = Field(examples=[1000])
    endpoints: list[str] = Field(examples=[["GET /api/v1/databases"]])


class Health(AnswerModel):
    """Says that the service answers, and for `/ready` that its database does, too."""

    status: Literal["ok"] = "ok"
