"""Syntax trees of modules."""

from __future__ import annotations

import ast
import gc

__all__ = ["syntax_tree"]


def syntax_tree(text: str) -> ast.Module:
    """Parses a module, without garbage collection meanwhile.

    It may run other code, and other threads. If they make a syntax tree, too, as printed tracebacks do, the first one
    is a `SystemError` (CPython's issue 106905, in Python before 3.11.8).
    """
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.enable()
