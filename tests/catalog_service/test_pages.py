"""Page tokens: they are opaque, valid for one list only, and stable while rows are added and removed."""

from __future__ import annotations

import base64
import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.model.names import fold_name
from catalog_service.wire.page_tokens import cut, decode_token, encode_token
from filestore.errors import InvalidRequest

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,99}", fullmatch=True)


@given(NAMES, NAMES)
def test_a_token_gives_back_its_key(scope: str, key: str) -> None:
    token = encode_token(scope, key)
    assert decode_token(scope, token) == key
    assert token.isascii()
    assert not set(token) & set("+/= ")
    with pytest.raises(InvalidRequest):
        decode_token(scope + "x", token)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.hex()))
def test_no_text_breaks_the_decoder(text: str) -> None:
    try:
        assert decode_token("databases", text) is None or text
    except InvalidRequest as error:
        assert error.code == "bad-page-token"


def test_a_token_of_another_databases_tables_is_refused() -> None:
    token = encode_token("tables:shop", "orders")
    assert decode_token("tables:shop", token) == "orders"
    for other in ("tables:bank", "tables", "snapshots:shop"):
        with pytest.raises(InvalidRequest, match="another list"):
            decode_token(other, token)


def test_deep_json_is_a_bad_token() -> None:
    with pytest.raises(InvalidRequest):
        decode_token("databases", base64.urlsafe_b64encode(b"[" * 360).decode())


def test_a_forged_token_of_half_a_surrogate_pair_is_refused(api: httpx.Client) -> None:
    """The message named the other list as it stood, and an answer cannot: 500."""
    token = encode_token("\ud800", "a")
    response = api.get("/databases", params={"page_token": token})
    assert (response.status_code, response.json()["code"]) == (400, "bad-page-token")


@given(st.sets(NAMES, max_size=30), st.integers(1, 7), st.data())
def test_what_is_there_all_along_comes_once(names: set[str], size: int, data: st.DataObject) -> None:
    """Between pages names come and go; those that stay are listed exactly once, in order."""
    there, steady, seen, token = set(names), set(names), [], None
    while True:
        after = decode_token("x", token)
        rows = sorted(n for n in there if after is None or n > after)[: size + 1]
        page, token = cut(rows, size, "x", str)
        seen += page
        if token is None:
            break
        gone = data.draw(st.sets(st.sampled_from(sorted(there)), max_size=3)) if there else set()
        there = (there - gone) | data.draw(st.sets(NAMES, max_size=3))
        steady -= gone
    assert seen == sorted(set(seen))
    assert steady <= set(seen)


def test_pages_over_http_while_names_come_and_go(api: httpx.Client) -> None:
    api.post("/databases", json={"name": "shop"}).raise_for_status()

    def create(name: str) -> None:
        body = {"name": name, "schema": "id INT", "options": {"log.system": "none"}}
        api.post("/databases/shop/tables", json=body).raise_for_status()

    for name in ("b", "d", "f", "h", "j"):
        create(name)
    first = api.get("/databases/shop/tables", params={"page_size": 2}).json()
    assert [t["name"] for t in first["tables"]] == ["b", "d"]
    create("a")  # before the page: not seen
    create("e")  # behind it: seen
    api.delete("/databases/shop/tables/d").raise_for_status()  # the last of the page itself
    api.delete("/databases/shop/tables/h").raise_for_status()
    names, token = [], first["next_page_token"]
    while token:
        page = api.get("/databases/shop/tables", params={"page_size": 2, "page_token": token}).json()
        names += [t["name"] for t in page["tables"]]
        token = page["next_page_token"]
    assert names == ["e", "f", "j"]


@given(st.text(max_size=120))
def test_a_name_is_refused_or_safe_everywhere(text: str) -> None:
    try:
        name = fold_name("table", text)
    except InvalidRequest as error:
        assert error.code == "bad-name"
    else:
        assert name == text.lower()
        assert name.isascii()
        assert name.replace("_", "a").isalnum()
        assert name[0].isalpha()
        assert len(name) <= 100


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,99}", fullmatch=True))
def test_good_names_are_folded(text: str) -> None:
    assert fold_name("table", text) == text.lower() == fold_name("table", text.upper())


@pytest.mark.parametrize("value", [[1, "scope"], [2, "scope", "a"], [1, "scope", ""], [1, 2, "a"], {"1": 2}, 7])
def test_other_json_is_no_token(value: object) -> None:
    token = base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
    with pytest.raises(InvalidRequest, match="this service did not issue that page_token") as caught:
        decode_token("scope", token)
    assert caught.value.code == "bad-page-token"
