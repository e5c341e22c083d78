"""A binding brings in exactly one value, as data; everything that only looks like one is a problem or a text."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.errors import BindingUnresolved, Problem
from saga_engine.plan import jsonpath, limits
from saga_engine.plan.binder import Binder
from saga_engine.plan.bindings import Template
from saga_engine.plan.problems import Problems
from saga_engine.plan.undo_params import UndoParams

OUTPUT = {
    "order_id": "O-1",
    "price": 12.5,
    "seats": ["1A", "1B"],
    "none": None,
    "a-b": {"c d": 3, "0": "zero"},
    "legs": [{"id": 7, "to": "PEK"}],
    "note": "$secret.TOKEN {$key} {$output.step_1.price}",
    "where": "here",
}


class World:
    """A scope with one step's output, as the runtime gives one."""

    saga_id = "trip-42"
    item: Any = None
    index = 0

    def __init__(self, output: Any = OUTPUT, params: Any = None, given: Mapping[str, Any] | None = None) -> None:
        self.input: Mapping[str, Any] = given or {"guest": {"name": "Ada", "age": 36}, "first name": "Ada"}
        self._output = output
        self._params = params or {}

    def output(self, step_key: str) -> Any:
        if self._output is ...:
            raise BindingUnresolved(f"step {step_key} has no output", absent=True)
        return self._output

    def params(self, step_key: str) -> Any:
        return self._params

    def key(self, step_key: str) -> str:
        return f"key of {step_key}"

    def secret(self, name: str) -> str:
        return f"<{name}>"


def compiled(raw: dict[str, Any], keys: Mapping[str, int] | None = None) -> tuple[Template, list[Problem]]:
    found = Problems()
    template = Binder(keys or {"1": 0, "2": 1, "book-it": 2, "step_9": 3}, found).template(raw, "2", ())
    return template, found.listed()


def resolve(value: Any, world: World | None = None) -> Any:
    template, found = compiled({"p": value})
    assert not found
    return template.resolve(world or World())["p"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$output.step_1", OUTPUT),
        ("$output.step_1.order_id", "O-1"),
        ("$output.step_1.price", 12.5),
        ("$output.step_1.none", None),
        ("$output.step_1.seats", ["1A", "1B"]),
        ("$output.step_1.seats[0]", "1A"),
        ("$output.step_1.seats[-1]", "1B"),
        ("$output.step_1.legs[0].to", "PEK"),
        ("$output.step_1['order_id']", "O-1"),
        ("$output.step_1.a-b['c d']", 3),
        ('$output.step_1["a-b"]["c d"]', 3),
        ("$output.step_1.a-b.0", "zero"),
        ("$output.step_1.where", "here"),
        ("$output.step_1.legs[*].id", 7),
        ("$output.step_1..to", "PEK"),
        ("$output.step_1.seats[1:2]", "1B"),
        ("$output.step_book-it.price", 12.5),
        ("$output.step_9.price", 12.5),
        ("$output.step_step_9.price", 12.5),
        ("$input.guest", {"name": "Ada", "age": 36}),
        ("$input.guest.age", 36),
        ("$input['first name']", "Ada"),
        ("$saga.id", "trip-42"),
        ("$key", "key of 2"),
        ("$secret.TOKEN", "<TOKEN>"),
    ],
)
def test_a_whole_value_keeps_its_type(text: str, value: Any) -> None:
    """A text that is wholly a binding is replaced by the value itself, at the top and deep inside."""
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)
    assert resolve({"a": [text, 1]}) == {"a": [value, 1]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("order {$output.step_1.order_id}", "order O-1"),
        ("{$output.step_1.order_id}", "O-1"),
        ("{$output.step_1.price}", "12.5"),
        ("{$output.step_1.none}/{$output.step_1.seats}", 'null/["1A","1B"]'),
        ("{$output.step_1.a-b['c d']}{$key}", "3key of 2"),
        ("{$output.step_1['none']}}", "null}"),
        ("{{$key}}", "{key of 2}"),
        ('{"id": "{$saga.id}"}', '{"id": "trip-42"}'),
        ("Bearer {$secret.TOKEN}", "Bearer <TOKEN>"),
        ("hello {$input.guest.name}, {$input.guest}", 'hello Ada, {"name":"Ada","age":36}'),
    ],
)
def test_in_braces_a_binding_becomes_text(text: str, value: str) -> None:
    """Texts are filled in as they are, other values as compact JSON."""
    assert resolve(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "$100",
        "$",
        "$$",
        "$$$",
        "",
        "$keyboard",
        "$key_x",
        "$outputs.step_1",
        "$inputé",
        "$Output.step_1",
        "$env.HOME",
        "costs $key",
        "a $output.step_1.x",
        "{$100}",
        "{$keyboard}",
        "{ $key }",
        "${key}",
        "$ {key}",
        "$$keyboard",
        "$$100",
        " $key",
    ],
)
def test_everything_else_is_text(text: str) -> None:
    """Only the five prefixes bind, at the start of a value or right after a brace, and only as whole words."""
    template, found = compiled({"p": text})
    assert not found
    assert not template.bound
    assert template.resolve(World()) == {"p": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$$output.step_1.x", "$output.step_1.x"),
        ("$$key", "$key"),
        ("$$$key", "$$key"),
        ("$$secret", "$secret"),
        ("{$$key}", "{$key}"),
        ("{$$$saga.id} {$saga.id}", "{$$saga.id} trip-42"),
        ("$$input {$key}", "$input key of 2"),
    ],
)
def test_one_more_dollar_makes_a_literal(text: str, value: str) -> None:
    """Any text at all can be expressed: an escaped binding loses one dollar and binds nothing."""
    assert resolve(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "$output",
        "$output.1.x",
        "$output.step_",
        "$output.step_1 x",
        "$output.step_1.price,order_id",
        "$output.step_1.",
        "$output.step_1 and more",
        "$output.step_1.price, please",
        "$output.step_1.[",
        "$output.step_1[",
        "$output.step_1['a]",
        "$output.step_1.a.`parent`",
        "$output.step_1.a.$.b",
        "$output.step_1.*.*.*",
        "$output.step_1..*..*",
        "$output.step_1" + ".a" * 129,
        "$output['step_1']",
        "$input",
        "$input.",
        "$saga",
        "$saga.foo",
        "$saga.id.x",
        "$key.x",
        "$key ",
        "$secret",
        "$secret.a-b",
        "$secret.A B",
        "$secret.1",
        "$secret.A\n",
        "a {$output} b",
        "a {$key",
        "a {$key b}",
        "a {$output.step_1.x",
        "{$output.step_1['}",
    ],
)
def test_what_almost_binds_is_a_problem(text: str) -> None:
    """A prefix that is no binding is refused with a hint, where it stands, instead of being sent as text."""
    _, found = compiled({"a": [{"b": text}]})
    assert [(problem.code, problem.path) for problem in found] == [("binding-malformed", "$.a[0].b")]
    assert found[0].hint


def test_a_step_id_without_its_prefix_is_recognized() -> None:
    """The hint of the usual slip is what was meant."""
    _, found = compiled({"a": "for {$output.1.price}"})
    assert [problem.hint for problem in found] == ["did you mean $output.step_1.price?"]


@pytest.mark.parametrize("tail", ["[?(@.a==1)]", "[?@.a =~ '(a+)+$']", ".a where b", ".a wherenot b", "[?(1)]"])
def test_filters_are_refused(tail: str) -> None:
    """No plan can compute: filters and regular expressions have a code of their own."""
    _, found = compiled({"a": f"$output.step_1{tail}"})
    assert [problem.code for problem in found] == ["binding-filter"]


def test_an_unknown_step_is_named() -> None:
    """A binding to a step that is not in the plan is a problem with the near or the known ids."""
    _, found = compiled({"a": "$output.step_book-in.x", "b": "{$output.step_77}"})
    assert [(problem.code, problem.path) for problem in found] == [
        ("binding-unknown-step", "$.a"),
        ("binding-unknown-step", "$.b"),
    ]
    assert "book-it" in found[0].hint


def test_keys_are_never_bindings() -> None:
    """What stands on the left of a colon is text."""
    template, found = compiled({"$key": {"$output.step_1": 1}})
    assert not found
    assert template.resolve(World()) == {"$key": {"$output.step_1": 1}}


def test_what_a_binding_brings_is_data() -> None:
    """A tool that returns the text of a binding or of a secret gets that text, not what it names."""
    hostile = OUTPUT["note"]
    assert resolve("$output.step_1.note") == hostile
    assert resolve("a {$output.step_1.note} b") == f"a {hostile} b"
    world = World(given={"x": "$secret.TOKEN"})
    assert resolve("$input.x", world) == "$secret.TOKEN"


@given(st.text())
def test_any_text_resolves_to_itself_or_is_a_problem_or_binds(text: str) -> None:
    """Compiling never fails, and a text that holds no binding and no escape stays what it is."""
    template, found = compiled({"p": text})
    if not found and not template.bound and "$$" not in text:
        assert template.resolve(World()) == {"p": text}


@given(
    st.lists(
        st.sampled_from(["$output", ".step_1", "$key", "{", "}", "'", '"', "\\", "[", "]", "*", "..", "a", " ", "?"])
    )
)
def test_hostile_mixtures_are_compiled_or_refused(parts: list[str]) -> None:
    """No mixture of the grammar's pieces makes the compiler fail or the template raise anything of its own."""
    template, found = compiled({"p": "".join(parts)})
    assert all(problem.code.startswith("binding-") for problem in found)
    try:
        template.resolve(World())
    except BindingUnresolved:
        # The one error of its own: any other exception fails the test.
        return


@pytest.mark.parametrize(
    "text",
    [
        "$output.step_1.missing",
        "$output.step_1.seats[2]",
        "$output.step_1.seats[-3]",
        "$output.step_1.seats.0",
        "$output.step_1.order_id.x",
        "$output.step_1.none.x",
        "$output.step_1[0]",
        "$output.step_1.seats[*]",
        "$output.step_1.legs[*].nothing",
        "$output.step_1..nothing",
        "$output.step_1['price','order_id']",
        "$input.nobody",
        "x {$output.step_1.missing}",
    ],
)
def test_none_or_several_values_is_unresolved(text: str) -> None:
    """At run time a binding has exactly one value, or the call is not made."""
    template, found = compiled({"a": text})
    assert not found
    with pytest.raises(BindingUnresolved) as error:
        template.resolve(World())
    assert error.value.context["binding"] in text


def test_a_filled_text_is_bounded() -> None:
    """A text cannot grow beyond its limit by what is filled in."""
    output = {"x": "x" * (limits.MAX_TEXT_CHARS // 2)}
    with pytest.raises(BindingUnresolved, match="characters after its bindings"):
        resolve("{$output.step_1.x}{$output.step_1.x}.", World(output))
    assert len(resolve("{$output.step_1.x}{$output.step_1.x}", World(output))) == limits.MAX_TEXT_CHARS


def test_a_template_knows_what_it_needs() -> None:
    """Outputs and secrets are listed wherever they stand, and places say where."""
    template, _ = compiled({"a": "$output.step_1.x", "b": [{"c": "{$secret.A} {$secret.B}"}], "d": "$key", "e": 1})
    assert template.bound
    assert template.outputs == {"1"}
    assert template.secrets == {"A", "B"}
    assert [(place.path, place.source, place.embedded) for place in template.places] == [
        (("a",), "output", False),
        (("b", 0, "c"), "secret", True),
        (("b", 0, "c"), "secret", True),
        (("d",), "key", False),
    ]


def test_resolving_changes_neither_plan_nor_output() -> None:
    """A resolved template is a new object around shared parts; the plan's own params stay as they were."""
    raw = {"a": {"b": "$output.step_1.price", "c": [1]}, "d": ["$key", {"e": 1}]}
    before = copy.deepcopy(raw)
    template, _ = compiled(raw)
    first = template.resolve(World())
    assert raw == before
    assert first == {"a": {"b": 12.5, "c": [1]}, "d": ["key of 2", {"e": 1}]}
    assert list(first) == list(raw)
    assert first["a"]["c"] is raw["a"]["c"]
    assert template.resolve(World({"price": 1}))["a"]["b"] == 1


def test_complex_paths_are_counted() -> None:
    """A plan may have so many different paths that need the full grammar, and no more; equal ones count once."""
    raw = {str(index): f"$output.step_1[*].a{index}" for index in range(limits.MAX_COMPLEX_TAILS)}
    assert not compiled({**raw, "again": "$output.step_1[*].a0"})[1]
    assert [problem.code for problem in compiled({**raw, "more": "$output.step_1[*].b"})[1]] == ["limit-tails"]


def test_bindings_are_counted() -> None:
    """More bindings than the limit are one problem."""
    _, found = compiled({"a": ["$key"] * (limits.MAX_BINDINGS + 5)})
    assert [problem.code for problem in found] == ["limit-bindings"]
    assert not compiled({"a": ["$key"] * limits.MAX_BINDINGS})[1]


names = st.sampled_from(["a", "b", "c-d"])
data = st.recursive(
    st.integers(0, 3) | st.none(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=3),
    max_leaves=12,
)
segments = st.sampled_from(
    [
        ".a",
        ".b",
        ".c-d",
        "[0]",
        "[-1]",
        "['a']",
        "[*]",
        ".*",
        "[0:2]",
        "[::-1]",
        "..a",
        "..b",
        "..*",
        "['a','b']",
        "[0,1]",
    ]
)


@given(data, st.lists(segments, max_size=4))
def test_a_path_finds_what_the_library_finds(value: Any, parts: list[str]) -> None:
    """Chains and selectors agree with jsonpath-ng on every tree: one match is the value, none or several are not."""
    from jsonpath_ng import parse

    text = "".join(parts)
    tail = jsonpath.parse(text)
    if isinstance(tail, jsonpath.TailFault):
        # '..*' is two choices, every other segment with one of these signs is one.
        assert sum((".." in part) + any(sign in part for sign in "*:,") for part in parts) > limits.MAX_TAIL_CHOICES
        return
    expected = [match.value for match in parse("$" + text).find(value)]
    try:
        assert [jsonpath.find(value, tail)] == expected
    except jsonpath.Mismatch:
        assert len(expected) != 1


def test_a_search_gives_up_after_so_many_values() -> None:
    """A path that would have to look at more than its share of a huge output has no value."""
    tail = jsonpath.parse("..x")
    assert isinstance(tail, jsonpath.Tail)
    with pytest.raises(jsonpath.Mismatch, match="would visit"):
        jsonpath.find([[0] * 1000] * 1000, tail)
    search = jsonpath._Search()
    with pytest.raises(jsonpath.Mismatch):
        list(search.run([[0] * 1000] * 1000, tail.selectors))
    assert search.visits == limits.MAX_TAIL_VISITS + 1


def test_a_search_stops_at_the_second_match() -> None:
    """'Several' is known after two: the rest of a large output is not looked at."""
    tail = jsonpath.parse("[*]")
    assert isinstance(tail, jsonpath.Tail)
    with pytest.raises(jsonpath.Mismatch, match="more than one"):
        jsonpath.find([0] * 1_000_000, tail)


# --- a registered undo ---------------------------------------------------------------------------------------------

UNDO = {"properties": {"order_id": {}, "date": {}, "token": {}, "why": {}}, "required": ["order_id"]}


def test_an_undo_takes_fields_from_the_output_then_from_the_params() -> None:
    """Each of the undo's params comes from the output if it is there, else from the step's own params, or is left out."""
    forward, _ = compiled({"date": "tomorrow", "price": 3})
    undo = UndoParams(UNDO, "2", forward)
    assert undo.outputs == {"2"}
    world = World(params={"date": "tomorrow", "price": 3})
    assert undo.resolve(world) == {"order_id": "O-1", "date": "tomorrow"}
    assert undo.resolve(World({"order_id": 1, "date": None}, {"date": "x"})) == {"order_id": 1, "date": None}


def test_an_undo_without_a_required_field_is_unresolved() -> None:
    """A required param that is nowhere stops the undo before the call."""
    undo = UndoParams(UNDO, "2", compiled({})[0])
    with pytest.raises(BindingUnresolved, match="order_id"):
        undo.resolve(World({"other": 1}))
    with pytest.raises(BindingUnresolved, match="order_id"):
        undo.resolve(World("no object"))
    with pytest.raises(BindingUnresolved, match="no output"):
        undo.resolve(World(...))


def test_an_undo_that_needs_no_output_can_do_without() -> None:
    """When the step's own params suffice, an undo is possible although nobody knows the output."""
    undo = UndoParams(UNDO, "2", compiled({"order_id": "mine"})[0])
    assert undo.outputs == frozenset()
    assert undo.resolve(World(..., {"order_id": "mine"})) == {"order_id": "mine"}
    assert undo.resolve(World({"order_id": "theirs"}, {"order_id": "mine"})) == {"order_id": "theirs"}


def test_an_undo_gets_the_secret_itself() -> None:
    """A param that was a secret going forward is resolved again, because what is kept holds only its marker."""
    forward, _ = compiled({"token": "Bearer {$secret.T}", "other": "$secret.U", "order_id": 1})
    undo = UndoParams(UNDO, "2", forward)
    assert undo.secrets == {"T"}
    kept = {"token": "Bearer $secret.T", "other": "$secret.U", "order_id": 1}
    assert undo.resolve(World({}, kept)) == {"token": "Bearer <T>", "order_id": 1}
