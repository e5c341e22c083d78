"""Keys from a key service: the function of docs/privacy.md, and a service that is away."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.errors import KeyMissing
from saga_engine.privacy.keyring import Keyring, KeySource
from tests.docs.pages import blocks

TOKEN = "hvs.of-this-test"
FIRST, SECOND = bytes(range(32)), bytes(range(1, 33))


@contextmanager
def vault(kept: dict[str, bytes]) -> Iterator[str]:
    """A server that answers as Vault's KV engine, version 2, does; what is kept may change."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["X-Vault-Token"] == TOKEN and self.path == "/v1/secret/data/saga"
            data = {name: base64.b64encode(key).decode() for name, key in sorted(kept.items())}
            body = (
                {"data": {"data": data, "metadata": {"version": 1}}} if allowed else {"errors": ["permission denied"]}
            )
            self.send_response(200 if allowed else 403)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def function_of_the_page() -> Any:
    (block,) = [block for block in blocks("python") if block.page.name == "privacy.md" and "VAULT_ADDR" in block.body]
    scope: dict[str, Any] = {}
    exec(block.body, scope)
    return scope["keys"]


def test_the_function_of_the_page_gets_the_newest_key_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Vault holds is a keyring, and a key that is added with a later name seals what is new."""
    keys, kept = function_of_the_page(), {"2026-11": FIRST}
    with vault(kept) as address:
        monkeypatch.setenv("VAULT_ADDR", address)
        monkeypatch.setenv("VAULT_TOKEN", TOKEN)
        assert Keyring(keys).current.name == "2026-11"
        kept["2026-12"] = SECOND
        ring = Keyring(keys)
        assert [(key.name, key.secret) for key in ring.keys] == [("2026-12", SECOND), ("2026-11", FIRST)]


@pytest.mark.parametrize("why", ["away", "refuses"])
def test_a_service_that_does_not_give_keys_is_a_missing_key(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot ask does not begin, and the error repeats nothing that was sent."""
    keys = function_of_the_page()
    with vault({"2026-11": FIRST}) as address:
        monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1" if why == "away" else address)
        monkeypatch.setenv("VAULT_TOKEN", "hvs.a-wrong-one")
        with pytest.raises(KeyMissing) as caught:
            Keyring(keys)
    assert "hvs." not in f"{caught.value.message}{caught.value.hint}"


async def test_a_saga_waits_for_a_service_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot ask leaves a saga as it is; one that can goes on with it."""
    known, away = {"new": SECOND}, True

    def keys() -> KeySource:
        if away and len(known) > 1:
            raise TimeoutError("hvs.a-secret")
        return dict(known)

    monkeypatch.setattr("saga_engine.privacy.keyring._AGAIN_S", 0.0)
    url = "memory://a-key-service"
    async with Coordinator.open(url, privacy={"old": FIRST, "new": SECOND}) as first:
        plan = {"steps": [{"step_id": 1, "ask": {"question": "Shall we?", "options": ["yes"]}}]}
        assert (await first.run(plan, saga_id="s")).status == "ESCALATED"
        known["old"] = FIRST
        before = len(await first.history("s"))
        with pytest.raises(KeyMissing):
            async with Coordinator.open(url, privacy=keys):
                pass
        away = False
        async with Coordinator.open(url, privacy=keys) as later:
            assert len(await later.history("s")) == before
            await later.resolve("s", 1, "yes", by="kim")
            assert (await later.wait("s")).status == "COMPLETED"
