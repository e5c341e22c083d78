"""A receiver of OTLP over HTTP for tests: it decodes what it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Got(NamedTuple):
    """A decoded span."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    begun_ms: int
    ended_ms: int
    attributes: dict[str, Any]
    service: str


class Receiver:
    """What was received so far, and where to send it. ``works`` False: it refuses, with ``status``, and counts it."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.spans: list[Got] = []
        self.bodies: list[bytes] = []
        self.works = True
        self.status = 503
        self.refused = 0

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _pairs(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Got(
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano // 1_000_000,
                            span.end_time_unix_nano // 1_000_000,
                            _pairs(span.attributes),
                            service,
                        )
                    )


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver at a free port until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            works = receiver.works
            if works:
                receiver.take(body)
            self.send_response(200 if works else receiver.status)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            receiver.refused += not works

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _pairs(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
