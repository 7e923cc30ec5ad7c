"""The suite of dbt's adapters (``dbt-tests-adapter``) on our catalog, by the Thrift server.

``dbt_suite`` has what of it dbt-spark has, too, and what needs nothing that Spark has not: names of three parts,
PostgreSQL's types and casts. ``dbt_suite/not_passed.toml`` has each test that does not pass, with its reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablestore.spark.settings import catalog_settings
from tests.servers.dbt import NotInstalled, dbt_python, run_suite
from tests.servers.sql_servers import thrift_server

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.deep]

SUITE = Path(__file__).with_name("dbt_suite")
USERS = {f"DBT_TEST_USER_{number}": f"user_{number}" for number in (1, 2, 3)}  # whom tests of grants name
SUBJECTS = sorted(path.stem for path in SUITE.glob("*.py") if path.stem != "conftest")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The port of a server whose default catalog is a warehouse."""
    try:
        dbt_python()
    except NotInstalled as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("suite")
    settings = {**catalog_settings({"lake": str(folder / "warehouse")}), "spark.sql.defaultCatalog": "lake"}
    with thrift_server(folder, settings, {}) as server:
        yield server.url.rpartition(":")[2]


def messages(subject: str) -> dict[str, str]:
    """Returns what is in the output of each test of a subject that does not pass."""
    listed = tomllib.loads((SUITE / "not_passed.toml").read_text())["reason"]
    return {test: reason["message"] for reason in listed for test in reason["tests"].get(subject, ())}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_suite_passes_but_for_what_is_listed(port: str, subject: str, tmp_path: Path) -> None:
    outcomes = run_suite(SUITE / f"{subject}.py", tmp_path, {"THRIFT_PORT": port, **USERS})
    assert outcomes, "no test was found"
    listed = messages(subject)
    failed = {name: output for name, output in outcomes.items() if output}
    assert {name: output for name, output in failed.items() if name not in listed} == {}, "not listed"
    assert listed.keys() - failed.keys() == set(), "listed, and passed"
    assert {name: failed[name] for name, message in listed.items() if message not in failed[name]} == {}, (
        "other reasons"
    )
