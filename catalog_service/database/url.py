"""Database URLs: how they are read, and how errors and logs show them, which is without passwords.

A password is not only between ``:`` and ``@``: libpq takes more of them from the query (``password``, ``sslpassword``
and others), and a URL with a mistake may have it anywhere.
"""

from __future__ import annotations

import re

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from filestore.errors import InvalidRequest, Unsupported

__all__ = ["parse_database_url", "shown_url"]

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9_+]*)://")
_ODD_USER = re.compile(r"[?&=/]")
_PARAMETER = re.compile(r"[?&]\w+=")
_LOGIN_IN_A_PATH = re.compile(r":.*@", re.S)
_SHOWN_PARAMETERS = frozenset(
    {"application_name", "connect_timeout", "host", "hostaddr", "port", "service", "sslmode", "timeout", "user"}
)
_PLAIN_VALUE = re.compile(r"[\w./:,-]*")


def parse_database_url(text: str) -> URL:
    """Reads the URL of a catalog's database.

    Raises:
        InvalidRequest: ``bad-database-url``.
        Unsupported: ``database-driver``: the database is not supported.
    """
    try:
        url = make_url(text)
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")  # SQLAlchemy's default is the older psycopg2
        dialect = url.get_dialect().name
    except NoSuchModuleError as error:
        raise Unsupported(f"{_opaque(text)}: {error}; use SQLite or PostgreSQL", code="database-driver") from error
    except (ArgumentError, ValueError):
        raise _bad(text) from None  # their texts quote parts of the URL
    if dialect not in ("sqlite", "postgresql"):
        raise Unsupported(f"a catalog in {dialect} is not supported: use SQLite or PostgreSQL", code="database-driver")
    if _is_ambiguous(text, url):
        raise _bad(text)
    return url


def shown_url(url: URL) -> str:
    """Shows a database URL to people: without its password, and without parameters that might be another one."""
    if _ODD_USER.search(url.username or "") or _hides_a_login(url):
        return _opaque(f"{url.drivername}://")
    values = {name: value if isinstance(value, str) else ",".join(value) for name, value in url.query.items()}
    shown = [
        f"{name}={value}"
        for name, value in sorted(values.items())
        if name in _SHOWN_PARAMETERS and _PLAIN_VALUE.fullmatch(value)
    ]
    shown += ["…"] * (len(shown) < len(values))
    return url.set(query={}).render_as_string() + ("?" if shown else "") + "&".join(shown)


def _is_ambiguous(text: str, url: URL) -> bool:
    """Returns whether a password may be in part the host, a parameter or the database, which drivers' errors show.

    SQLAlchemy ends the login at the first ``@``, and takes everything before it for the login.
    """
    if url.get_backend_name() == "sqlite":
        return url.username is not None or url.host is not None
    login = text.partition("://")[2].partition("@")[0] if url.username is not None else ""
    user, _, password = login.partition(":")
    ends_of_logins = 0 if url.username is None else 1
    misplaced = _ODD_USER.search(user) or _PARAMETER.search(password) or text.count("@") != ends_of_logins
    return bool(misplaced) or _hides_a_login(url)


def _hides_a_login(url: URL) -> bool:
    """Returns whether what should be a host or a database looks like a login, or like libpq's ``name=value``."""
    database = url.database or ""
    if url.get_backend_name() == "sqlite":
        return _LOGIN_IN_A_PATH.search(database) is not None
    return "@" in (url.host or "") or "@" in database or "=" in database


def _opaque(text: str) -> str:
    """Shows a URL of which nothing is known but its scheme."""
    found = _SCHEME.match(text)
    return "…" if found is None else f"{found[1]}://…"


def _bad(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{_opaque(text)} is not a database URL: write it as in sqlite:////data/catalog.db or "
        "postgresql://user@host/catalog, and in names, passwords and parameters write @ as %40, : as %3A, / as %2F "
        "and ? as %3F (the rest of it is not shown, since it may contain a password)",
        code="bad-database-url",
    )
