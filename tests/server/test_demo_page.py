"""Whoever follows docs/server.md with `saga serve --demo` sees a saga through, by the page's own lines."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/server.md"
ADDRESS = "http://127.0.0.1:8800"


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[str]:
    """The address of a demo's own process."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
    command = [sys.executable, "-m", "saga_engine", "serve", "--demo", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        process.wait(120)
    finally:
        process.kill()
        process.communicate()


def asked(url: str, saga_id: str) -> None:
    """Wait for the question of a saga: who reads the page is slower than the demo."""
    with httpx2.stream("GET", f"{url}/v1/sagas/{saga_id}/stream", timeout=300) as stream:
        assert any('"k":"StepEscalated"' in line for line in stream.iter_lines())


@pytest.mark.skipif(shutil.which("curl") is None and "CI" not in os.environ, reason="without curl")
def test_the_lines_of_the_page_lead_through_the_demo(demo: str) -> None:
    """Each line is accepted; the flight is booked, the question answered, and the stream ends with the tour's end."""
    section = PAGE.read_text(encoding="utf-8").partition("## Try it")[2].partition("\n## ")[0]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert block is not None
    assert ADDRESS in block[1]
    asked(demo, "group-tour")
    lines = block[1].replace(ADDRESS, demo).replace("\ncurl ", "\necho; echo; curl -sSf -m 300 ")
    done = subprocess.run(["bash", "-ec", lines], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    submitted, questions, answered, stopped, lifted, sent, stream = done.stdout.strip().split("\n\n", 6)
    assert json.loads(submitted)["status"] == "COMPLETED"
    assert "group-tour" in {each["saga_id"] for each in json.loads(questions)["questions"]}
    assert json.loads(answered)["saga_id"] == "group-tour"
    assert [each["scope"] for each in json.loads(stopped)["stops"]] == ["tool:send_mail"]
    assert json.loads(lifted)["stops"] == []
    assert json.loads(sent)["disposition"]
    assert '"decision":"Fish"' in stream
    assert "event: end" in stream
