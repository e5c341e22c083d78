"""Which tools are offered for a goal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import saga_engine
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.tools.tool_search import select_tools, words


class Catalog:
    """Declarations by name."""

    def __init__(self, *specs: ToolSpec) -> None:
        self._specs = {spec.name: spec for spec in specs}

    def names(self) -> list[str]:
        return list(self._specs)

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)


def travel() -> Catalog:
    schema = {"type": "object", "properties": {"passport": {"description": "number of the travel document"}}}
    return Catalog(
        ToolSpec("read_file", "Read a file of the project", effect="read"),
        ToolSpec("book_flight", "Book a seat on a plane", undo="cancel_flight", probe="find_flight"),
        ToolSpec("cancel_flight", "Give a seat back", probe="find_cancellation"),
        ToolSpec("find_flight", "Tell whether a seat was booked", effect="read"),
        ToolSpec("find_cancellation", "Tell whether a seat was given back", effect="read"),
        ToolSpec("book_hotel", "Reserve a room for some nights", use_when="somebody stays overnight"),
        ToolSpec("check_visa", "Look up whether a visa is needed", input_schema=schema, effect="read"),
        ToolSpec("pay_invoice", "Pay by wire", tags=("finance", "Paid")),
        ToolSpec("refund_invoice", "Get money back", tags=("finance",)),
        ToolSpec("预订酒店", "为客人预订酒店房间"),
        ToolSpec("发送邮件", "向收件人发送一封邮件"),
    )


def chosen(goal: str, limit: int = 1, **options) -> list[str]:
    return [spec.name for spec in select_tools(goal, travel(), limit=limit, **options)]


@pytest.mark.parametrize(
    ("goal", "first"),
    [
        ("Please book me two flights to Rome", "book_flight"),
        ("BOOKING a ROOM for the night", "book_hotel"),
        ("Ada stays overnight in Rome", "book_hotel"),
        ("which travel documents are needed", "check_visa"),
        ("reading files", "read_file"),
        ("cancelled flights", "cancel_flight"),
        ("帮我预订一家酒店", "预订酒店"),
        ("把报告发送给李雷的邮件地址", "发送邮件"),
        ("ﬂight", "book_flight"),
    ],
)
def test_the_text_finds_the_tool(goal, first):
    """Name, description, use_when and parameters count, in any form of the word, in Chinese too."""
    assert chosen(goal)[0] == first


def test_tags_go_before_text():
    """A tool with a wanted tag stands first, one with more of them before; case does not matter."""
    assert chosen("book a flight", 3, tags=["finance"])[:3] == ["pay_invoice", "refund_invoice", "book_flight"]
    assert chosen("get money back", 2, tags=["FINANCE", "paid"]) == ["pay_invoice", "refund_invoice"]
    assert chosen("get money back", 2, tags="finance") == ["refund_invoice", "pay_invoice"]


def test_undo_and_probe_come_along_and_do_not_count():
    """A saga cannot use a tool without its undo and probe; a tool is never listed twice."""
    assert chosen("book a flight", 1) == ["book_flight", "cancel_flight", "find_flight", "find_cancellation"]
    names = chosen("book a flight, cancel a flight", 3)
    assert len(names) == len(set(names))
    assert len([n for n in names if n not in ("cancel_flight", "find_flight", "find_cancellation")]) >= 2


def test_a_score_takes_the_place_of_the_text():
    """The seam for embeddings: the largest score is first, equals in the order of registration."""
    assert chosen("book a flight", 2, score=lambda goal, spec: float(spec.name == "pay_invoice")) == [
        "pay_invoice",
        "read_file",
    ]
    seen: set[str] = set()
    chosen("my goal", score=lambda goal, spec: seen.add(goal) or 0.0)
    assert seen == {"my goal"}
    with pytest.raises(ValueError, match="no place in an order"):
        chosen("x", score=lambda goal, spec: float("nan"))


def test_a_catalog_that_fits_is_given_whole():
    """Words that differ prove nothing: as long as there is room, tools without a match are offered, too."""
    assert sorted(chosen("zzz", 100)) == sorted(travel().names())
    assert chosen("", 2) == ["read_file", "book_flight", "cancel_flight", "find_flight", "find_cancellation"]
    assert chosen("book", 0) == []
    assert select_tools("book", Catalog()) == []
    with pytest.raises(ValueError, match="negative"):
        chosen("x", -1)


def test_a_link_to_nobody_is_no_tool():
    """A catalog of somebody else may name an undo that it does not have."""
    assert [s.name for s in select_tools("x", Catalog(ToolSpec("a", undo="gone", probe="gone")))] == ["a"]


@given(
    goal=st.text(max_size=60),
    texts=st.lists(st.text(max_size=30), min_size=1, max_size=12),
    limit=st.integers(0, 15),
)
def test_the_choice_is_bounded_complete_and_the_same_each_time(goal, texts, limit):
    """For any texts: at most four times the limit, every chosen tool with its companions, twice the same answer."""
    specs = [
        ToolSpec(f"t{at}", text, undo=f"t{(at * 7 + 1) % len(texts)}" if at % 3 == 0 else None)
        for at, text in enumerate(texts)
    ]
    once, again = (select_tools(goal, Catalog(*specs), limit=limit) for _ in range(2))
    assert once == again
    names = [spec.name for spec in once]
    assert len(set(names)) == len(names)
    assert min(limit, len(texts)) <= len(names) <= 4 * limit
    assert all(word == word.strip() and word for word in words(goal))


def test_two_thousand_tools_are_no_trouble():
    """The needle is found in a large catalog."""
    specs = [ToolSpec(f"tool_{at}", f"Turn the wheel number {at} of the machine") for at in range(2000)]
    specs[1234] = ToolSpec("book_flight", "Book a seat on a plane")
    found = select_tools("turn the number of flights booked", Catalog(*specs), limit=5)
    assert found[0].name == "book_flight"
    assert len(found) == 5


def test_it_is_public():
    """``select_tools`` is imported from the package."""
    assert saga_engine.select_tools is select_tools
