"""Steps whose word a folder of ``saga_engine.ext`` or another package brings (``plan.words``): their records.

What such code says is looked at before it is recorded: a step of it that breaks the contract fails, and the saga goes
on as after any failure.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from msgspec import json

from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.core.steps.compute import MAX_RESULT_BYTES
from saga_engine.core.waits import Pending
from saga_engine.errors import BindingUnresolved, ExtensionMissing, ValueNotJson
from saga_engine.plan import words
from saga_engine.plan.limits import MAX_SECONDS
from saga_engine.plan.value_schema import ValueSchema
from saga_engine.plan.values import plain


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record that begins the step, and ends it unless it waits."""
    key, name = state.plan.steps[index].key, state.plan.steps[index].builtin
    try:
        said = _asked(name, lambda word: word.begin(_body(state, index), now))
        if isinstance(said, words.Until):
            return r.StepWaiting(at=now, step=key, on="timer", due_ms=_due(name, said.due_ms, now))
        if isinstance(said, words.Done):
            return r.StepSucceeded(at=now, step=key, via="computed", output=_output(name, said.output))
        raise _Defect(f"{name}: its begin gave {type(said).__name__}, and neither Done nor Until")
    except _Failed as failed:
        return r.StepFailed(at=now, step=key, error=failed.reason)


def due(state: State, index: int, wait: Pending, now: int) -> r.AnyRecord:  # noqa: ARG001 - as for every kind of wait
    """Its time has come."""
    key, name = state.plan.steps[index].key, state.plan.steps[index].builtin
    try:
        output = _asked(name, lambda word: word.ended(_body(state, index)))
        return r.StepSucceeded(at=now, step=key, via="timer", output=_output(name, output))
    except _Failed as failed:
        return r.StepFailed(at=now, step=key, error=failed.reason)


class _Failed(Exception):
    def __init__(self, reason: ErrorInfo) -> None:
        self.reason = reason


class _Defect(_Failed):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorInfo("step_defect", message[:1000], retryable=False))


def _body(state: State, index: int) -> Any:
    step = state.plan.steps[index]
    try:
        return deepcopy(step.params.resolve(StateScope(state))[step.builtin])  # whatever the code does to it
    except BindingUnresolved as error:
        raise _Failed(ErrorInfo("binding_unresolved", error.message, retryable=False)) from error


def _asked(name: str, ask: Callable[[words.Word], Any]) -> Any:
    """What the word's code says; whatever it raises is the failure of the step, and is recorded as that.

    Raises ``ExtensionMissing``: a process without the word decides nothing about its step.
    """
    try:
        return ask(words.word(name))
    except (_Failed, ExtensionMissing):
        raise
    except words.Unfit as error:
        raise _Failed(ErrorInfo(f"{name}_invalid", str(error)[:1000], retryable=False)) from error
    except Exception as error:
        raise _Defect(f"{name} raised {type(error).__name__}: {error}") from error


def _due(name: str, due_ms: Any, now: int) -> int:
    if isinstance(due_ms, bool) or not isinstance(due_ms, int):
        raise _Defect(f"{name}: the end of its wait is {type(due_ms).__name__}, and no whole number of ms")
    if due_ms - now > MAX_SECONDS * 1000:
        raise _Defect(f"{name}: the end of its wait is further away than a wait may be")
    return due_ms


def _output(name: str, output: Any) -> Any:
    try:
        made = plain(output)
    except ValueNotJson as error:
        raise _Defect(f"{name}: its output: {error.message}") from error
    if (size := len(json.encode(made))) > MAX_RESULT_BYTES:
        raise _Defect(f"{name}: its output has {size} bytes of JSON, and at most {MAX_RESULT_BYTES} are kept")
    schema = words.word(name).output
    for _, message in () if schema is None else ValueSchema(schema)(made)[:1]:
        raise _Defect(f"{name}: its output does not fit its schema: {message}")
    return made
