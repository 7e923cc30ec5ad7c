"""A client's connections to a catalog service: addresses, certificates, and errors of connecting."""

from __future__ import annotations

import os
import ssl
from urllib.parse import urlsplit

import httpx

from catalog_service.wire.bearer_token import checked_token
from filestore.errors import InvalidRequest, TableStoreError, Unavailable

__all__ = ["CA_FILE", "checked_url", "connection_error", "http_client", "is_tls_error"]

CA_FILE = "TABLESTORE_CA_FILE"
"""Names a file (PEM) of certificates to trust for the service instead of those of the public authorities."""

# Creating a table waits for a broker at most; after a longer silence the service is gone.
_TIMEOUT = httpx.Timeout(120.0, connect=5.0)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def http_client(url: str, base_url: str, token: str | None) -> httpx.Client:
    """Makes an HTTP client, which connects with its first request.

    Raises:
        InvalidRequest: ``bad-token``, ``ca-file``.
    """
    return httpx.Client(
        base_url=base_url,
        timeout=_TIMEOUT,
        headers={"Authorization": f"Bearer {checked_token(token)}"} if token else {},
        # a proxy from the environment cannot reach this machine's loopback
        trust_env=urlsplit(url).hostname not in _LOOPBACK,
        verify=_trust(url),
    )


def checked_url(url: str) -> str:
    """Returns a service's URL without a slash at its end.

    Raises:
        InvalidRequest: ``bad-url``: it is not a URL, or it may contain a secret, which logs and errors would show.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"{url!r} is not a URL: {error}", code="bad-url") from error
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise InvalidRequest(
            "the URL of a catalog service has neither a login nor parameters (it is not shown, since they may be "
            "secret): write it as in http://127.0.0.1:8080, and pass a token as such, or in $TABLESTORE_TOKEN",
            code="bad-url",
        )
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidRequest(
            f"{url!r} is not the URL of a catalog service: write it as in http://127.0.0.1:8080",
            code="bad-url",
        )
    return url.rstrip("/")


def connection_error(url: str, error: httpx.TransportError) -> TableStoreError:
    """The error for a connection that failed."""
    if is_tls_error(error):
        return InvalidRequest(f"no connection to {url}: {_tls_advice(str(error))} ({error})", code="tls-certificate")
    return Unavailable(
        f"no catalog service answers at {url} ({error}): start it with `tablestore serve`, or correct the address",
        code="catalog-unreachable",
    )


def is_tls_error(error: BaseException | None) -> bool:
    """Returns whether an error of TLS is the cause: httpx wraps it in an error of its own."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _tls_advice(reason: str) -> str:
    if "WRONG_VERSION_NUMBER" in reason or "record layer failure" in reason:
        return "the address does not speak TLS: write http:// instead of https://"
    if "Hostname mismatch" in reason or "IP address mismatch" in reason:
        return "its certificate is for another name: use the name that the certificate has"
    if "expired" in reason:
        return "its certificate has expired: its administrator has to renew it"
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return f"this client does not trust the authority of its certificate: name the authority's file in ${CA_FILE}"
    return "TLS failed"


def _trust(url: str) -> ssl.SSLContext | bool:
    if not url.lower().startswith("https:"):
        return False  # plain HTTP checks no certificate, and loading those of all authorities takes 30 ms
    path = os.environ.get(CA_FILE)
    if not path:
        return True
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise InvalidRequest(
            f"${CA_FILE} = {path!r} cannot be used: {error}; name a file of certificates in PEM", code="ca-file"
        ) from error
