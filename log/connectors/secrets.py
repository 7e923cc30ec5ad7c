"""Options as people may see them: what lets one in is not told. Pure."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["shown"]

_SECRET = ("password", "secret", "token", "user-info", "sasl.jaas.config", "key.pem")


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with stars for the values of passwords, tokens and keys."""
    return {n: "****" if any(word in n for word in _SECRET) else value for n, value in options.items()}
