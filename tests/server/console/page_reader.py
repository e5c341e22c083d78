"""Reads the console's pages and sends its forms, without a browser."""

from __future__ import annotations

import re
from html import unescape

import httpx2

HOME = "http://127.0.0.1"


class Browser:
    """A browser as the server sees it: cookies, forms with their hidden fields, and where a form leads."""

    def __init__(self, app, token: str = "") -> None:
        headers = {"accept": "text/html", "origin": HOME}
        transport = httpx2.ASGITransport(app=app)
        self.client = httpx2.AsyncClient(transport=transport, base_url=HOME, headers=headers)
        self._token = token

    async def sign_in(self) -> None:
        """With the token, if there is one; the browser has the cookie from then on."""
        token, self._token = self._token, ""
        if token:
            found = await self.client.post("/ui/sign-in", data={"token": token})
            assert "saga_token" in found.cookies

    async def page(self, path: str, status: int = 200) -> str:
        await self.sign_in()
        found = await self.client.get(path)
        assert found.status_code == status, found.text
        return found.text

    async def send(self, page: str, action: str, **fields: str) -> httpx2.Response:
        """Fill the form of a page and send it."""
        found = re.search(rf'<form method="post" action="{re.escape(action)}".*?</form>', page, re.DOTALL)
        assert found is not None, f"no form {action}"
        hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', found[0])
        return await self.client.post(action, data={name: unescape(value) for name, value in hidden} | fields)
