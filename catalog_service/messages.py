"""What all requests and answers of the catalog's API have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from filestore.model.text import check_texts

__all__ = ["AnswerModel", "OptionText", "RequestModel"]


def _option_text(value: Any) -> Any:
    """JSON's numbers and booleans as options are written: 4 is "4", true is "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


OptionText = Annotated[str, BeforeValidator(_option_text)]


class RequestModel(BaseModel):
    """Unknown members are refused: a misspelt one would be silently without effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, data: Any) -> Any:
        """Before anything else: what UTF-8 cannot say could not even be named in an answer."""
        check_texts(data)
        return data


class AnswerModel(BaseModel):
    """Unknown members are ignored: a newer service may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)
