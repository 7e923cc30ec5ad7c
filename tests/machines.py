"""Runs the state machines of hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_machine(
    machine: type[RuleBasedStateMachine], name: str = "", *, examples: int, steps: int, **attributes: Any
) -> None:
    """Runs a machine that has these attributes of its class; draws depend on the name, and examples are kept by it.

    A failing run is short as it is, so it is not shrunk, which takes minutes. Hypothesis gets a function in place of
    the class: for a class, `inspect` makes the syntax tree of its whole module, which fails now and then where the
    garbage collection runs other code meanwhile (a `SystemError` of Python before 3.11.8, CPython's issue 106905).
    """
    made = type(machine.__name__, (machine,), attributes)

    def new() -> Any:
        return made()

    new.__name__ = f"{machine.__qualname__}_{name}"
    chosen = settings(max_examples=examples, stateful_step_count=steps, phases=(Phase.explicit, Phase.generate))
    run_state_machine_as_test(new, settings=chosen)  # type: ignore[arg-type]
