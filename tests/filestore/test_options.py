"""Options: names, values, defaults, and the advice for a wrong one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import filestore
from filestore.errors import InvalidRequest
from filestore.model.options import OPTIONS
from filestore.model.options_page import page
from filestore.model.table_options import TableOptions
from tests.syntax import syntax_tree


def test_defaults_parse() -> None:
    options = TableOptions()
    for name, option in OPTIONS.items():
        assert (options[name] is None) == (option.default is None)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("buckets", "bucket"), ("sequence-field", "sequence.field"), ("target-file-sise", "target-file-size")],
)
def test_an_unknown_name_suggests_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(InvalidRequest, match=f"did you mean '{nearest}'") as caught:
        TableOptions.parse({wrong: "1"})
    assert caught.value.code == "unknown-option"


@pytest.mark.parametrize("name", ["zzzzzzzz", "owner.team"])
def test_a_name_near_to_nothing_lists_all(name: str) -> None:
    """Of `owner.team` the message asked whether write-mode was meant."""
    with pytest.raises(InvalidRequest, match="known options: bucket, "):
        TableOptions.parse({name: "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bucket", "0"),
        ("bucket", "4097"),
        ("bucket", "-1"),
        ("bucket", "1.5"),
        ("bucket", ""),
        ("bucket", "٣"),
        ("merge-engine", "first"),
        ("target-file-size", "0"),
        ("target-file-size", "10 xb"),
        ("target-file-size", "-1 mb"),
        ("bucket-key", "a,,b"),
        ("sequence.field", " "),
        ("changelog-producer", "full"),
        ("changelog-producer.compaction-interval", "1"),
        ("file.bloom-filter.fpp", "1.0"),
        ("file.bloom-filter.fpp", "0.0"),
    ],
)
def test_a_wrong_value_says_what_is_expected(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=f"option '{name}' has value") as caught:
        TableOptions.parse({name: value})
    assert caught.value.code == "bad-option-value"


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("10 b", 10), ("2kb", 2048), ("3 K", 3072), ("128 mb", 128 << 20), ("1 TB", 1 << 40)]
)
def test_sizes(text: str, size: int) -> None:
    assert TableOptions.parse({"target-file-size": text})["target-file-size"] == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("500 ms", 0.5), ("10s", 10), ("30 min", 1800), ("1 H", 3600), ("2 d", 172_800)]
)
def test_durations(text: str, seconds: float) -> None:
    name = "changelog-producer.compaction-interval"
    assert TableOptions.parse({name: text})[name].total_seconds() == seconds


def test_prefixes_pass_through() -> None:
    options = TableOptions.parse({"log.kafka.properties.security.protocol": "SSL"})
    assert options.with_prefix("log.kafka.properties.") == {"security.protocol": "SSL"}
    with pytest.raises(InvalidRequest):
        TableOptions.parse({"log.kafka.properties.": "SSL"})


@given(st.permutations([("bucket", "3"), ("file.compression", "none"), ("checkpoint.interval", "7")]))
def test_order_does_not_matter(given_options: list[tuple[str, str]]) -> None:
    assert TableOptions.parse(dict(given_options)) == TableOptions.parse(dict(sorted(given_options)))


def test_the_reference_page_is_what_the_code_says() -> None:
    written = Path(filestore.__file__).with_name("OPTIONS.md").read_text()
    assert written == page(), "write it anew: python -m filestore.model.options_page > filestore/OPTIONS.md"


def _looked_up(module: ast.Module) -> Iterator[str]:
    """The texts that stand in brackets, are an argument, or are a value in a dict."""
    for node in ast.walk(module):
        match node:
            case ast.Subscript(slice=one):
                found = [one]
            case ast.Call(args=found) | ast.Dict(values=found):
                pass
            case _:
                continue
        yield from (one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str))


@pytest.mark.slow
def test_every_option_that_has_a_choice_is_read() -> None:
    root = Path(filestore.__file__).parent.parent
    declaring = {root / "filestore" / "model" / name for name in ("options.py", "log_options.py")}
    packages = (path.parent for path in root.glob("*/__init__.py") if path.parent.name != "tests")
    modules = [path for package in packages for path in package.rglob("*.py") if path not in declaring]
    found = {text for path in modules for text in _looked_up(syntax_tree(path.read_text("utf-8")))}
    assert set(OPTIONS) - found == {"log.format", "log.key.format"}, "an option that no code reads"
