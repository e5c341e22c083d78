"""Asks a model through pydantic-ai: one adapter for all providers and for every server with a compatible API.

The package is imported when a model is first asked, in a thread, because that takes seconds, and by one thread alone:
others would find it half loaded. Its SDKs retry by themselves and their time-outs count for each attempt; here their
retries are off, every request on the wire is counted, and the repair loop's limit on time covers all attempts.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from saga_engine.errors import ModelUnreachable, PlannerUnavailable
from saga_engine.loggers import logger_of
from saga_engine.plan.values import printable
from saga_engine.planner.json_extract import MAX_ANSWER_CHARS, find_object
from saga_engine.planner.prompting import ANSWER_TOOL, prompt_for
from saga_engine.planner.settings import KEY_VARIABLE
from saga_engine.ports import PlannerAnswer, PlannerUsage
from saga_engine.ports.machine_clock import machine_clock

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.providers import Provider

    from saga_engine.planner.prompting import Asked
    from saga_engine.planner.settings import PlannerSettings
    from saga_engine.ports import Allowance, PlannerRequest

_log = logger_of("saga_engine.planner")

#: Attempts for one question, the first included.
_TRIES = 3
_LONGEST_WAIT_S = 10.0
#: With fewer tokens left, the remainder limits an answer; above, a model's own limit is the lower one.
_WORTH_LIMITING = 32_000
_MESSAGE_CHARS = 500
_EXTRA = 'pip install "saga-engine[planner]"'
#: What a request imports of the package; a model's own modules come with the model.
_MODULES: Final = tuple(
    f"pydantic_ai.{name}"
    for name in ("direct", "exceptions", "messages", "models", "output", "providers", "settings", "tools")
)
_PACKAGE: Final = "pydantic_ai"
#: Held by the thread that imports.
_importing = threading.Lock()
#: A placeholder key for self-hosted servers that need none; the SDKs insist on one.
_NO_KEY = "no-key"
#: Ollama's default address (https://docs.ollama.com/api/introduction).
_OLLAMA_URL = "http://localhost:11434/v1"
#: Anthropic's protocol requires a limit, and its SDK refuses answers beyond 21,333 tokens that are not streamed.
_ANTHROPIC_ANSWER = 20_000


#: Ends of an answer that is none, by the package's word for them.
_ENDED: Final[dict[str, Literal["", "cut", "refused"]]] = {"length": "cut", "content_filter": "refused"}


class ModelPlanner:
    """A ``ports.Planner`` that asks the model of the settings.

    ``wait`` sleeps for a number of seconds between two attempts. A planner keeps no connections between two questions.
    """

    def __init__(self, settings: PlannerSettings, *, wait: Callable[[float], Any] = asyncio.sleep) -> None:
        if not settings.model:
            raise PlannerUnavailable(
                "no model is configured", hint="set SAGA_MODEL=provider:name, or give --model provider:name"
            )
        provider, colon, name = settings.model.partition(":")
        if not provider or not colon or not name:
            raise PlannerUnavailable(
                f"{settings.model!r} names no model", hint="write provider:name, such as openai:gpt-5 or ollama:qwen3"
            )
        self.model = settings.model
        self.settings = settings
        self._wait = wait

    async def ask(self, request: PlannerRequest) -> PlannerAnswer:
        """One answer, with the requests on the wire that it took: a busy server is asked again."""
        asked, allowance = prompt_for(request, self.settings.output), request.allowance
        started = machine_clock.monotonic()
        model = await asyncio.to_thread(build_model, self.settings)
        async with model:
            response, requests = await self._tries(model, asked, allowance)
        text, json_text = read_response(response)
        used, seconds = response.usage, machine_clock.monotonic() - started
        usage = PlannerUsage(used.input_tokens, used.output_tokens, requests, _cost(response), seconds)
        ended: Literal["", "cut", "refused"] = _ENDED.get(response.finish_reason or "", "")
        # Of an answer that was cut, an inner object may be whole; it is not the answer.
        return PlannerAnswer(text, "" if ended else json_text, self.model, asked.label, asked.digest, usage, ended)

    async def _tries(self, model: Model, asked: Asked, allowance: Allowance) -> tuple[ModelResponse, int]:
        """Ask until the model answers or an error is final; returns the number of requests."""
        from pydantic_ai import exceptions
        from pydantic_ai.direct import model_request
        from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
        from pydantic_ai.settings import ModelSettings

        options = ModelSettings()
        most = self._longest_answer(allowance)
        if most is not None:
            options["max_tokens"] = most
        if not _retries_off(model) and "max_retries" not in model.unsupported_settings:
            options["max_retries"] = 0
        message = ModelRequest(parts=[SystemPromptPart(asked.system), UserPromptPart(asked.question)])
        parameters = _parameters(asked, self.settings.output)
        again = (
            exceptions.ModelRateLimitError,
            exceptions.ModelUnavailableError,
            exceptions.ModelServerError,
            exceptions.ModelConnectionError,
        )
        tries = _TRIES if allowance.requests is None else max(1, min(_TRIES, allowance.requests))
        ends = None if allowance.seconds is None else machine_clock.monotonic() + allowance.seconds
        longest = math.inf
        for number in range(1, tries + 1):
            try:
                answer = model_request(model, [message], model_settings=options, model_request_parameters=parameters)
                return await answer, number
            except Exception as error:
                if not isinstance(error, again) or number == tries:
                    raise self._final(error, number) from error
                # Full jitter, so that many processes do not retry at the same moment.
                pause = error.retry_after if error.retry_after is not None else random.random() * 0.5 * 2**number
                if ends is not None and machine_clock.monotonic() + pause >= ends:
                    longest = _LONGEST_WAIT_S  # the server may be back earlier than it says
                elif pause > _LONGEST_WAIT_S:
                    _log.info("%s asks to wait %g s before the next request", self.model, pause)
                await self._wait(min(max(pause, 0.0), longest))
                if pause > _LONGEST_WAIT_S:
                    longest = _LONGEST_WAIT_S  # a long wait is kept once
        raise AssertionError("the last try returns or raises")

    def _longest_answer(self, allowance: Allowance) -> int | None:
        """The limit on one answer in tokens; None: the model's own."""
        most, left = self.settings.max_output_tokens, allowance.tokens
        if most is None and self.model.startswith("anthropic:"):
            most = _ANTHROPIC_ANSWER
        if left is None or (most is None and left >= _WORTH_LIMITING):
            return most
        return max(1, left if most is None else min(most, left))

    def _final(self, error: Exception, requests: int) -> PlannerUnavailable | ModelUnreachable:
        """The error that ends a question, in words of ours; the server's own stand in it, without the key."""
        from pydantic_ai import exceptions

        key, said = self.settings.api_key, str(error) or type(error).__name__
        # Some servers repeat the key that they refuse.
        said = printable(said.replace(key, "***") if key else said, _MESSAGE_CHARS)
        settled = (exceptions.ModelAuthenticationError, exceptions.ModelNotFoundError, exceptions.UserError)
        if isinstance(error, settled):
            return PlannerUnavailable(
                f"{self.model} cannot be asked: {said}",
                hint=f"look at the model's name (SAGA_MODEL), its key ({KEY_VARIABLE} or the provider's own variable), "
                "and the way of answering (SAGA_MODEL_OUTPUT=tool, native, prompted or text)",
            )
        if isinstance(error, exceptions.AgentRunError):
            tries = f" after {requests} requests" if requests > 1 else ""
            message = f"{self.model} gave no answer{tries}: {said}"
            hint = "try again later; SAGA_MODEL_BASE_URL says which server is asked"
        else:
            # A server may answer anything with status 200; a failure of the SDK to read it is not the SDK's own error.
            message = f"{self.model} gave an answer that cannot be read ({type(error).__name__}: {said})"
            hint = "does the server speak the protocol of this provider? see SAGA_MODEL and SAGA_MODEL_BASE_URL"
        return ModelUnreachable(message, hint=hint, requests=requests)


def _retries_off(model: Model) -> bool:
    """Turn off the retries of the model's own client, if it has such a switch.

    The setting of a request would do so in a copy of the client, and the copy reads its headers from the environment
    again.
    """
    client = getattr(model, "client", None)
    if not hasattr(client, "max_retries"):
        return False
    setattr(client, "max_retries", 0)  # noqa: B010 - each SDK has a class of its own
    return True


def _parameters(asked: Asked, output: str) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    about = "The plan, or why there is none."
    if output == "tool":
        # Params are free objects, which the strict mode of some providers cannot express.
        tool = ToolDefinition(
            name=ANSWER_TOOL, parameters_json_schema=asked.schema, description=about, strict=False, kind="output"
        )
        return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
    if output in ("native", "prompted"):
        definition = OutputObjectDefinition(asked.schema, name=ANSWER_TOOL, description=about, strict=False)
        return ModelRequestParameters(
            output_mode="native" if output == "native" else "prompted",
            output_object=definition,
            # The prompt contains the schema already.
            prompted_output_template=False,
            allow_text_output=True,
        )
    return ModelRequestParameters(output_mode="text", allow_text_output=True)


def read_response(response: ModelResponse) -> tuple[str, str]:
    """The model's text, and the JSON object in it: the arguments of the answer's tool, else found in the text."""
    from pydantic_ai.messages import TextPart, ToolCallPart

    texts = "\n".join(part.content for part in response.parts if isinstance(part, TextPart))
    calls = [
        part.args if isinstance(part.args, str) else json.dumps(part.args, ensure_ascii=False)
        for part in response.parts
        if isinstance(part, ToolCallPart) and part.args
    ]
    found = next(filter(None, map(find_object, [*reversed(calls), texts])), "")
    return "\n".join(filter(None, [texts, *calls]))[: MAX_ANSWER_CHARS + 1], found


def _cost(response: ModelResponse) -> float | None:
    """The price in US dollars, if the model and its provider are in the price list."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


# --- which model ---------------------------------------------------------------------------------------------------


def build_model(settings: PlannerSettings) -> Model:
    """The model of the settings, not connected yet. Raises ``PlannerUnavailable``, saying what to set or install."""
    with _importing:
        try:
            for module in _MODULES:
                import_module(module)
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == _PACKAGE:
                raise PlannerUnavailable("asking a model needs the extra 'planner'", hint=_EXTRA) from error
            raise _not_loaded(_PACKAGE, error, _EXTRA) from error
        return _built(settings)


def _built(settings: PlannerSettings) -> Model:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    kind, _, name = settings.model.partition(":")
    try:
        if kind == "ollama" and not settings.base_url and not os.environ.get("OLLAMA_BASE_URL"):
            settings = replace(settings, base_url=_OLLAMA_URL)
        if settings.base_url:
            return _at_url(kind, name, settings)
        return infer_model(settings.model, lambda provider: _provider(provider, settings))
    except ImportError as error:
        install = f'pip install "pydantic-ai-slim[{kind}]"'
        # The package words a missing SDK itself; the first error of the chain says what was not found.
        first = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        if isinstance(first, ModuleNotFoundError):
            said = printable(str(error), _MESSAGE_CHARS)
            raise PlannerUnavailable(
                f"{settings.model} needs a package that is not installed: {said}", hint=install
            ) from error
        raise _not_loaded(settings.model, first, install) from error
    except (UserError, ValueError) as error:
        raise PlannerUnavailable(
            f"{settings.model} cannot be set up: {printable(str(error).split('. ')[0], _MESSAGE_CHARS)}",
            hint=f"set {KEY_VARIABLE} (or the provider's own variable), or SAGA_MODEL_BASE_URL for your own server",
        ) from error


def _not_loaded(what: str, error: ImportError, install: str) -> PlannerUnavailable:
    """What is installed and cannot be imported: another version is missing, not a package."""
    said = printable(str(error) or type(error).__name__, _MESSAGE_CHARS)
    return PlannerUnavailable(
        f"{what} is installed and cannot be imported: {said}", hint=f"its packages do not fit together: {install}"
    )


def _provider(kind: str, settings: PlannerSettings) -> Provider[Any]:
    """The provider at its own address, with our key if there is one, else with the provider's own variable."""
    from pydantic_ai.providers import infer_provider, infer_provider_class

    if settings.api_key:
        made = infer_provider_class(kind)
        if "api_key" in inspect.signature(made).parameters:
            options: dict[str, Any] = {"api_key": settings.api_key}
            return made(**options)
    return infer_provider(kind)


def _at_url(kind: str, name: str, settings: PlannerSettings) -> Model:
    """A model at a configured address. Only our key is sent there, never one of the provider's own variables."""
    from pydantic_ai.models import infer_model
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers import infer_provider_class
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    key = settings.api_key or _NO_KEY
    if kind not in ("openai", "openai-chat"):
        try:
            made = infer_provider_class(kind)
        except ValueError:
            made = None  # a custom name for a server with OpenAI's API
        if made is not None and {"base_url", "api_key"} <= inspect.signature(made).parameters.keys():
            options: dict[str, Any] = {"base_url": settings.base_url, "api_key": key}
            provider = _bare(made(**options))
            return infer_model(f"{kind}:{name}", lambda _: provider)
    # Self-hosted servers know the older name of the limit on an answer; OpenAI's newer models refuse it.
    newer = name.startswith(("gpt-", "o1", "o3", "o4"))
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=newer)
    provider = _bare(OpenAICompatibleProvider(kind, base_url=settings.base_url, api_key=key, profile=profile))
    return OpenAIChatModel(name, provider=provider)


def _bare(provider: Provider[Any]) -> Provider[Any]:
    """The provider without the headers that its SDK reads from the environment.

    ``OPENAI_ORG_ID``, ``OPENAI_PROJECT_ID``, ``OPENAI_CUSTOM_HEADERS`` and ``ANTHROPIC_CUSTOM_HEADERS`` are meant for
    the provider's own servers, and the last two often hold a token. No argument of the SDKs disables them.
    """
    for name, nothing in (("organization", None), ("project", None), ("_custom_headers", {})):
        if hasattr(provider.client, name):
            setattr(provider.client, name, nothing)
    return provider
