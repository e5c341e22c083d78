"""Checks beside schemathesis' own; it imports this module as its hooks."""

from __future__ import annotations

import schemathesis


@schemathesis.check
def fits_the_document_and_the_server(_ctx: object, response: object, case: object) -> None:
    """What fits the document is never refused as a malformed request."""
    meta = case.meta  # type: ignore[attr-defined]
    if meta is None or not meta.generation.mode.is_positive or response.status_code != 422:  # type: ignore[attr-defined]
        return
    body = response.json()  # type: ignore[attr-defined]
    assert body["code"] != "request-invalid", body["detail"]
