"""Builds wheels and source distributions (PEP 517): setuptools does, after the jar for SQL in Spark was compiled.

Both have the jar, so that installing them needs no Java compiler. It is compiled against Spark's own jars: unless it
was made from these sources already, and if there is a compiler, pip fetches pyspark for the build. Without a compiler
they are built without the jar. Then all but SQL works, and SQL says what lacks (``no-sql-jar``).
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

_ROOT = Path(__file__).parents[1]
Settings = dict[str, Any] | None


def get_requires_for_build_wheel(settings: Settings = None) -> list[str]:
    """Returns what a build needs beside setuptools."""
    return [*build_meta.get_requires_for_build_wheel(settings), *_needed()]


def get_requires_for_build_sdist(settings: Settings = None) -> list[str]:
    """Returns what a build needs beside setuptools."""
    return [*build_meta.get_requires_for_build_sdist(settings), *_needed()]


def get_requires_for_build_editable(settings: Settings = None) -> list[str]:
    """Returns what a build needs beside setuptools."""
    return [*build_meta.get_requires_for_build_editable(settings), *_needed()]


def build_wheel(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Builds a wheel with the jar."""
    _jar().make_jar()
    name: str = build_meta.build_wheel(folder, settings, metadata)
    return name


def build_sdist(folder: str, settings: Settings = None) -> str:
    """Builds a source distribution with the jar."""
    _jar().make_jar()
    name: str = build_meta.build_sdist(folder, settings)
    return name


def build_editable(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Builds a wheel that leads to the sources, which have the jar then."""
    _jar().make_jar()
    name: str = build_meta.build_editable(folder, settings, metadata)
    return name


@cache
def _jar() -> ModuleType:
    """Loads the module alone: what the product imports beside it is not installed where it is built."""
    sys.path.insert(0, str(_ROOT))
    spec = importlib.util.spec_from_file_location("sql_jar", _ROOT / "tablestore" / "spark" / "sql" / "jar.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _needed() -> list[str]:
    if _jar().is_current() or shutil.which("javac") is None:
        return []
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [wanted for wanted in project["optional-dependencies"]["spark"] if wanted.startswith("pyspark==")]
