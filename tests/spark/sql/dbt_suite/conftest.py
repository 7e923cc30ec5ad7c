"""The suite of dbt's adapters on the Thrift server at ``THRIFT_PORT``, with projects as our page has them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt.adapters.spark.connections import PyhiveConnectionWrapper
from dbt.tests.util import write_file

pytest_plugins = ["dbt.tests.fixtures.project"]


@pytest.fixture(scope="class")
def dbt_profile_target() -> dict[str, Any]:
    server = {"type": "spark", "method": "thrift", "host": "127.0.0.1", "port": int(os.environ["THRIFT_PORT"])}
    return {**server, "user": "dbt", "threads": 4}


@pytest.fixture(scope="session", autouse=True)
def asked_soon() -> Iterator[None]:
    """dbt asks whether a statement has ended after whole seconds; there are thousands here, and few take that long."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PyhiveConnectionWrapper, "poll_interval", property(lambda _: 0.05, lambda *_: None), False)
        yield


@pytest.fixture(scope="class")
def dbt_project_yml(dbt_project_yml: dict[str, Any], project_root: Any) -> dict[str, Any]:
    """Adds the format without which dbt refuses merge and snapshots; a class may have another one."""
    for kind in ("models", "seeds", "snapshots"):
        dbt_project_yml.setdefault(kind, {}).setdefault("+file_format", "delta")
    write_file(yaml.safe_dump(dbt_project_yml), project_root, "dbt_project.yml")
    return dbt_project_yml


@pytest.fixture(autouse=True)
def errors(logs_dir: str) -> Iterator[None]:
    """Prints what the server has refused: tests of grants keep dbt's output to themselves."""
    yield
    log = Path(logs_dir) / "dbt.log"
    print(*re.findall(r"^ +org\.apache\.hive.*Error running query: .*$", log.read_text(), re.MULTILINE), sep="\n")


IN_SPARK = {
    r"(\{database\}|\bNone)\.": "",  # dbt-spark has none
    r"\bTEXT\b|\bVARCHAR\(\d+\)": "STRING",
    r"\bTIMESTAMP WITHOUT TIME ZONE\b": "TIMESTAMP",
    r'"(\w+)"': r"`\1`",
}
"""What is PostgreSQL's in the statements with which the suite prepares tables; those of dbt itself stay as they are."""


@pytest.fixture(scope="class")
def project(project: Any) -> Any:
    run = project.run_sql

    def run_in_spark(sql: str, fetch: str | None = None) -> Any:
        for theirs, spark in IN_SPARK.items():
            sql = re.sub(theirs, spark, sql)
        *before, last = [one for one in re.split(r";\s*\n", sql) if one.strip()] or [sql]
        for statement in before:
            run(statement)
        return run(last, fetch=fetch)

    project.run_sql = run_in_spark
    return project
