"""Spans are what the journals say: each attempt once, each with its parent, and nothing that somebody wrote."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import Context
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_current_span

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.errors import SettingInvalid
from saga_engine.telemetry import Spans, TraceFields
from saga_engine.telemetry import outbox as limits
from saga_engine.telemetry.spans import SagaSpans
from saga_engine.testing.faulty_http import MisbehavingServer, done
from saga_engine.tools.trace_context import CALL, parsed
from tests.http.declared import declared

ATTEMPTS: Counter[str] = Counter()
HERE: list[tuple[int, str]] = []
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@tool(undo="cancel")
async def book(item: str) -> dict[str, str]:
    HERE.append((get_current_span().get_span_context().span_id, "book"))
    return {"ref": f"secret-{item}"}


@tool(retry=RetryPolicy(max_attempts=3, base_s=0.001, max_s=0.001))
def cancel(ref: str) -> None:
    HERE.append((get_current_span().get_span_context().span_id, "cancel"))
    ATTEMPTS[ref] += 1
    if ATTEMPTS[ref] == 1:
        raise ToolError("later, secret-words", error_code="busy", retryable=True)


@tool(undo="cancel")
async def full(item: str) -> dict[str, str]:
    raise ToolError("no room, secret-words", error_code="full", retryable=False)


TOOLS = [book, cancel, full]


def plan(*tools: str) -> dict[str, Any]:
    steps = [{"step_id": at, "tool": name, "params": {"item": f"{name}-{at}"}} for at, name in enumerate(tools, 1)]
    return {"steps": steps}


@pytest.fixture
def spans() -> Iterator[tuple[Spans, InMemorySpanExporter]]:
    ATTEMPTS.clear()
    HERE.clear()
    exporter = InMemorySpanExporter()
    made = Spans(exporter=exporter, delay_s=0.01, grace_s=0)
    yield made, exporter
    made.close()


def named(exporter: InMemorySpanExporter) -> list[tuple[str, Any]]:
    found = []
    for span in exporter.get_finished_spans():
        assert span.attributes is not None
        found.append((span.name, span.attributes.get("saga.outcome", span.attributes.get("saga.status"))))
    return found


def none_is_orphaned(found: Sequence[ReadableSpan], caller: int = 0) -> None:
    """Every id is there once, and every parent is a span of the same trace."""
    ids = Counter(span.context.span_id for span in found if span.context)
    assert max(ids.values()) == 1
    for span in found:
        assert span.context is not None
        if span.parent is None or span.parent.span_id == caller:
            assert span.name.startswith("saga")
            continue
        assert span.parent.span_id in ids
        assert span.parent.trace_id == span.context.trace_id


async def test_each_attempt_is_a_span(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """Calls, a failure, a retry and an undo: one span each, in the order of the journal, with the times of its records."""
    made, exporter = spans
    async with Coordinator.open("memory://", TOOLS, spans=made) as coordinator:
        end = await coordinator.run(plan("book", "full") | {"name": "trip"})
        history = await coordinator.history(end.saga_id)
    assert named(exporter) == [
        ("saga trip", None),
        ("execute_tool book", "succeeded"),
        ("execute_tool full", "failed"),
        ("execute_tool cancel", "retry"),
        ("execute_tool cancel", "succeeded"),
        ("invoke_workflow trip", "compensated"),
    ]
    found = exporter.get_finished_spans()
    none_is_orphaned(found)
    intents = [record for record in history if record["k"] == "StepIntended"]
    attempts = [span for span in found if span.name.startswith("execute_tool")]
    assert [span.start_time for span in attempts] == [record["at"] * 1_000_000 for record in intents]
    assert [(span.attributes or {})["saga.attempt"] for span in attempts] == [1, 1, 1, 2]
    assert (attempts[1].attributes or {})["error.type"] == "full"
    whole = found[-1]
    assert (whole.start_time, whole.end_time) == (history[0]["at"] * 1_000_000, history[-1]["at"] * 1_000_000)
    assert [event.name for event in whole.events] == ["saga.compensation"]


async def test_a_tool_runs_in_its_span(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """What a tool's libraries trace is below its attempt, also in the thread of a synchronous one; and not after it."""
    made, exporter = spans
    async with Coordinator.open("memory://", TOOLS, spans=made) as coordinator:
        await coordinator.run(plan("book", "full"))
        assert CALL.get() is None
        assert not get_current_span().get_span_context().is_valid
    attempts = [
        span for span in exporter.get_finished_spans() if span.name in ("execute_tool book", "execute_tool cancel")
    ]
    assert [span_id for span_id, _ in HERE] == [span.context.span_id for span in attempts if span.context]


async def test_another_process_continues_the_trace(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """A saga that is queued has its first span from whoever drives it; ids and times are those of the journal."""
    made, exporter = spans
    async with Coordinator.open("memory://", TOOLS) as one:
        await one.submit(plan("book"), saga_id="s", detach=True)
        async with Coordinator.open(one.store, TOOLS, spans=made) as other:
            await other.resume("s")
        history = await one.history("s")
    assert sorted(named(exporter), key=str) == [
        ("execute_tool book", "succeeded"),
        ("invoke_workflow", "completed"),
        ("saga", None),
    ]
    none_is_orphaned(exporter.get_finished_spans())
    (root,) = (span for span in exporter.get_finished_spans() if span.name == "saga")
    assert root.start_time == history[0]["at"] * 1_000_000


async def test_a_caller_is_the_parent(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """The span of the code that submits is journalled, and the saga's spans are in its trace."""
    from opentelemetry.trace import NonRecordingSpan, use_span

    from saga_engine.telemetry.outbox import as_context

    made, exporter = spans
    caller = parsed(CALLER)
    assert caller is not None
    async with Coordinator.open("memory://", TOOLS, spans=made) as coordinator:
        with use_span(NonRecordingSpan(as_context(caller))):
            await coordinator.run(plan("book"), saga_id="s")
        history = await coordinator.history("s")
    assert history[0]["traceparent"] == CALLER
    found = exporter.get_finished_spans()
    none_is_orphaned(found, caller.span_id)
    assert {span.context.trace_id for span in found if span.context} == {caller.trace_id}


async def test_nothing_that_somebody_wrote_is_in_a_span(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """No goal, param, output, message or note."""
    made, exporter = spans
    async with Coordinator.open("memory://", TOOLS, spans=made) as coordinator:
        await coordinator.run(
            plan("book", "full")
            | {
                "goal": "secret-goal",
                "steps": [
                    {"step_id": 1, "tool": "book", "params": {"item": "secret-item"}},
                    {"step_id": 2, "tool": "full", "params": {"item": "secret-item"}},
                ],
            }
        )
    assert "secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())


class Broken(SpanExporter):
    """A receiver that hangs, or fails, until it is told to work."""

    def __init__(self) -> None:
        self.taken: list[ReadableSpan] = []
        self.works = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not self.works:
            raise OSError("secret-address is down")
        self.taken += spans
        return SpanExportResult.SUCCESS


async def test_a_receiver_that_fails_harms_no_saga(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The sagas end; what waits is sent in its order when the receiver is back, and beyond the limit it is lost, aloud."""
    monkeypatch.setattr(limits, "MOST_WAITING", 3)
    broken = Broken()
    made = Spans(exporter=broken, delay_s=0.01)
    with caplog.at_level(logging.WARNING, logger="saga_engine.telemetry"):
        async with Coordinator.open("memory://", TOOLS, spans=made) as coordinator:
            ends = [await coordinator.run(plan("book")) for _ in range(2)]
            broken.works = True
    made.close()
    assert all(end.completed for end in ends)
    assert [span.name for span in broken.taken] == ["saga", "execute_tool book", "invoke_workflow"]
    assert made.outbox.dropped == 3
    assert "further ones are lost" in caplog.text


async def test_spans_that_fail_harm_no_saga(
    spans: tuple[Spans, InMemorySpanExporter], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours is logged."""

    def wrong(*_: Any) -> None:
        raise RuntimeError("broken spans")

    monkeypatch.setattr(SagaSpans, "read", wrong)
    async with Coordinator.open("memory://", TOOLS, spans=spans[0]) as coordinator:
        assert (await coordinator.run(plan("book"))).completed
    assert "broken spans" in caplog.text


async def test_sampling_takes_or_leaves_whole_traces() -> None:
    """Every process decides alike, because the trace id does."""
    exporter = InMemorySpanExporter()
    made = Spans(exporter=exporter, delay_s=0.01, sample=0.5)
    async with Coordinator.open("memory://", TOOLS, spans=made) as coordinator:
        await asyncio.gather(*(coordinator.run(plan("book")) for _ in range(40)))
    made.close()
    traces = Counter(span.context.trace_id for span in exporter.get_finished_spans() if span.context)
    assert set(traces.values()) == {3}
    assert 5 < len(traces) < 35


async def test_a_question_is_a_span_and_an_event(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """An operator sees at once in the trace that the saga waits; the whole tells of question and answer."""
    made, exporter = spans
    asks = {"steps": [{"step_id": 1, "ask": {"question": "secret?", "options": ["yes", "no"]}}]}
    async with Coordinator.open("memory://", TOOLS, spans=made, on_escalation=()) as coordinator:
        asked = await coordinator.run(asks)
        await coordinator.resolve(asked.saga_id, 1, "yes")
    assert "question ask" in [name for name, _ in named(exporter)]
    whole = exporter.get_finished_spans()[-1]
    assert [event.name for event in whole.events][:2] == ["saga.question", "saga.escalated"]
    assert "saga.answer" in [event.name for event in whole.events]
    none_is_orphaned(exporter.get_finished_spans())
    assert "secret" not in whole.to_json()


@pytest.mark.parametrize("options", [{"endpoint": "localhost:4318"}, {"sample": 2.0}])
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingInvalid):
        Spans(**options)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (CALLER, True),
        (CALLER + "-more", False),
        ("01" + CALLER[2:] + "-more", True),
        ("ff" + CALLER[2:], False),
        (CALLER.upper(), False),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", False),
        ("", False),
    ],
)
def test_a_traceparent_is_read_as_w3c_wants(text: str, fits: bool) -> None:
    assert (parsed(text) is not None) is fits


@pytest.mark.parametrize("propagate", [True, False])
async def test_tools_send_the_span_on_if_they_are_to(propagate: bool) -> None:
    """The ``traceparent`` of an HTTP tool's request is the attempt's span; without the option there is none."""
    exporter = InMemorySpanExporter()
    made = Spans(exporter=exporter, delay_s=0.01, propagate=propagate)
    async with MisbehavingServer() as server:
        server.script("/orders", done())
        text = f'[http.order]\nmethod = "GET"\nurl = "{server.url}/orders"\neffect = "read"'
        async with Coordinator.open("memory://", declared(text), spans=made) as coordinator:
            ran = await coordinator.run({"steps": [{"step_id": 1, "tool": "order", "params": {}}]})
        (request,) = server.received
    made.close()
    assert ran.completed
    (span,) = (each for each in exporter.get_finished_spans() if each.name == "execute_tool order")
    assert span.context is not None
    sent = parsed(request.headers.get("traceparent", ""))
    assert (sent and (sent.trace_id, sent.span_id)) == (
        (span.context.trace_id, span.context.span_id) if propagate else None
    )


async def test_log_records_have_the_ids_of_their_trace(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """A record of a call those of its span, one of the engine those of the saga; another one is left alone."""
    made, exporter = spans
    found: list[logging.LogRecord] = []
    seen = TraceFields()
    log = logging.getLogger("tests.telemetry.a_tool")

    def noted(**extra: Any) -> logging.LogRecord:
        record = log.makeRecord(log.name, logging.INFO, "", 0, "said", (), None, extra=extra)
        assert seen.filter(record)
        return record

    @tool(effect="read")
    async def speak() -> None:
        found.append(noted())
        found.append(Context().run(noted, saga_id="s"))

    async with Coordinator.open("memory://", [speak], spans=made) as coordinator:
        await coordinator.run({"steps": [{"step_id": 1, "tool": "speak"}]}, saga_id="s")
    found.append(noted())
    (span,) = (each for each in exporter.get_finished_spans() if each.name == "execute_tool speak")
    assert span.context is not None
    root = exporter.get_finished_spans()[0].context
    assert root is not None
    for record, there in zip(found, (span.context, root), strict=False):
        assert record.__dict__["saga_id"] == "s"
        assert int(record.__dict__["trace_id"], 16) == there.trace_id
        assert int(record.__dict__["span_id"], 16) == there.span_id
    assert found[0].__dict__["step_id"] == "1"
    assert "trace_id" not in found[2].__dict__


async def test_a_child_has_a_link_to_its_parent(spans: tuple[Spans, InMemorySpanExporter]) -> None:
    """Its trace is its own."""
    made, exporter = spans
    async with Coordinator.open("memory://", TOOLS, spans=made) as coordinator:
        await coordinator.templates.put("leg", plan("book"))
        ran = await coordinator.run({"steps": [{"step_id": 1, "saga": {"template": "leg"}}]})
    assert ran.completed
    child, parent = (
        next(each for each in exporter.get_finished_spans() if (each.attributes or {}).get("saga.kind") == kind)
        for kind in ("child", "plan")
    )
    assert child.context is not None
    assert child.context.trace_id != (parent.context and parent.context.trace_id)
    assert [link.context.span_id for link in child.links] == [parent.context and parent.context.span_id]
