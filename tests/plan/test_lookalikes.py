"""What looks like a binding and is none is found, with the right spelling; what is meant as it stands is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.plan.lookalikes import MAX_FOUND, lookalikes
from saga_engine.plan.model import load_plan


def found(text: Any, **fields: Any) -> list[tuple[str, str]]:
    steps = [{"step_id": 1, "tool": "a"}, {"step_id": "vm", "tool": "b"}]
    last = {"step_id": 3, "tool": "c", "params": {"text": text}, **fields}
    return [(each.path, each.hint) for each in lookalikes(load_plan({"steps": [*steps, last]}))]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("${output.step_1.x}", "$output.step_1.x"),
        ("${output.step_vm.public_ip}", "$output.step_vm.public_ip"),
        ("${steps.vm.output.vm_id}", "$output.step_vm.vm_id"),
        ("${steps.1.x}", "$output.step_1.x"),
        ("flight $output.step_1.x", "{$output.step_1.x}"),
        ("up at $output.step_vm.public_ip now", "{$output.step_vm.public_ip}"),
        ("{{vm.vm_id}}", "$output.step_vm.vm_id"),
        ("at {{ input.name }}!", "{$input.name}"),
        ("{{ $output.step_1.x }}", "$output.step_1.x"),
        ("$step_1.x", "$output.step_1.x"),
        ("$step_1", "$output.step_1"),
        ("$vm.vm_id", "$output.step_vm.vm_id"),
        ("$step_vm.vm_id", "$output.step_vm.vm_id"),
        ("$outputs.step_1.x", "$output.step_1.x"),
        ("$outputs.vm.x[0].y", "$output.step_vm.x[0].y"),
        ("{output.step_1.x}", "$output.step_1.x"),
        ("order {output.step_1.x} now", "{$output.step_1.x}"),
        ("{step_1.x}", "$output.step_1.x"),
        ("$inputs.n", "$input.n"),
        ("$secrets.TOKEN", "$secret.TOKEN"),
        ("<vm_id of step vm>", "$output.step_vm.vm_id"),
        ("$.steps[1].output", "$output.step_vm"),
        ("output.step_1.x", "$output.step_1.x"),
        ("input.name", "$input.name"),
        ("$today", "$input.NAME"),
        ("${ENV}", "$output.step_<id>.field"),
        ("{{name}}", "$output.step_<id>.field"),
    ],
)
def test_each_wrong_form_is_told_with_the_right_one(text: str, right: str) -> None:
    """Forms of other templates, plurals, missing dollars and braces."""
    ((path, hint),) = found(text)
    assert path == "$.steps[2].params.text"
    assert right in hint


@pytest.mark.parametrize(
    "text",
    [
        "$output.step_1.x", "order {$output.step_1.x}", "$input.n", "{$input.n} and {$secret.T}", "$saga.id", "$key",
        "$$output.step_1.x", "{$$output.step_1.x}", "$100", "costs $5.00", "$keyboard", "a {b} c", "{}", "$", "<b>bold</b>",
        "mail.example.com", "output.txt", "x" * 30_000 + "${a}", "{$output.step_1['{{a}}']}", "costs $key", 5, None, "",
    ],
)  # fmt: skip
def test_bindings_and_plain_texts_are_left_alone(text: Any) -> None:
    """Nothing is said of real bindings, escaped ones, prices and names of files."""
    assert found(text) == []


def test_every_place_is_looked_at_and_the_list_ends() -> None:
    """Nested params, rollbacks, fallbacks and the resource; a plan full of them does not fill the screen."""
    bad = "{{x}}"
    call = {"tool": "a", "params": {"a": [bad]}}
    fields = {"rollback": call, "resource": bad, "fallback": [{**call, "rollback": call}]}
    paths = [path for path, _ in found({"deep": [bad]}, **fields)]
    assert paths == [
        "$.steps[2].params.text.deep[0]",
        "$.steps[2].resource",
        "$.steps[2].rollback.params.a[0]",
        "$.steps[2].fallback[0].params.a[0]",
        "$.steps[2].fallback[0].rollback.params.a[0]",
    ]
    assert len(found([bad] * 500)) == MAX_FOUND


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("$each.name", "write $item.name"),
        ("for {$element.name}", "write {$item.name}"),
        ("{{item.name}}", "write $item.name"),
        ("{{ loop.index }} of them", "write {$index}"),
        ("{$item.name} and $item", ""),
    ],
)
def test_the_item_of_a_list_has_one_name(text: str, right: str) -> None:
    """Other templates call it otherwise; in a step without a list these words say nothing."""
    step = {"step_id": 1, "tool": "any", "params": {"a": text}, "kind": "irreversible"}
    plan = load_plan({"steps": [{**step, "each": "$input.list"}]})
    assert [problem.hint for problem in lookalikes(plan)] == ([right] if right else [])
    if not text.startswith("{{"):
        assert lookalikes(load_plan({"steps": [step]})) == []
