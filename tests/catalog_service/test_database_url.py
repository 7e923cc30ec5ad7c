"""No error, log line or ``repr`` shows a password of the catalog's database, wherever its URL has it."""

from __future__ import annotations

import logging
import traceback
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

import tablestore
from catalog_service.database.engine import open_engine, reading
from catalog_service.database.url import parse_database_url, shown_url
from catalog_service.model.paths import warehouse_location
from catalog_service.server.listening import Settings
from filestore.errors import InvalidRequest, TableStoreError, Unavailable
from tests.servers.system import free_ports

MARKS = ("S3CR3T", "W0RD")
SECRETS = st.text("@:/?#&=%+ ;'\"[]\\,é", max_size=3).map(lambda between: between.join(MARKS))
FORMS = (
    "postgresql://u:{raw}@h/db",
    "postgresql://u:{raw}@h:5432/db?sslmode=require",
    "postgresql://u:{raw}@h:port/db",
    "postgresql://u:{raw}@h,h2/db",
    "postgresql://:{raw}@/db",
    "postgresql://[u:{raw}@h/db",
    "postgresql://u:{quoted}@h/db",
    "postgresql://u%40corp:{quoted}@h/db?connect_timeout=3",
    "postgresql+psycopg://h/db?user=u&password={raw}",
    "postgresql://h/db?password={quoted}",
    "postgresql://h/db?sslpassword={raw}&sslmode=require",
    "postgresql://h:5432?password={raw}",
    "postgresql://h?password={raw}",
    "postgresql://?host=/run&password={quoted}",
    "postgresql:///u:{raw}@h/db",
    "postgresql:///host=h password={raw}",
    "postgresql://u/x:{raw}@h/db",
    "postgresql:/u:{raw}@h/db",
    " postgresql://u:{raw}@h/db",
    "jdbc:postgresql://h/db?user=u&password={raw}",
    "nonsense://u:{raw}@h/db",
    "mysql://u:{raw}@h/db?password={raw}",
    "sqlite://u:{raw}@h/db",
    "u:{raw}@h/db",
    "host=h user=u password={raw}",
)


def full_text(error: BaseException) -> str:
    """The error as a traceback shows it, with its causes."""
    return "".join(traceback.format_exception(error))


@given(form=st.sampled_from(FORMS), secret=SECRETS)
@example("postgresql://u:{raw}@h/db", "S3CR3T@W0RD")
@example("postgresql://u:{raw}@h/db", "S3CR3T@/W0RD")
@example("postgresql://u:{raw}@h/db", "S3CR3T@?W0RD")
@example("postgresql://u:{raw}@h:port/db", "S3CR3T:W0RD")
@example("postgresql://h:5432?password={raw}", "S3CR3T@W0RD")
@example("postgresql://h?password={raw}", "S3CR3T@W0RD")
@example("postgresql:///u:{raw}@h/db", "S3CR3TW0RD")
@example("sqlite://u:{raw}@h/db", "S3CR3T@/W0RD")
def test_no_password_is_shown_wherever_it_is(form: str, secret: str) -> None:
    text = form.format(raw=secret, quoted=quote(secret, safe=""))
    try:
        url = parse_database_url(text)
    except TableStoreError as error:
        shown = full_text(error)
    else:
        # drivers show the host, the database and the user in their errors
        shown = f"{shown_url(url)} {url.host} {url.database} {url.username}"
    assert not any(mark in shown for mark in MARKS)


@given(form=st.sampled_from(FORMS), secret=SECRETS)
def test_no_password_is_shown_of_a_url_that_was_taken_as_it_is(form: str, secret: str) -> None:
    """SQLAlchemy's own URLs are shown, too: of those some mistakes of the writer can be seen."""
    text = form.format(raw=quote(secret, safe=""), quoted=quote(secret, safe=""))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return
    assert not any(mark in shown_url(url) for mark in MARKS)


@pytest.mark.parametrize("text", ["postgresql://u:S3CR3T", "postgresql://u:S3CR3T/db", "S3CR3T", "sqlite:S3CR3T"])
def test_a_login_without_a_host_is_not_shown(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_database_url(text)
    assert refused.value.code == "bad-database-url"
    assert "S3CR3T" not in full_text(refused.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me@h:5432/db", "postgresql+psycopg://me@h:5432/db"),
        ("postgresql://me:pw@h/db", "postgresql+psycopg://me:***@h/db"),
        ("postgresql://me:pw@h/db?sslmode=require", "postgresql+psycopg://me:***@h/db?sslmode=require"),
        ("postgresql://h/db?password=pw&user=me", "postgresql+psycopg://h/db?user=me&…"),
        ("postgresql:///db?host=/run/pg&sslpassword=pw", "postgresql+psycopg:///db?host=/run/pg&…"),
        ("sqlite:////data/a b/catalog.db?timeout=1", "sqlite:////data/a b/catalog.db?timeout=1"),
    ],
)
def test_what_is_no_secret_is_shown(text: str, shown: str) -> None:
    assert shown_url(parse_database_url(text)) == shown


@pytest.mark.parametrize("login", ["u:S3CR3T@", "u@"])
def test_a_server_that_is_away_is_named_without_the_password(login: str, caplog: pytest.LogCaptureFixture) -> None:
    [port] = free_ports(1)
    engine = open_engine(f"postgresql://{login}127.0.0.1:{port}/db?password=S3CR3T&sslpassword=S3CR3T")
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable) as away, reading(engine):
        pass
    assert f"127.0.0.1:{port}/db" in str(away.value) and "S3CR3T" not in full_text(away.value) + caplog.text


def test_settings_of_a_service_are_shown_without_secrets() -> None:
    assert "S3CR3T" not in repr(Settings(database="postgresql://u:S3CR3T@h/db", token="S3CR3T" * 4))


@pytest.mark.parametrize("text", ["postgresql://h/db?password=S3CR3T", "postgresql:///u:S3CR3T@h/db"])
def test_a_database_in_place_of_a_warehouse_is_not_shown(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        warehouse_location(text)
    assert "S3CR3T" not in str(refused.value)


def test_a_url_as_bytes_is_not_shown(tmp_path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        tablestore.connect(str(tmp_path), database=b"postgresql://u:S3CR3T@h/db")  # type: ignore[arg-type]
    assert refused.value.code == "bad-argument"
    assert "S3CR3T" not in str(refused.value)
