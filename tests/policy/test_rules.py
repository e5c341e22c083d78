"""The rules as ``saga.toml`` states them: whatever makes no sense is refused, and the error says where."""

import tomllib

import pytest

from saga_engine.errors import SettingInvalid
from saga_engine.policy.conditions import Condition
from saga_engine.policy.gate import Gate
from saga_engine.policy.rules import Policy, Rule
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry
from tests.policy.world import a_key_call, pay, policy_of, says, word

FULL = """
[policy]
default = "deny"
allow_private = ["127.0.0.1", "10.1.0.0/16"]

[[policy.rules]]
name = "large payments"
tools = ["pay_*", "pay"]
direction = "forward"
when = [{param = "amount", op = ">", value = 1000}, {param = "items[*].sku", op = "in", value = ["a", "b"]}]
max_calls = 3
max_sum = {param = "amount", limit = 5000}
verdict = "ask"
expires_s = 3600
message = "more than the agent may spend"

[[policy.rules]]
name = "the rest"
verdict = "allow"
"""


def parsed(text, tmp_path):
    return Policy.parse(tomllib.loads(text)["policy"], base=tmp_path, source="saga.toml")


def test_a_whole_policy_is_read(tmp_path):
    """Every field arrives where it is used."""
    policy = parsed(FULL, tmp_path)
    assert (policy.default, policy.allow_private) == ("deny", ("127.0.0.1", "10.1.0.0/16"))
    large, rest = policy.rules
    assert (large.name, large.verdict, large.tools, large.direction) == (
        *("large payments", "ask"),
        ("pay_*", "pay"),
        "forward",
    )
    assert (large.max_calls, large.limit, large.expires_s, large.message) == (
        *(3, 5000, 3600.0),
        "more than the agent may spend",
    )
    assert (rest.tools, rest.direction, rest.counts) == ((), None, False)
    assert policy.addresses.refused("10.1.2.3") is None


def test_an_empty_policy_allows(tmp_path):
    """No table, no rules."""
    policy = Policy.parse({}, base=tmp_path, source="saga.toml")
    assert (policy.default, policy.rules) == ("allow", ())


RULE = '[[policy.rules]]\nname = "r"\nverdict = "deny"\n'
WRONG = [
    ('[policy]\ndefault = "maybe"', "default"),
    ('[policy]\ndefault = ["allow"]', "default"),
    ('[policy]\nallow_privat = ["127.0.0.1"]', "allow_privat"),
    ('[policy]\nallow_private = "127.0.0.1"', "allow_private"),
    ('[policy]\nallow_private = ["10.0.0.1/8"]', "allow_private"),
    ('[policy]\nallow_private = ["localhost"]', "allow_private"),
    ("[policy]\nrules = 5", "rules"),
    ("[policy]\nrules = [5]", "rules"),
    ('[[policy.rules]]\nverdict = "deny"', "number 1', name"),
    ('[[policy.rules]]\nname = ""\nverdict = "deny"', "name"),
    ('[[policy.rules]]\nname = 5\nverdict = "deny"', "name"),
    ('[[policy.rules]]\nname = "a\\nb"\nverdict = "deny"', "name"),
    ('[[policy.rules]]\nname = "default"\nverdict = "deny"', "name"),
    (RULE + RULE, "'r', name"),
    ('[[policy.rules]]\nname = "r"', "'r', verdict"),
    ('[[policy.rules]]\nname = "r"\nverdict = "block"', "'r', verdict"),
    (RULE + "tool = ['pay']", "'r', tool"),
    (RULE + "tools = 'pay'", "'r', tools"),
    (RULE + "tools = ['']", "'r', tools"),
    (RULE + "direction = 'both'", "'r', direction"),
    (RULE + "direction = 'probe'", "'r', direction"),
    (RULE + "when = {param = 'a', op = 'exists'}", "'r', when"),
    (RULE + "when = [5]", "'r', when, condition 1"),
    (RULE + "when = [{op = 'exists'}]", "condition 1, param"),
    (RULE + "when = [{param = 'a'}]", "condition 1, op"),
    (RULE + "when = [{param = 'a', op = 'exists'}, {param = 'a', op = '=', value = 1}]", "condition 2, op"),
    (RULE + "when = [{param = 'a', op = ['=='], value = 1}]", "condition 1, op"),
    (RULE + "when = [{param = 'a', op = '=='}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'exists', value = 1}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = '==', values = 1}]", "condition 1, values"),
    (RULE + "when = [{param = 'a[?(@.b)]', op = 'exists'}]", "condition 1, param"),
    (RULE + "when = [{param = '', op = 'exists'}]", "condition 1, param"),
    (RULE + "when = [{param = 'a', op = '>', value = 'many'}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = '>', value = true}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = '>', value = nan}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = '==', value = inf}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'in', value = 'ab'}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'in', value = []}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'matches', value = 5}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'matches', value = []}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'inside', value = ''}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'inside', value = [5]}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'host', value = 'https://example.com'}]", "condition 1, value"),
    (RULE + "when = [{param = 'a', op = 'not-host', value = ['a', '127.1']}]", "condition 1, value"),
    (RULE + "max_calls = -1", "'r', max_calls"),
    (RULE + "max_calls = 1.5", "'r', max_calls"),
    (RULE + "max_calls = true", "'r', max_calls"),
    (RULE + "max_sum = 5000", "'r', max_sum"),
    (RULE + "max_sum = {param = 'a'}", "'r', max_sum.limit"),
    (RULE + "max_sum = {param = 'a', limit = -1}", "'r', max_sum.limit"),
    (RULE + "max_sum = {param = 'a', limit = '1e3'}", "'r', max_sum.limit"),
    (RULE + "max_sum = {limit = 5}", "'r', max_sum.param"),
    (RULE + "max_sum = {param = 'a', limit = 5, per = 'day'}", "'r', per"),
    ('[[policy.rules]]\nname = "r"\nverdict = "allow"\nmax_calls = 3', "'r', max_calls"),
    ('[[policy.rules]]\nname = "r"\nverdict = "allow"\nmax_sum = {param = "a", limit = 1}', "'r', max_sum"),
    (RULE + "expires_s = 0", "'r', expires_s"),
    (RULE + "expires_s = 'soon'", "'r', expires_s"),
    (RULE + "expires_s = inf", "'r', expires_s"),
    (RULE + "expires_s = true", "'r', expires_s"),
    (RULE + "message = 5", "'r', message"),
]


@pytest.mark.parametrize(("text", "where"), WRONG)
def test_what_makes_no_sense_is_refused(text, where, tmp_path):
    """A typing error must not switch a guard off: the error names the file, the rule and the field."""
    with pytest.raises(SettingInvalid) as error:
        parsed(text, tmp_path)
    assert error.value.message.startswith("saga.toml: ")
    assert f"{where}:" in error.value.message


def test_rules_in_python():
    """The same rules, as objects; conditions may be objects, too."""
    rule = Rule(name="r", verdict="deny", when=[Condition("amount", ">", 5), {"param": "to", "op": "exists"}])
    assert Policy([rule]).rules[0].name == "r"
    with pytest.raises(SettingInvalid, match="no Rule"):
        Policy([{"name": "r", "verdict": "deny"}])
    with pytest.raises(SettingInvalid, match="'r', name"):
        Policy([rule, rule])
    with pytest.raises(SettingInvalid, match="no function"):
        Policy(check="deny")


async def test_folders_count_from_the_file_of_the_rules(tmp_path, monkeypatch):
    """Not from the folder in which the process happens to run."""
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    policy = policy_of(("path", "outside", "data"), base=tmp_path)
    assert await says(policy, {"path": str(tmp_path / "data/x")}, made=pay) == "allow"
    assert await says(policy, {"path": "data/x"}, made=pay) == "deny"


def test_globs_that_fit_no_tool_can_be_found(tmp_path):
    """Most likely they are typing errors, and their rule guards nothing."""
    policy = parsed(FULL, tmp_path)
    assert policy.unmatched(["pay", "look"]) == [("large payments", "pay_*")]
    assert policy.unmatched(["pay", "pay_card"]) == []


async def test_undos_probes_and_plain_functions(store):
    """Whatever a registry holds can be checked."""

    async def plain_function(amount: int = 50) -> dict:
        return {}

    @tool(input_schema={"type": "object", "properties": {"amount": {"type": "integer", "default": 50}}})
    async def given(**params) -> dict:
        return {}

    gate = Gate(policy_of(("amount", ">", 10)), store)
    for one in ToolRegistry(plain_function, given):
        assert word(await gate.authorize(one, {}, a_key_call())) == "deny"
        assert word(await gate.authorize(one, {"amount": 5}, a_key_call())) == "allow"
