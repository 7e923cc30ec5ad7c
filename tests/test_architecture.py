"""The architecture: sizes of modules, names and allowed imports, as far as no linter checks them."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import filestore.errors
import tablestore
from tests.syntax import syntax_tree

ROOT = Path(__file__).parent.parent
PACKAGES = ("filestore", "log", "managed_table", "compaction", "catalog_service", "tablestore", "pyspark_tablestore")
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60


def modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(syntax_tree(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns how many lines a function has without its docstring."""
    docstring = ast.get_docstring(function, clean=False)
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    return length - (len(docstring.splitlines()) if docstring else 0)


def test_there_are_modules_to_check() -> None:
    assert len(modules()) > 50


def test_a_module_has_one_subject_and_fits() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: count for name, count in lines.items() if count > MAX_MODULE_LINES} == {}


@pytest.mark.slow
def test_functions_fit_a_screen() -> None:
    lines = {(name_of(path), f.name): code_lines(f) for path in modules() for f in functions(path)}
    assert {name: count for name, count in lines.items() if count > MAX_FUNCTION_LINES} == {}


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "common", "helpers", "misc", "v2"}
    assert not [name_of(p) for p in modules() if drawers & {part.removesuffix(".py") for part in p.parts}]


def test_nothing_catches_everything() -> None:
    for path in modules():
        text = path.read_text()
        nodes = ast.walk(syntax_tree(text)) if re.search(r"\bexcept\s*:", text) else ()  # a tree takes far longer
        for node in nodes:
            assert not (isinstance(node, ast.ExceptHandler) and node.type is None), name_of(path)


def test_every_package_says_what_it_is() -> None:
    for package in PACKAGES:
        assert (importlib.import_module(package).__doc__ or "").strip(), package


@pytest.mark.parametrize(
    "package",
    [
        "catalog_service",
        "catalog_service.client",
        "catalog_service.database",
        "catalog_service.model",
        "catalog_service.server",
        "catalog_service.tables",
        "catalog_service.use_cases",
        "catalog_service.wire",
        "compaction",
        "log",
        "managed_table",
        "tablestore.cli",
        "tablestore.demo",
        "tablestore.system",
    ],
)
def test_a_package_that_lists_its_modules_lists_all(package: str) -> None:
    found = importlib.import_module(package)
    listed = set(re.findall(r"\w+", found.__doc__ or ""))
    there = {module.name for module in pkgutil.iter_modules(found.__path__)} - {"__main__", "migrations"}
    assert there <= listed


def test_no_exception_of_the_linter_outlives_its_file() -> None:
    ignored = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert [pattern for pattern in ignored if not any(ROOT.glob(pattern.removesuffix("/**")))] == []


def test_every_package_is_installed_checked_and_in_its_layer() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    patterns = settings["setuptools"]["packages"]["find"]["include"]
    installed = {pattern.rstrip("*").removesuffix(".") for pattern in patterns}
    assert installed == set(PACKAGES)
    assert set(settings["mypy"]["files"]) == {*PACKAGES, "deploy"}  # which is installed nowhere
    assert set(settings["importlinter"]["contracts"][0]["layers"]) == set(PACKAGES)


def test_public_names_of_the_door() -> None:
    assert set(tablestore.__all__) == {
        "AlreadyExists",
        "CommitUnknown",
        "Conflict",
        "Corrupt",
        "Ingestion",
        "InvalidRequest",
        "KafkaScan",
        "KafkaTable",
        "Metrics",
        "Normalizer",
        "NormalizerSpec",
        "NotFound",
        "Pace",
        "ReadRows",
        "RowKind",
        "Scan",
        "Snapshot",
        "Store",
        "Table",
        "TableStoreError",
        "Unavailable",
        "Unsupported",
        "connect",
        "metadata_column",
    }
    for name in tablestore.__all__:
        assert getattr(tablestore, name).__doc__, name


def test_errors_are_one_tree_with_one_root() -> None:
    members = inspect.getmembers(filestore.errors, inspect.isclass)
    classes = [c for _, c in members if c.__module__ == "filestore.errors"]
    root = filestore.errors.TableStoreError
    assert all(issubclass(c, root) for c in classes)
    codes = [c.default_code for c in classes]
    assert len(set(codes)) == len(codes), "each class has a code of its own"


def test_no_package_raises_an_error_outside_the_tree() -> None:
    """Built-in errors do not say what a caller can do; ValueError inside option parsers becomes InvalidRequest."""
    allowed = {
        "AssertionError",
        "AttributeError",
        "ValueError",
        "NotImplementedError",
        "SystemExit",
        "ImportError",  # before anything of ours can be imported
        "KeyError",
        "TypeError",
    }
    refused = {name for name in vars(builtins) if name not in allowed}
    for path in modules():
        text = path.read_text()
        suspected = not refused.isdisjoint(re.findall(r"\braise\s+(\w+)\s*\(", text))
        for node in ast.walk(syntax_tree(text)) if suspected else ():  # a tree takes far longer
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                name = node.exc.func.id
                assert not hasattr(builtins, name) or name in allowed, f"{name_of(path)} raises {name}"


def test_clients_of_librdkafka_in_tests_are_quiet() -> None:
    """Those that outlived their broker printed lines behind the report of a whole run."""
    clients = re.compile(r"\b(?:Producer|Consumer|AdminClient)\(\s*\{\s*\"bootstrap\.servers\"")
    own = {
        ROOT / "tests/bench",
        ROOT / "tests/log/kafka",
    }  # whose programs print a table, and whose clients have no log
    paths = (path for path in (ROOT / "tests").rglob("*.py") if own.isdisjoint(path.parents))
    found = [name_of(path) for path in paths if clients.search(path.read_text())]
    assert not found, "make their settings with `tests.servers.kafka.quiet`"
