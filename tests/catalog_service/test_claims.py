"""Claims of versions: the same by the embedded catalog, by a service, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from catalog_service.client import Catalog, CreateTable, connect
from catalog_service.client.claims import CatalogClaims
from catalog_service.client.embedded import EmbeddedCatalog
from catalog_service.database.claims import ClaimRows
from catalog_service.database.held_commits import HeldCommits
from catalog_service.server import serving
from filestore import layout
from filestore.ambient import system_ambient
from filestore.commit.claims import Claim
from filestore.errors import InvalidRequest, NotFound

NEW_ID = system_ambient().new_id


@pytest.fixture(params=["embedded", "service", pytest.param("postgresql", marks=pytest.mark.slow)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    warehouse = str(tmp_path / "w")
    if request.param != "service":
        database = request.getfixturevalue("database") if request.param == "postgresql" else None
        with connect(warehouse, database=database, commits="catalog") as opened:
            yield opened
        return
    with serving(warehouse, commits="catalog") as url, connect(url) as opened:
        yield opened


def table(catalog: Catalog, name: str = "t") -> CatalogClaims:
    """The claims of a new table, whose version 0 is claimed and published."""
    catalog.create_database("shop", if_not_exists=True)
    info = catalog.create_table("shop", CreateTable.of(name, "id BIGINT"))
    assert info.commits == "catalog"
    return CatalogClaims(catalog, "shop", name, info.table_id)


def wanted(version: int) -> Claim:
    return Claim(version, layout.staged_commit_path(version, NEW_ID()))


def test_a_version_is_claimed_once_published_and_followed_by_the_next(catalog: Catalog) -> None:
    claims = table(catalog)
    first = claims.newest()
    assert first is not None
    assert (first.version, first.published) == (0, True)
    mine, other = wanted(1), wanted(1)
    assert claims.claim(mine, first) == mine
    assert claims.claim(mine, first) == mine  # a repetition, whose first reply was lost
    assert claims.claim(other, first) == mine
    assert claims.claim(wanted(2), mine) == mine  # it is not published yet
    assert claims.newest() == mine
    published = claims.publish(mine)
    assert published == Claim(1, mine.file, published=True)
    assert claims.claim(other, first) == published  # it knows an old claim
    assert claims.claim(wanted(1), published) == published  # a version is never claimed again
    second = wanted(2)
    assert claims.claim(second, published) == second
    assert claims.publish(mine) == second  # late: it changes nothing


@pytest.mark.few(1)
def test_one_of_sixteen_gets_each_version(catalog: Catalog) -> None:
    claims = table(catalog)
    newest = claims.newest()
    with ThreadPoolExecutor(16) as pool:
        for version in range(1, 4):
            asked = [wanted(version) for _ in range(16)]
            answers = list(pool.map(lambda one, after=newest: claims.claim(one, after), asked))
            assert len(set(answers)) == 1
            assert answers[0] in asked
            newest = claims.publish(answers[0])
            assert newest is not None and newest.version == version


def test_a_table_that_was_dropped_has_no_claims(catalog: Catalog) -> None:
    claims = table(catalog)
    newest = claims.newest()
    catalog.drop_table("shop", "t")
    again = table(catalog)
    for call in (claims.newest, lambda: claims.claim(wanted(1), newest), lambda: claims.publish(wanted(1))):
        with pytest.raises(NotFound):
            call()
    found = again.newest()
    assert found is not None and newest is not None and found.file != newest.file


def test_what_is_no_staged_entry_is_refused(tmp_path: Path) -> None:
    with serving(str(tmp_path / "w"), commits="catalog") as url, connect(url) as catalog:
        claims = table(catalog)
        body = {"table_id": claims.table_id, "version": 1, "file": "../../etc/passwd"}
        answer = httpx.post(f"{url}/api/v1/databases/shop/tables/t/commits", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-claim")
        body["file"] = layout.staged_commit_path(2, NEW_ID())
        assert httpx.put(f"{url}/api/v1/databases/shop/tables/t/commits", json=body).json()["code"] == "bad-claim"


def test_who_holds_commits_is_decided_with_the_first_database(tmp_path: Path) -> None:
    warehouse = str(tmp_path / "w")
    with pytest.raises(InvalidRequest) as refused, connect(warehouse, commits="nobody") as catalog:
        catalog.create_database("shop")
    assert refused.value.code == "bad-commits"
    with connect(warehouse, commits="store") as catalog:
        assert catalog.list_databases() == []
    with connect(warehouse, commits="catalog") as catalog:  # nothing was decided yet
        catalog.create_database("shop")
    with connect(warehouse) as catalog:  # those that come later need not know
        assert catalog.create_table("shop", CreateTable.of("t", "id BIGINT")).commits == "catalog"
        catalog.drop_database("shop", cascade=True)
    with pytest.raises(InvalidRequest, match="was made with commits = catalog") as refused:
        connect(warehouse, commits="store").close()
    assert refused.value.code == "commits-fixed"


def test_a_warehouse_of_before_keeps_its_store(tmp_path: Path) -> None:
    with connect(str(tmp_path / "w")) as catalog:
        catalog.create_database("shop")
        assert catalog.create_table("shop", CreateTable.of("t", "id BIGINT")).commits == "store"
    with pytest.raises(InvalidRequest, match="was made with commits = store"):
        connect(str(tmp_path / "w"), commits="catalog").close()


def test_of_two_that_make_a_warehouse_one_decides(tmp_path: Path) -> None:
    one, other = (EmbeddedCatalog(str(tmp_path / "w"), commits=commits) for commits in ("catalog", "store"))
    with one, other:
        rows = [ClaimRows(catalog._open_service()._engine) for catalog in (one, other)]
        first, second = (HeldCommits(*pair) for pair in zip(rows, ("catalog", "store"), strict=True))
        first.decide()
        with pytest.raises(InvalidRequest, match="commits = catalog"):
            second.decide()


def test_a_service_decides_itself(tmp_path: Path) -> None:
    with serving(str(tmp_path / "w")) as url, pytest.raises(InvalidRequest, match="`commits`") as refused:
        connect(url, commits="catalog")
    assert refused.value.code == "not-with-a-service"
