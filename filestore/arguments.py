"""Checks arguments of public functions against their annotations, for the whole public API (decision 77).

    @checks_arguments("rows")                  # all public methods of the class; `rows` is checked elsewhere
    class Table: ...

    @checked()                                 # one function
    def connect(target: str, …) -> Store: ...

A signature says which values are valid: ``version: int | None`` refuses ``1.5`` and ``True`` and takes numpy's
integers, ``columns: Sequence[str]`` refuses ``"id"``, ``options: Mapping[str, str]`` takes numbers and booleans and
converts them to texts. Classes are checked by `isinstance`. Other parts of an annotation are not checked.
"""

from __future__ import annotations

import builtins
import inspect
import operator
import os
import reprlib
import types
from collections.abc import Callable, Collection, KeysView, Mapping, Sequence, Set
from datetime import datetime
from functools import wraps
from typing import Any, ForwardRef, Literal, ParamSpec, Protocol, TypeVar, Union, cast, get_args, get_origin

from filestore.errors import InvalidRequest
from filestore.forks import require_threads

__all__ = ["checked", "checks_arguments"]

Params = ParamSpec("Params")
Result = TypeVar("Result")
Checked = TypeVar("Checked")
Check = Callable[[Any], Any]
"""Converts a valid value for the function; returns `_WRONG` for others."""

_WRONG = object()
_SECRET = frozenset({"token", "options", "source_options", "database"})  # `connect` takes a URL for `database`
_SHOWN = 60
_WORDS = {
    bool: "True or False",
    bytes: "bytes",
    datetime: "a datetime",
    os.PathLike: "a path",
    float: "a number",
    int: "a whole number",
    str: "a text",
    types.NoneType: "None",
}


def checks_arguments(*elsewhere: str) -> Callable[[type[Checked]], type[Checked]]:
    """Checks the arguments of the constructor and of all public methods that a class itself defines.

    Args:
        elsewhere: Parameters that are not checked here, since other code checks them when it reads them.
    """

    def decorated(cls: type[Checked]) -> type[Checked]:
        for name, member in vars(cls).copy().items():
            if name.startswith("_") and name != "__init__":
                continue
            if isinstance(member, classmethod | staticmethod):
                setattr(cls, name, type(member)(checked(*elsewhere)(member.__func__)))
            elif inspect.isfunction(member):
                setattr(cls, name, checked(*elsewhere)(member))
        return cls

    return decorated


def checked(*elsewhere: str) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Checks a function's arguments before it runs.

    The first call reads the annotations: an import must stay quick, and may name classes before their definition.

    Args:
        elsewhere: Parameters that are not checked, as for `checks_arguments`.

    Raises:
        InvalidRequest: ``bad-argument``: the decorated function raises it.
    """

    def decorated(function: Callable[Params, Result]) -> Callable[Params, Result]:
        plan: list[_Plan] = []

        @wraps(function)
        def call(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            require_threads()  # this is the way into the public API
            if not plan:
                plan.append(_Plan(function, elsewhere))
            given, named = plan[0].taken(args, kwargs)
            return function(*given, **named)

        return call

    return decorated


class _Plan:
    """The checks of a function's parameters."""

    def __init__(self, function: Callable[..., Any], elsewhere: Collection[str]) -> None:
        owner, _, name = function.__qualname__.rpartition(".")
        self._name = owner if name == "__init__" else name
        self._in_order: list[tuple[str, Check]] = []
        self._rest: tuple[str, Check] | None = None
        self._by_name: dict[str, Check] = {}
        self._kinds: dict[str, Any] = {}
        names = _Names(cast(types.FunctionType, inspect.unwrap(function)).__globals__)
        for parameter in inspect.signature(function).parameters.values():
            annotated = parameter.annotation is not parameter.empty and parameter.name not in elsewhere
            kind = parameter.annotation if annotated else Any
            kind = eval(kind, {}, names) if isinstance(kind, str) else kind  # annotations are our own source code
            check = _check(kind)
            self._kinds[parameter.name] = kind
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = parameter.name, check
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._in_order.append((parameter.name, check))
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                self._by_name[parameter.name] = check

    def taken(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns the converted arguments. Too many arguments, or unknown names, are left to Python to refuse."""
        given = [self._one(name, check, value) for (name, check), value in zip(self._in_order, args, strict=False)]
        rest = args[len(given) :]
        if self._rest is not None:
            given += [self._one(*self._rest, value) for value in rest]
        else:
            given += rest
        named = {
            name: self._one(name, self._by_name[name], value) if name in self._by_name else value
            for name, value in kwargs.items()
        }
        return given, named

    def _one(self, name: str, check: Check, value: Any) -> Any:
        found = check(value)
        if found is _WRONG:
            problem, wanted = _problem(name, check, value), _wanted(self._kinds[name])
            raise InvalidRequest(f"{self._name}(): the argument {name} {problem}; pass {wanted}", code="bad-argument")
        return found


def _problem(name: str, check: Check, value: Any) -> str:
    """Says what is wrong with a value. Options may contain passwords, so only the names of a dict are shown."""
    kind = type(value).__name__
    if isinstance(value, Mapping) and check({}) is not _WRONG:
        wrong = next((key for key, item in value.items() if check({key: item}) is _WRONG), None)
        if wrong is not None:
            return f"is a {kind} that has a value of type {type(value[wrong]).__name__} under {_shown(wrong)}"
    if isinstance(value, list | tuple) and check([]) is not _WRONG:
        at = next((at for at, item in enumerate(value) if check([item]) is _WRONG), None)
        if at is not None:  # otherwise there are too few or too many items
            return f"is a {kind} whose item {at} is of type {type(value[at]).__name__}"
    return f"is of type {kind}" if name in _SECRET else f"is {_shown(value)} (type {kind})"


class _Unloaded(type):
    """Stands for a class that only type checkers import, or for a module of such classes: it has only a name."""

    def __getattr__(cls, name: str) -> _Unloaded:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Unloaded(name, (), {})


class _Names(dict[str, Any]):
    """A module's names, Python's own, and a substitute for names that the module does not import."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)  # a debugger asks for such names, and believes the answer
        return getattr(builtins, name, None) or _Unloaded(name, (), {})


def _loaded(kind: Any) -> Any:
    """Returns the class that an alias names as text, as it is where only type checkers import the class's module."""
    return eval(kind.__forward_arg__, {}, _Names()) if isinstance(kind, ForwardRef) else kind


def _check(kind: Any) -> Check:
    """Makes the check for an annotation."""
    kind = _loaded(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _any_of([_check(one) for one in inner])
    if origin is Literal:  # for editors and type checkers; the function itself says which words there are
        return _text
    if origin is tuple:
        return _tuple_of([_check(one) for one in inner])
    if origin is Sequence:
        return _sequence_of(_check(inner[0]))
    if origin is Mapping or origin is dict:
        return _mapping_of(_check(inner[0]), _option_text if inner[1] is str else _check(inner[1]))
    if origin is Callable:
        return lambda value: value if callable(value) else _WRONG
    kind = origin or kind
    if isinstance(kind, _Unloaded):
        return lambda value: value if kind.__name__ in {base.__name__ for base in type(value).__mro__} else _WRONG
    if isinstance(kind, type) and Protocol not in kind.__bases__:
        return lambda value: value if isinstance(value, kind) else _WRONG
    return _anything


def _anything(value: Any) -> Any:
    return value


def _none(value: Any) -> Any:
    return value if value is None else _WRONG


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _WRONG


def _truth(value: Any) -> Any:
    """Accepts booleans, numpy's too, without importing numpy."""
    if isinstance(value, bool):
        return value
    return bool(value) if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_") else _WRONG


def _whole(value: Any) -> Any:
    """Accepts what Python accepts as an index, such as numpy's integers, except booleans."""
    if type(value) is int:
        return value
    if _truth(value) is not _WRONG:
        return _WRONG
    try:
        return operator.index(value)
    except TypeError:
        return _WRONG


def _number(value: Any) -> Any:
    return value if isinstance(value, float) else _whole(value)


def _moment(value: Any) -> Any:
    """Accepts datetimes except NaT, which pandas makes a datetime."""
    return value if isinstance(value, datetime) and value == value else _WRONG


def _option_text(value: Any) -> Any:
    """Converts the value of an option, which may be a number or a boolean, to a text."""
    if isinstance(value, str):
        return value
    found = _truth(value)
    if found is not _WRONG:
        return str(found).lower()
    found = _number(value)
    return _WRONG if found is _WRONG else str(found)


def _any_of(checks: Sequence[Check]) -> Check:
    def check(value: Any) -> Any:
        return next((found for one in checks if (found := one(value)) is not _WRONG), _WRONG)

    return check


def _tuple_of(checks: Sequence[Check]) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, tuple | list) or len(value) != len(checks):
            return _WRONG
        found = tuple(one(item) for one, item in zip(checks, value, strict=True))
        return _WRONG if any(item is _WRONG for item in found) else found

    return check


def _sequence_of(check_item: Check) -> Check:
    """Accepts collections with an order, also numpy's and pandas' columns, but no text and no set."""

    def check(value: Any) -> Any:
        if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Collection):
            return _WRONG
        if isinstance(value, Set) and not isinstance(value, KeysView):
            return _WRONG
        found = [check_item(item) for item in value]
        return _WRONG if any(item is _WRONG for item in found) else found

    return check


def _mapping_of(check_key: Check, check_value: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _WRONG
        found = {check_key(key): check_value(item) for key, item in value.items()}
        return _WRONG if _WRONG in found or any(item is _WRONG for item in found.values()) else found

    return check


_SCALARS: dict[Any, Check] = {
    Any: _anything,
    bool: _truth,
    datetime: _moment,
    float: _number,
    int: _whole,
    None: _none,
    str: _text,
    types.NoneType: _none,
}


def _wanted(kind: Any) -> str:
    """Describes an annotation in words."""
    kind = _loaded(kind)
    if kind in _WORDS:
        return _WORDS[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_wanted(one) for one in inner))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        return f"a tuple of {' and '.join(_wanted(one) for one in inner)}"
    if origin is Sequence:
        return "a list of texts, such as ['id']" if inner[0] is str else "a list"
    if origin is Mapping or origin is dict:
        return {str: "a dict of texts", int: "a dict of whole numbers"}.get(inner[1], "a dict")
    if origin is Callable:
        return "a function"
    kind = origin or kind
    return _WORDS.get(kind) or f"a {getattr(kind, '__name__', kind)}"


def _shown(value: Any) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
