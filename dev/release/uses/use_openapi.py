"""A document becomes tables that the engine reads."""

import subprocess
from pathlib import Path

from desk import BIN, go

DOCUMENT = """
openapi: 3.1.0
info: {title: shop, version: "1"}
servers: [{url: "https://shop.example"}]
paths:
  /orders/{id}:
    get:
      operationId: find_order
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses: {"200": {description: found}}
"""


async def main() -> str:
    Path("shop.yaml").write_text(DOCUMENT)
    command = [BIN / "saga", "tools", "import", "openapi", "shop.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    Path("saga.toml").write_text(done.stdout)
    listed = subprocess.run([BIN / "saga", "tools"], capture_output=True, text=True, check=True).stdout
    assert "find_order" in listed, listed
    return "an OpenAPI document becomes a tool that saga tools lists"


go(main)
