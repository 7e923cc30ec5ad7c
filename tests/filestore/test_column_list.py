"""The primary key in a SQL column list."""

from __future__ import annotations

import pytest

from filestore.errors import InvalidRequest
from filestore.model.sql import parse_column_list, parse_columns


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("id BIGINT, v INT", ()),
        ("id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED", ("id",)),
        ("id BIGINT, v INT, PRIMARY KEY (id)", ("id",)),
        ("id BIGINT, v INT, PRIMARY KEY (`v`, id) NOT ENFORCED", ("v", "id")),
        ("id BIGINT, v INT, CONSTRAINT pk PRIMARY KEY (id) NOT ENFORCED", ("id",)),
        ("id BIGINT PRIMARY KEY NOT ENFORCED COMMENT 'the key', v INT", ("id",)),
    ],
)
def test_a_key_in_the_list(text: str, key: tuple[str, ...]) -> None:
    found = parse_column_list(text)
    assert found.primary_key == key
    assert [c.name for c in found.columns] == ["id", "v"]
    assert [c.nullable for c in found.columns] == [name not in key for name in ("id", "v")]
    assert parse_column_list(text, key) == found  # said twice, the same


def test_a_key_that_is_nullable_stays_for_others_to_refuse() -> None:
    assert parse_column_list("id BIGINT NULL, PRIMARY KEY (id) NOT ENFORCED").columns[0].nullable


@pytest.mark.parametrize(
    ("text", "beside", "code"),
    [
        ("id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED", ["v"], "primary-key"),
        ("id BIGINT PRIMARY KEY, v INT, PRIMARY KEY (id)", [], "primary-key"),
        ("id BIGINT, PRIMARY KEY (id) ENFORCED", [], "bad-column-list"),
        ("id BIGINT, PRIMARY KEY (id DESC) NOT ENFORCED", [], "bad-column-list"),
        ("id BIGINT, FOREIGN KEY (id) REFERENCES other", [], "bad-column-list"),
        ("id BIGINT, UNIQUE (id)", [], "bad-column-list"),
    ],
)
def test_other_constraints_and_two_keys_are_refused(text: str, beside: list[str], code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_column_list(text, beside)
    assert caught.value.code == code


def test_columns_alone_have_no_key() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_columns("id BIGINT, PRIMARY KEY (id) NOT ENFORCED")
    assert caught.value.code == "bad-column-list"
