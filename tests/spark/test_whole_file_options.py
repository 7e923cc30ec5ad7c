"""The options with which Python and Java fix reads of our tables are the same ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tablestore.spark
from tablestore.spark.batch.whole_files import EVERY_ROW_GROUP, FIXED

JAVA = Path(tablestore.spark.__file__).parent / "jvm/src/tablestore/spark/WholeFiles.java"


@pytest.mark.parametrize(("name", "options"), [("FIXED", FIXED), ("EVERY_ROW_GROUP", EVERY_ROW_GROUP)])
def test_java_fixes_the_same_options(name: str, options: dict[str, str]) -> None:
    [text] = re.findall(rf"Map<String, String> {name} =\s+Map\.of\((.*?)\);", JAVA.read_text(), re.DOTALL)
    assert dict(re.findall(r'"([^"]+)", "([^"]+)"', text)) == options
