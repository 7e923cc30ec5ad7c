"""Requests and answers about claims of versions."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from catalog_service.wire.messages import AnswerModel, RequestModel, with_examples
from filestore import layout
from filestore.commit.claims import Claim
from filestore.errors import InvalidRequest

__all__ = ["ClaimAnswer", "ClaimRequest", "NewestClaim", "PublishRequest"]

_TABLE_ID = "6f1c2f0e-9d3b-4c39-8a53-0c7f0a2d7c11"
_FILE = "_staged_commits/00000000000000000008.2f0e6f1c-9d3b-4c39-8a53-0c7f0a2d7c11.json"
_BEFORE = "_staged_commits/00000000000000000007.0c7f0a2d-9d3b-4c39-8a53-7c116f1c2f0e.json"
_FILE_LENGTH_MAX = 200


class PublishRequest(RequestModel):
    """The body of ``PUT …/commits``: an entry has got its name."""

    model_config = with_examples({"table_id": _TABLE_ID, "version": 8, "file": _FILE})

    table_id: str = Field(min_length=1, max_length=36, description="The table that the client has opened.")
    version: int = Field(ge=0, lt=1 << 63)
    file: str = Field(max_length=_FILE_LENGTH_MAX, description="The staged entry, relative to the table's location.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if layout.parse_staged_commit(self.file) != self.version:
            raise InvalidRequest(
                f"{self.file!r} is no staged entry of version {self.version}: write {_FILE!r} for version 8",
                code="bad-claim",
            )
        return self

    def claim(self) -> Claim:
        """Returns it as a claim."""
        return Claim(self.version, self.file)


class ClaimRequest(PublishRequest):
    """The body of ``POST …/commits``: the version is claimed if the newest claim is still `after`."""

    model_config = with_examples(
        {"table_id": _TABLE_ID, "version": 8, "file": _FILE, "after": {"version": 7, "file": _BEFORE}}
    )

    after: ClaimAnswer | None = Field(None, description="The newest claim as the client knows it; null: there is none.")


class ClaimAnswer(AnswerModel):
    """A claim of a version."""

    model_config = with_examples({"version": 7, "file": _BEFORE, "published": True})

    version: int = Field(ge=0, lt=1 << 63)
    file: str = Field(max_length=_FILE_LENGTH_MAX, description="The staged entry, relative to the table's location.")
    published: bool = Field(True, description="Whether the entry has its name in the Delta log.")

    def claim(self) -> Claim:
        """Returns it as a value."""
        return Claim(self.version, self.file, self.published)

    @classmethod
    def of(cls, claim: Claim) -> Self:
        """Describes a claim."""
        return cls(version=claim.version, file=claim.file, published=claim.published)


class NewestClaim(AnswerModel):
    """The newest claim of a table."""

    model_config = with_examples({"newest": {"version": 8, "file": _FILE, "published": False}})

    newest: ClaimAnswer | None = Field(None, description="Null if no version was claimed yet.")

    def claim(self) -> Claim | None:
        """Returns it as a value."""
        return None if self.newest is None else self.newest.claim()

    @classmethod
    def of(cls, claim: Claim | None) -> Self:
        """Describes what is the newest claim."""
        return cls(newest=None if claim is None else ClaimAnswer.of(claim))


ClaimRequest.model_rebuild()
