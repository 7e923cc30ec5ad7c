"""Base classes and types that all requests and answers of the catalog's API share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from filestore.model.text import check_texts

__all__ = ["AnswerModel", "OptionText", "RequestModel", "with_examples"]


def _option_text(value: Any) -> Any:
    """Converts JSON's numbers and booleans to the text of an option: 4 to "4", true to "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


OptionText = Annotated[str, BeforeValidator(_option_text)]


def with_examples(*examples: dict[str, Any]) -> ConfigDict:
    """Returns the configuration of a model that the API's description shows with these examples."""
    return ConfigDict(json_schema_extra={"examples": [*examples]})


class RequestModel(BaseModel):
    """A request. It refuses unknown members: a misspelt one would silently have no effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, data: Any) -> Any:
        """Checks texts before anything else: an answer could not even quote one that UTF-8 cannot encode."""
        check_texts(data)
        return data


class AnswerModel(BaseModel):
    """An answer. It ignores unknown members: a newer service may send more."""

    model_config = ConfigDict(extra="ignore", frozen=True)
