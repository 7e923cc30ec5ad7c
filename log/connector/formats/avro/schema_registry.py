"""A client of Confluent's Schema Registry: the requests that ``avro-confluent`` needs (its REST API, v1)."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unavailable
from filestore.secrets import resolved

if TYPE_CHECKING:
    import httpx

__all__ = ["SchemaRegistry"]

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry and its answers so far: schemas never change under their number.

    Pickled it is what it was made of: connections and answers stay behind.

    Args:
        url: Of one server, or of several separated by commas; the next one is asked if one does not answer.
        user_info: ``user:password`` for basic authentication.
        token: For bearer authentication.
        ca_location: A file of certificates in PEM that sign the servers', beside those the system knows.
        timeout_s: How long a server may take.
    """

    url: str
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_location: str | None = None
    timeout_s: float = 10.0
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _schemas: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return (SchemaRegistry, (self.url, self.user_info, self.token, self.ca_location, self.timeout_s))

    def register(self, subject: str, schema: str) -> int:
        """Returns the number of a schema, and registers it under the subject if need be."""
        known = self._numbers.get((subject, schema))
        if known is None:
            path = f"/subjects/{quote(subject, safe='')}/versions"
            known = int(self._answer("POST", path, {"schema": schema}, f"subject {subject}")["id"])
            self._numbers[subject, schema] = known
        return known

    def schema(self, number: int) -> tuple[str, ...]:
        """Returns the schema of a number behind those that it refers to, each of them behind those of its own."""
        known = self._schemas.get(number)
        if known is None:
            found: dict[tuple[str, int], str] = {}
            own = self._avro(f"/schemas/ids/{number}", f"schema {number}", found)
            known = self._schemas[number] = (*found.values(), own)
        return known

    def _avro(self, path: str, what: str, found: dict[tuple[str, int], str]) -> str:
        """Returns a schema; adds to `found` by subject and version the others that it needs, in the order of need."""
        answer = self._answer("GET", path, None, what)
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise NotFound(f"{what} of {self.url} is {kind}, and none of Avro", code="schema-registry")
        for reference in answer.get("references") or ():
            subject, version = place = reference["subject"], reference["version"]
            if place not in found:
                other = f"version {version} of subject {subject} ({what} refers to it)"
                found[place] = self._avro(f"/subjects/{quote(subject, safe='')}/versions/{version}", other, found)
        return str(answer["schema"])

    def _answer(self, method: str, path: str, body: Mapping[str, str] | None, what: str) -> dict[str, Any]:
        import httpx  # here and not above: tables without a registry do not wait for it

        headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {resolved(self.token)}"
        user, _, password = resolved(self.user_info or "").partition(":")
        auth = (user, password) if self.user_info else None
        content = None if body is None else json.dumps(body)
        failures = []
        for server in self.url.split(","):
            try:
                with httpx.Client(timeout=self.timeout_s, verify=self._trusted(), auth=auth, headers=headers) as client:
                    response = client.request(method, server.strip().rstrip("/") + path, content=content)
            except httpx.HTTPError as error:
                failures.append(f"{server}: {error}")
                continue
            if response.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                return self._read(response, what)
            failures.append(f"{server}: HTTP {response.status_code}")
        raise Unavailable(f"the schema registry does not answer: {'; '.join(failures)}", code="schema-registry")

    def _trusted(self) -> ssl.SSLContext | bool:
        if self.ca_location is None:
            return True
        context = ssl.create_default_context()
        context.load_verify_locations(self.ca_location)
        return context

    def _read(self, response: httpx.Response, what: str) -> dict[str, Any]:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer
        reason = answer.get("message", "") if isinstance(answer, dict) else response.reason_phrase
        error, advice = _ERRORS.get(response.status_code, (InvalidRequest, "look at avro-confluent.url"))
        raise error(
            f"the schema registry {self.url} refuses {what} (HTTP {response.status_code}): {reason}; {advice}",
            code="schema-registry",
        )


_ERRORS: Mapping[int, tuple[type[TableStoreError], str]] = {
    401: (InvalidRequest, "set avro-confluent.basic-auth.user-info or avro-confluent.bearer-auth.token"),
    403: (InvalidRequest, "the user lacks the right"),
    404: (NotFound, "look at avro-confluent.url and whether the schema was deleted"),
    409: (InvalidRequest, "the columns' schema is not compatible with the subject's: take another subject, or columns "
          "that are"),
    422: (InvalidRequest, "the columns' schema is none that it takes"),
    429: (Unavailable, "try again later"),
}  # fmt: skip
