"""Spans from durable records."""

from desk import STORE, book, go, unbook, undone
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from saga_engine import Coordinator
from saga_engine.telemetry import Spans


async def main() -> str:
    exporter = InMemorySpanExporter()
    spans = Spans(exporter=exporter)
    async with Coordinator.open(STORE, [book, unbook], spans=spans) as coordinator:
        await undone(coordinator, "s")
    spans.close()
    names = [span.name for span in exporter.get_finished_spans()]
    assert names.count("execute_tool book") == 2, names
    assert names.count("execute_tool unbook") == 1, names
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    OTLPSpanExporter("http://127.0.0.1:1/v1/traces").shutdown()
    return f"{len(names)} spans of one saga"


go(main)
