"""The product and its tests are in plain English: no private words in docstrings, comments, messages and pages.

Each word that is refused here has a better one that users of Delta and Kafka know.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.syntax import syntax_tree

ROOT = Path(__file__).parent.parent
TEXTS = (
    "filestore",
    "log",
    "managed_table",
    "compaction",
    "catalog_service",
    "tablestore",
    "pyspark_tablestore",
    "deploy",
    "tests",
    "docs",
    "examples",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
)
PRIVATE_WORDS = {
    r"brings?|brought": "adds, restores, returns",
    r"came": "arrived, was added, follows",
    r"hears? of|heard of": "gets, receives",
    r"in vain": "lost the race, failed",
    r"lies?|lay|lain": "is in, is at",
    r"looks? at .* again|looking again": "retries, checks again",
    r"mends?|mended": "repairs, corrects",
    r"settle|settles|settled": "resolved, final",
    r"tells?|told": "says, reports, writes, contains",
}
PRIVATE_NAMES = re.compile(
    r"brings?|brought|came|heard|hears?|told|tells|tellers?|met|mends?|mended|settled?|settles|buried|bury|graves?|said"
)
PRODUCT = (
    "filestore",
    "log",
    "managed_table",
    "compaction",
    "catalog_service",
    "tablestore",
    "pyspark_tablestore",
)
FIRST_WORDS = {
    "how|what|when|where|whether|which|who|whom|whose|why": "a clause that has no verb for what the thing does: say "
    "'Returns whether', 'Decides how', 'The place of'",
    "after|as|at|because|before|behind|below|beside|besides|between|beyond|by|for|from|if|in|inside|like|of|on|once|"
    "outside|since|so|than|though|under|unless|until|while|with|within|without": "a circumstance before the thing that "
    "it belongs to: begin with the verb, and put the circumstance behind it",
    "anything|everything|it|its|that|their|there|these|they|this|those|something": "names nothing: say what it is",
    "also|and|but|never|no|not|only|or|see|too|worth": "half a sentence: say what it does or is",
}
"""Words with which no docstring begins, each with the reason: the first sentence says what the thing does or is."""
_FIRST_WORDS = {word: reason for words, reason in FIRST_WORDS.items() for word in words.split("|")}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign)
_FIRST_WORD = re.compile(r"\s*([^\W\d_]+)(?![\w`(])")
_JAVADOC = re.compile(r"/\*\*[\s*]*")
_TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.COMMENT)}
"""The tokens that are texts; f-strings have one of their own from Python 3.12 on."""
_BANNED = re.compile("|".join(rf"(?<![\w-])(?:{words})\b" for words in PRIVATE_WORDS), re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line numbers and texts of a page, or of the strings and comments of a module."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(content.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in _TEXTS:
            for number, line in enumerate(token.string.splitlines()):
                yield token.start[0] + number, line


def has_a_private_name(text: str) -> bool:
    """Whether a part of an identifier, or of any in a text, is a private word."""
    return any(PRIVATE_NAMES.fullmatch(word.lower()) for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text))


def files(name: str) -> list[Path]:
    """The modules and pages of a package, without this module: it lists the private words."""
    place = ROOT / name
    found = [place] if place.is_file() else sorted([*place.rglob("*.py"), *place.rglob("*.md"), *place.rglob("*.java")])
    return [path for path in found if path != Path(__file__)]


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_has_a_private_word(name: str) -> None:
    assert files(name), "it was moved: correct `TEXTS`"
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} in {line.strip()}"
        for path in files(name)
        if _BANNED.search(path.read_text(encoding="utf-8"))  # most have none, and tokens take far longer
        for number, line in texts(path)
        if (match := _BANNED.search(line))
    ]
    assert not found, f"use a word of {PRIVATE_WORDS}:\n" + "\n".join(found)


@pytest.mark.parametrize("name", [name for name in TEXTS if (ROOT / name).is_dir() and name != "docs"])
def test_no_identifier_has_a_private_word(name: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for path in files(name)
        if path.suffix == ".py" and has_a_private_name(path.read_text(encoding="utf-8"))
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        if token.type == tokenize.NAME and has_a_private_name(token.string)
    ]
    assert not found, "say what it does or holds:\n" + "\n".join(found)


def docstrings(content: str) -> Iterator[tuple[int, str]]:
    """Yields line numbers and docstrings of a Python module: its own, of classes and functions, and behind values."""
    for node in ast.walk(syntax_tree(content)):
        body = getattr(node, "body", None)
        for before, statement in pairwise([node, *body] if isinstance(body, list) else []):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if isinstance(before, _DOCUMENTED):
                    yield statement.lineno, text


def javadoc(content: str) -> Iterator[tuple[int, str]]:
    """Yields line numbers and comments of a Java class that document something."""
    for found in _JAVADOC.finditer(content):
        yield content.count("\n", 0, found.start()) + 1, content[found.end() :]


def refused_beginnings(documented: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields line numbers of documentation that begins with one of `FIRST_WORDS`, each with word and reason."""
    for line, text in documented:
        word = _FIRST_WORD.match(text)
        if word and (reason := _FIRST_WORDS.get(word[1].lower())):
            yield line, f"{word[1]!r} is {reason}"


@pytest.mark.parametrize("name", PRODUCT)
def test_a_docstring_begins_with_what_the_thing_does_or_is(name: str) -> None:
    paths = [path for path in files(name) if path.suffix in (".py", ".java")]
    read = {path: path.read_text(encoding="utf-8") for path in paths}
    documented = {path: [*(docstrings if path.suffix == ".py" else javadoc)(text)] for path, text in read.items()}
    assert sum(map(len, documented.values())) >= len(paths), "no docstring is found any more"
    found = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path, texts_of in documented.items()
        for line, problem in refused_beginnings(iter(texts_of))
    ]
    assert not found, "\n".join(found)


def test_beginnings_that_are_refused_are_found_everywhere() -> None:
    module = '''"""How it is done."""
LIMIT = 5
"""Beyond it nothing is read."""
class A:
    """What is kept."""
    kept: int
    """For each row whether it is kept."""
    async def f(self):
        """
        Of those the last.
        """
def g():
    """Returns what is kept."""
    return {"how": 1}
def h():
    call()
    """Whether this is a docstring: it is none."""
'''
    assert [line for line, _ in refused_beginnings(docstrings(module))] == [1, 3, 5, 7, 9]
    java = "/** Whether it is. */\nclass A {\n  /**\n   * How it is.\n   */\n  int a; /** Returns it. */ /* What */\n}"
    assert [line for line, _ in refused_beginnings(javadoc(java))] == [1, 3]
