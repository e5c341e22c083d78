"""The page about the policy says what the program does."""

import tomllib
from pathlib import Path

import pytest

from saga_engine.policy.conditions import OPS
from saga_engine.policy.rules import Policy
from tests.docs.pages import ROOT, blocks
from tests.policy.world import pay, says

PAGE = ROOT / "docs" / "policy.md"
TOML = [block for block in blocks("toml") if block.page == PAGE]


@pytest.mark.parametrize("block", TOML, ids=str)
def test_the_rules_on_the_page_are_rules(block, tmp_path: Path):
    """What is shown can be copied into a ``saga.toml``."""
    assert Policy.parse(tomllib.loads(block.body)["policy"], base=tmp_path, source="saga.toml").rules


def test_every_op_is_on_the_page():
    """And nothing else is called an op there; the fields of a rule stand in the reference."""
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| `")]
    named = {word.strip("`") for row in rows for word in row.split()}
    assert named == set(OPS)


async def test_the_first_example_does_what_the_page_says(tmp_path):
    """Large payments are asked about, the fourth payment is denied by its rule's name."""
    policy = Policy.parse(tomllib.loads(TOML[0].body)["policy"], base=tmp_path, source="saga.toml")
    renamed = type(pay)(pay.function, name="pay_card")
    assert await says(policy, {"amount": 1001}, made=renamed) == "ask"
    chosen = {"direction": "compensate", "backward": True, "chosen": True}
    assert await says(policy, {"amount": 99999}, made=renamed, **chosen) == "ask"
    assert await says(policy, {"path": "../x"}, made=type(pay)(pay.function, name="read_file")) == "deny"
