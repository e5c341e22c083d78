"""The adapter on a real wire: OpenAI's chat completions and Anthropic's messages, good answers and bad luck."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from saga_engine.errors import GoalImpossible, ModelUnreachable, PlannerFailed, PlannerUnavailable
from saga_engine.planner import models
from saga_engine.planner.models import ModelPlanner, build_model
from saga_engine.planner.planning import PlannedPlan, Planning
from saga_engine.planner.prompts import load_prompt
from saga_engine.planner.settings import PlannerSettings, planner_settings
from saga_engine.ports import CompensationRequest, PastStep, PlanRequest, ReplanRequest
from tests.planner.model_server import BREAK, HANG, ModelServer, Reply, call, model_server, refuse, say
from tests.planner.scenes import BAD, GOAL, GOOD, SHOP, specs

TEXT = json.dumps(GOOD)


def settings(server: ModelServer, model: str = "openai:gpt-4o", **flags: Any) -> PlannerSettings:
    url = server.url if model.startswith("anthropic") else f"{server.url}/v1"
    return planner_settings(
        {},
        {"model": model, "base_url": url, **flags},
        environ={"SAGA_MODEL_API_KEY": "sk-test-key", "OPENAI_API_KEY": "sk-other"},
    )


class Waits:
    """Stands for the wait between two tries, and remembers how long it was to be."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def plan(
    server: ModelServer,
    model: str = "openai:gpt-4o",
    *,
    waits: Waits | None = None,
    **flags: Any,
) -> PlannedPlan:
    chosen = settings(server, model, **flags)
    planner = ModelPlanner(chosen, wait=waits or Waits())
    return await Planning(planner, chosen).plan(GOAL, specs(), catalog=SHOP)


PROVIDERS = (
    "openai:gpt-4o",
    "anthropic:claude-sonnet-5-5",
    "ollama:qwen3",
    "deepseek:deepseek-chat",
    "my-server:small",
)
WAYS = [
    (model, output)
    for model in PROVIDERS
    for output in ("tool", "native", "prompted", "text")
    # Anthropic's native form takes no free objects; the next test has it.
    if (model.partition(":")[0], output) != ("anthropic", "native")
]


@pytest.mark.parametrize(("model", "output"), WAYS)
async def test_every_provider_and_way_of_answering(model: str, output: str) -> None:
    """A plan comes back over the provider's own protocol, as arguments of a tool or as text; nothing warns."""
    gc.collect()  # what another test left behind must not warn here
    async with model_server(call(GOOD) if output == "tool" else say(TEXT)) as server:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            planned = await plan(server, model, output=output)
    assert (planned.model, planned.rounds, planned.usage.requests) == (model, 1, 1)
    assert (planned.usage.tokens_in, planned.usage.tokens_out) == (100, 20)
    (sent,) = server.requests
    assert sent["model"] == model.partition(":")[2]
    assert {
        "tool": "tools" in sent,
        "native": sent.get("response_format", {}).get("type") == "json_schema",
        "prompted": "tools" not in sent,
        "text": not {"tools", "response_format"} & sent.keys(),
    }[output]
    assert server.paths == ["/v1/messages" if model.startswith("anthropic") else "/v1/chat/completions"]


async def test_a_way_of_answering_that_a_provider_does_not_have_is_told() -> None:
    """The hint names the other ways."""
    async with model_server() as server:
        with pytest.raises(PlannerUnavailable) as error:
            await plan(server, "anthropic:claude-sonnet-5-5", output="native")
    assert "SAGA_MODEL_OUTPUT" in (error.value.hint or "")
    assert server.requests == []


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-5-5"])
@pytest.mark.parametrize(
    "first",
    [say(json.dumps(BAD)), say("I would rather talk."), say(TEXT[:-9], finish="length"), call(BAD), say("")],
    ids=["invalid", "prose", "cut", "call", "empty"],
)
async def test_a_bad_answer_is_repaired(first: Reply, model: str) -> None:
    """The second question carries the problems, the first does not; both are counted."""
    async with model_server(first, call(GOOD)) as server:
        planned = await plan(server, model)
    assert (planned.rounds, planned.usage.requests, planned.usage.tokens_in) == (2, 2, 200)
    assert planned.prompt == f"{load_prompt('propose').label} repair@2"
    assert '<data name="problems">' not in server.texts[0]
    assert '"code": ' in server.texts[1].split('<data name="problems">')[1]


@pytest.mark.parametrize(
    "said",
    [
        f"```json\n{TEXT}\n```",
        f"Here you are: {TEXT} Good luck!",
        f"<think>{{</think>{TEXT}",
        call(TEXT),
        call(TEXT[:-1] + ",}"),
    ],
)
async def test_what_is_wrapped_around_the_json_costs_no_round(said: str | Reply) -> None:
    """Fences, prose, thoughts, a tool call although text was asked for, a comma too many."""
    async with model_server(said if isinstance(said, Reply) else say(said)) as server:
        assert (await plan(server, output="text")).rounds == 1


async def test_text_although_a_tool_call_was_asked_for() -> None:
    """Small models forget the tool."""
    async with model_server(say(TEXT)) as server:
        assert (await plan(server, output="tool")).rounds == 1


async def test_a_refusal_is_the_error() -> None:
    """``impossible`` as a tool call."""
    async with model_server(call({"impossible": "there are no trains"})) as server:
        with pytest.raises(GoalImpossible, match="no trains"):
            await plan(server)


# --- bad luck ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-5-5"])
@pytest.mark.parametrize(
    "luck", [refuse(429, retry_after="7"), refuse(503), refuse(500), BREAK], ids=["429", "503", "500", "broken"]
)
async def test_a_busy_server_is_asked_again(luck: Reply, model: str) -> None:
    """Each request on the wire is counted, none is made behind our back, and the wait that was asked for is kept."""
    waits = Waits()
    async with model_server(luck, call(GOOD)) as server:
        planned = await plan(server, model, waits=waits)
    assert (planned.rounds, planned.usage.requests, len(server.requests)) == (1, 2, 2)
    assert len(waits.seconds) == 1
    if luck.status == 429:
        assert waits.seconds == [7.0]


async def test_a_server_that_stays_busy_is_given_up() -> None:
    """After three requests; the error says what the server said."""
    waits = Waits()
    async with model_server(*[refuse(503, retry_after="9999")] * 5) as server:
        with pytest.raises(ModelUnreachable, match="scripted 503"):
            await plan(server, waits=waits)
    assert len(server.requests) == 3
    assert waits.seconds == [10.0, 10.0]


async def test_a_long_wait_that_the_server_asks_for_is_kept_once_within_the_budget() -> None:
    """A rate limit of a minute is waited out; if the server is still busy then, the waits are short again."""
    waits = Waits()
    async with model_server(*[refuse(429, retry_after="90")] * 2, call(GOOD)) as server:
        assert (await plan(server, waits=waits, total_s=120)).rounds == 1
        assert waits.seconds == [90.0, 10.0]
    async with model_server(refuse(429, retry_after="90"), call(GOOD)) as server:
        waits = Waits()
        assert (await plan(server, waits=waits, total_s=60)).rounds == 1
        assert waits.seconds == [10.0], "it would outlast the budget"


@pytest.mark.parametrize(("limits", "sent"), [({}, None), ({"max_output_tokens": 500}, 500)])
async def test_an_answer_is_as_long_as_the_model_can_make_it(limits: dict[str, int], sent: int | None) -> None:
    """A model that reasons spends thousands of tokens before it answers: by default only the budget limits it."""
    async with model_server(call(GOOD)) as server:
        await plan(server, **limits)
        assert server.requests[0].get("max_completion_tokens", server.requests[0].get("max_tokens")) == sent


async def test_the_budget_of_requests_counts_refused_ones() -> None:
    """With two requests allowed, the second refusal is the last."""
    async with model_server(*[refuse(503)] * 5) as server:
        with pytest.raises(ModelUnreachable):
            await plan(server, max_requests=2)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "error"), [(401, PlannerUnavailable), (404, PlannerUnavailable), (400, ModelUnreachable)]
)
async def test_what_asking_again_does_not_mend_is_not_asked_again(status: int, error: type[Exception]) -> None:
    """A wrong key, an unknown model, a request that is refused."""
    async with model_server(refuse(status), call(GOOD)) as server:
        with pytest.raises(error):
            await plan(server)
    assert len(server.requests) == 1


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-5-5"])
async def test_a_silent_server_is_given_up_in_time(model: str) -> None:
    """The limit covers the whole, also the tries that an SDK would make by itself."""
    async with model_server(HANG, HANG, HANG, HANG) as server:
        await _warm(server, model)
        with pytest.raises(ModelUnreachable, match="within"):
            await Planning.of(settings(server, model, total_s=0.3)).plan(GOAL, specs())
    assert len(server.requests) <= 1


async def _warm(server: ModelServer, model: str) -> None:
    """Have the packages loaded, so that the limit is spent on the wire."""
    build_model(settings(server, model))


async def test_nobody_there() -> None:
    """A refused connection is out of reach, and a plan prepared for it would be used."""
    async with model_server() as server:
        pass
    with pytest.raises(ModelUnreachable, match="3 requests"):
        await plan(server)


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-5-5"])
@pytest.mark.parametrize("raw", ["{}", "[]", "null", '{"choices": []}', "<html>", "", "[" * 50_000])
async def test_an_answer_that_is_none_is_an_error_of_ours(model: str, raw: str) -> None:
    """Whatever a server sends with status 200, nothing of the SDK's own is raised; a prepared plan would be used."""
    async with model_server(*[Reply(raw=raw)] * 3) as server:
        with pytest.raises((ModelUnreachable, PlannerFailed)) as error:
            await plan(server, model, rounds=1)
    assert error.value.context["usage"]["requests"] == len(server.requests) > 0


async def test_rounds_end_on_the_wire_too() -> None:
    """Three bad answers are three requests and an error with a transcript."""
    async with model_server(*[call(BAD)] * 5) as server:
        with pytest.raises(PlannerFailed) as failed:
            await plan(server, rounds=3)
    assert len(server.requests) == 3
    assert len(failed.value.context["transcript"]) == 3


async def test_a_planner_keeps_the_limits_that_it_was_made_with() -> None:
    """A ``ModelPlanner`` that is passed as a planner of one's own is asked within its own settings."""
    async with model_server(*[call(BAD)] * 5) as server:
        planning = Planning.of(ModelPlanner(settings(server, rounds=2, max_tokens=5000)))
        with pytest.raises(PlannerFailed, match="2 rounds") as failed:
            await planning.plan(GOAL, specs(), catalog=SHOP)
    assert len(server.requests) == 2
    assert failed.value.context["budget"]["tokens"] == 5000


async def test_the_limit_on_tokens_reaches_the_wire() -> None:
    """No answer may be longer than what is left."""
    async with model_server(call(BAD), call(GOOD)) as server:
        await plan(server, max_tokens=1000)
    assert [sent["max_completion_tokens"] for sent in server.requests] == [1000, 880]


# --- keys and names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-5-5", "my-server:small", "ollama:qwen3"])
async def test_only_our_key_goes_to_an_address_of_ones_own(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a base URL, the keys for the providers' own servers stay here; ours is sent, and shown nowhere.

    So do the headers that the SDKs take from the environment, which may hold a key as well.
    """
    names = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"]
    for name in (*names, "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "sk-for-the-provider-only")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-gateway-key: sk-for-the-provider-only")
    async with model_server(call(GOOD), call(GOOD)) as server:
        planned = await plan(server, model)
        bare = planner_settings({}, {"model": model, "base_url": settings(server, model).base_url}, environ={})
        await Planning.of(bare).plan(GOAL, specs(), catalog=SHOP)
    assert "sk-test-key" in json.dumps(server.headers[0])
    assert "sk-for-the-provider-only" not in json.dumps([server.headers, server.requests])
    assert "sk-test-key" not in json.dumps([planned.to_dict(), server.requests])
    assert "sk-test-key" not in repr(settings(server, model))


@pytest.mark.parametrize("status", [400, 401])
async def test_a_key_that_a_server_repeats_is_masked(status: int) -> None:
    """Error messages of servers quote the key that they refuse."""
    async with model_server(Reply(status=status, text="wrong key: sk-test-key.")) as server:
        with pytest.raises((PlannerUnavailable, ModelUnreachable), match="wrong key") as error:
            await plan(server)
    assert "sk-test-key" not in json.dumps(error.value.to_dict())


@pytest.mark.parametrize("model", ["", "gpt-4o", ":x", "openai:"])
def test_a_model_needs_provider_and_name(model: str) -> None:
    """Anything else is told at once."""
    with pytest.raises(PlannerUnavailable) as error:
        ModelPlanner(PlannerSettings(model=model))
    assert "provider:name" in (error.value.hint or "")


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-5-5", "deepseek:x", "nosuch:x"])
def test_without_a_key_the_error_says_what_to_set(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our variable, the provider's own, or an address."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PlannerUnavailable) as error:
        build_model(PlannerSettings(model=model))
    assert "SAGA_MODEL_API_KEY" in (error.value.hint or "")


def test_ollama_needs_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is enough where it listens at its usual place; another address is the variable's."""
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    assert build_model(PlannerSettings(model="ollama:qwen3")).base_url == "http://localhost:11434/v1/"
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://elsewhere:1/v1")
    assert build_model(PlannerSettings(model="ollama:qwen3")).base_url == "http://elsewhere:1/v1/"


def test_our_key_serves_at_the_providers_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAGA_MODEL_API_KEY is enough; the provider's own variable need not be set."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    model = build_model(PlannerSettings(model="anthropic:claude-sonnet-5-5", api_key="sk-1"))
    assert model.base_url is not None
    assert "anthropic.com" in model.base_url


def _imports(patch: pytest.MonkeyPatch, error: ImportError) -> None:
    """Let every import of the package fail with an error."""
    real = models.import_module

    def broken(name: str) -> Any:
        if name.startswith("pydantic_ai"):
            raise error
        return real(name)

    patch.setattr(models, "import_module", broken)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra of ours, or the one of the provider."""
    with monkeypatch.context() as patch:
        _imports(patch, ModuleNotFoundError("No module named 'pydantic_ai'", name="pydantic_ai"))
        with pytest.raises(PlannerUnavailable, match="needs the extra 'planner'") as error:
            build_model(PlannerSettings(model="openai:x"))
    assert "saga-engine[planner]" in (error.value.hint or "")
    with pytest.raises(PlannerUnavailable, match="not installed") as error:
        build_model(PlannerSettings(model="groq:x", api_key="k"))
    assert "pydantic-ai-slim[groq]" in (error.value.hint or "")


def test_an_import_that_fails_otherwise_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra that is installed is not called missing: the error of the import is told."""
    said = "cannot import name 'x' from 'opentelemetry'"
    with monkeypatch.context() as patch:
        _imports(patch, ImportError(said))
        with pytest.raises(PlannerUnavailable, match=said) as error:
            build_model(PlannerSettings(model="openai:x"))
    assert "needs the extra" not in error.value.message

    def broken(settings: PlannerSettings) -> Any:
        raise ImportError("Please install `openai`") from ImportError(said)

    monkeypatch.setattr(models, "_provider", lambda _, settings: broken(settings))
    with pytest.raises(PlannerUnavailable, match=said) as error:
        build_model(PlannerSettings(model="openai:gpt-4o", api_key="k"))
    assert "not installed" not in error.value.message


_FIRST_REQUESTS = """
import asyncio, sys
from saga_engine.planner import models
from saga_engine.planner.models import ModelPlanner
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import PlanRequest

async def main():
    ask = ModelPlanner(PlannerSettings(model="openai:gpt-4o", base_url=sys.argv[1], api_key="k")).ask
    answers = await asyncio.gather(*(ask(PlanRequest("g", [])) for _ in range(8)), return_exceptions=True)
    print(*(getattr(answer, "message", "answered") for answer in answers), sep="\\n")

asyncio.run(main())
"""


async def test_the_first_requests_of_a_process_all_reach_the_model(tmp_path: Path) -> None:
    """Eight plans at once, in a process that has not loaded the package yet: one thread loads it, and none fails."""
    async with model_server(*[call(GOOD)] * 8) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", _FIRST_REQUESTS, f"{server.url}/v1"),
            stdout=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
            cwd=tmp_path,
        )
        out, _ = await process.communicate()
    assert out.decode().split("\n") == [*["answered"] * 8, ""]
    assert len(server.requests) == 8


# --- the other questions -------------------------------------------------------------------------------------------

STUCK = PastStep(2, "hotels.book", "SUCCEEDED", output={"booking_ref": "H-2"}, error={"message": "too late to cancel"})


async def test_a_compensation_is_asked_for() -> None:
    """The model is told what is stuck and why, and which tools it may use; its steps come back as JSON text."""
    steps = {
        "steps": [{"step_id": 1, "tool": "mail.send", "params": {"to": "desk", "text": "H-2"}, "kind": "retriable"}]
    }
    async with model_server(call(steps)) as server:
        answer = await ModelPlanner(settings(server)).ask(CompensationRequest(GOAL, STUCK, [STUCK], specs("mail.send")))
    assert json.loads(answer.json_text) == steps
    assert (answer.prompt, answer.usage.requests, len(answer.prompt_digest)) == ("compensate@2", 1, 64)
    assert "too late to cancel" in server.texts[0]
    assert "H-2" in server.texts[0]
    assert '"tool": "flights.book"' not in server.texts[0]


async def test_another_way_is_asked_for() -> None:
    """The model is told what failed, what stands and what had not begun."""
    request = ReplanRequest(
        GOAL,
        STUCK,
        [PastStep(1, "flights.book", "SUCCEEDED", output={"order_id": "F-1"})],
        [GOOD["steps"][2]],
        specs(),
        taken=("1", "2", "3"),
    )
    async with model_server(say('```json\n{"impossible": "all full"}\n```')) as server:
        answer = await ModelPlanner(settings(server, "anthropic:claude-sonnet-5-5")).ask(request)
    assert json.loads(answer.json_text) == {"impossible": "all full"}
    assert answer.prompt == load_prompt("replan").label
    assert '"F-1"' in server.texts[0]


async def test_the_prompt_on_the_wire_is_the_prompt_that_is_journalled() -> None:
    """The digest is made of the two texts that were sent."""
    import hashlib

    async with model_server(call(GOOD)) as server:
        answer = await ModelPlanner(settings(server)).ask(PlanRequest(GOAL, specs()))
    system, question = (message["content"] for message in server.requests[0]["messages"])
    assert hashlib.sha256(f"{system}\0{question}".encode()).hexdigest() == answer.prompt_digest


def test_nothing_of_a_model_is_loaded_before_it_is_asked(tmp_path: Path) -> None:
    """The room's modules load no package of the extra."""
    import subprocess
    import sys

    probe = "import sys, saga_engine.planner.models, saga_engine.planner.planning; print([m for m in ('pydantic_ai', 'openai', 'anthropic', 'httpx2', 'pydantic') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "[]"
