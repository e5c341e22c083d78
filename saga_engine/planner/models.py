"""Asks a model through pydantic-ai: one adapter for all providers and for every server with a compatible API.

The package is imported when a model is asked, in a thread, because that takes seconds. Its SDKs retry by themselves and
their time-outs count for each attempt; here their retries are off, every request on the wire is counted, and one limit
covers all attempts.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saga_engine.errors import ModelUnreachable, PlannerUnavailable
from saga_engine.plan.values import printable
from saga_engine.planner.json_extract import MAX_ANSWER_CHARS, find_object
from saga_engine.planner.prompting import ANSWER_TOOL, ask_for_another_way, ask_for_compensation, ask_for_plan
from saga_engine.planner.settings import KEY_VARIABLE
from saga_engine.ports import Allowance, PlannerAnswer, PlannerUsage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.providers import Provider

    from saga_engine.planner.prompting import Asked
    from saga_engine.planner.settings import PlannerSettings
    from saga_engine.ports import CompensationRequest, PlanRequest, ReplanRequest

#: Attempts for one question, the first included.
_TRIES = 3
_LONGEST_WAIT_S = 10.0
_MESSAGE_CHARS = 500
_EXTRA = 'pip install "saga-engine[planner]"'
#: A placeholder key for self-hosted servers that need none; the SDKs insist on one.
_NO_KEY = "no-key"
#: Ollama's default address (https://docs.ollama.com/api/introduction).
_OLLAMA_URL = "http://localhost:11434/v1"


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
        self._settings = settings
        self._wait = wait

    async def propose(self, request: PlanRequest) -> PlannerAnswer:
        """A plan for a goal."""
        return await self._ask(ask_for_plan(request, self._settings.output), request.allowance)

    async def compensate(self, request: CompensationRequest) -> PlannerAnswer:
        """Steps that compensate for one that its own undo cannot reverse."""
        return await self._ask(ask_for_compensation(request, self._settings.output), request.allowance)

    async def replan(self, request: ReplanRequest) -> PlannerAnswer:
        """Other steps for the rest of a goal."""
        return await self._ask(ask_for_another_way(request, self._settings.output), request.allowance)

    async def _ask(self, asked: Asked, allowance: Allowance) -> PlannerAnswer:
        started = time.monotonic()
        seconds = min(each for each in (allowance.seconds, self._settings.total_s) if each is not None)
        try:
            async with asyncio.timeout(seconds) as limit:
                model = await asyncio.to_thread(build_model, self._settings)
                async with model:
                    response, requests = await self._tries(model, asked, allowance)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ModelUnreachable(
                f"{self.model} did not answer within {seconds:g} seconds",
                hint="ask again, or allow more time: SAGA_MODEL_TOTAL_S",
            ) from error
        text, json_text = read_response(response)
        usage = PlannerUsage(
            tokens_in=response.usage.input_tokens,
            tokens_out=response.usage.output_tokens,
            requests=requests,
            cost_usd=_cost(response),
            seconds=time.monotonic() - started,
        )
        return PlannerAnswer(text, json_text, self.model, asked.label, asked.digest, usage)

    async def _tries(self, model: Model, asked: Asked, allowance: Allowance) -> tuple[ModelResponse, int]:
        """Ask until the model answers or an error is final; returns the number of requests."""
        from pydantic_ai import exceptions
        from pydantic_ai.direct import model_request
        from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart
        from pydantic_ai.settings import ModelSettings

        most = self._settings.max_output_tokens
        options = ModelSettings(max_tokens=most if allowance.tokens is None else max(1, min(most, allowance.tokens)))
        if not _retries_off(model) and "max_retries" not in model.unsupported_settings:
            options["max_retries"] = 0
        message = ModelRequest(parts=[SystemPromptPart(asked.system), UserPromptPart(asked.question)])
        again = (
            exceptions.ModelRateLimitError,
            exceptions.ModelUnavailableError,
            exceptions.ModelServerError,
            exceptions.ModelConnectionError,
        )
        tries = _TRIES if allowance.requests is None else max(1, min(_TRIES, allowance.requests))
        for number in range(1, tries + 1):
            try:
                parameters = _parameters(asked, self._settings.output)
                return await model_request(
                    model, [message], model_settings=options, model_request_parameters=parameters
                ), number
            except again as error:
                if number == tries:
                    raise self._unreachable(error, number) from error
                # Full jitter, so that many processes do not retry at the same moment.
                pause = error.retry_after if error.retry_after is not None else random.random() * 0.5 * 2**number
                await self._wait(min(max(pause, 0.0), _LONGEST_WAIT_S))
            except (exceptions.ModelAuthenticationError, exceptions.ModelNotFoundError) as error:
                raise self._unavailable(error) from error
            except (exceptions.AgentRunError, exceptions.UserError) as error:
                if isinstance(error, exceptions.UserError):
                    raise self._unavailable(error) from error
                raise self._unreachable(error, number) from error
            except Exception as error:
                # A server may answer anything with status 200; a failure of the SDK to read it is not the SDK's own
                # error.
                raise self._unreadable(error, number) from error
        raise AssertionError("the last try returns or raises")

    def _unreachable(self, error: Exception, requests: int) -> ModelUnreachable:
        tries = f" after {requests} requests" if requests > 1 else ""
        return ModelUnreachable(
            f"{self.model} gave no answer{tries}: {self._said(error)}",
            hint="try again later; SAGA_MODEL_BASE_URL says which server is asked",
            requests=requests,
        )

    def _unreadable(self, error: Exception, requests: int) -> ModelUnreachable:
        kind = type(error).__name__
        return ModelUnreachable(
            f"{self.model} gave an answer that cannot be read ({kind}: {self._said(error)})",
            hint="does the server speak the protocol of this provider? see SAGA_MODEL and SAGA_MODEL_BASE_URL",
            requests=requests,
        )

    def _unavailable(self, error: Exception) -> PlannerUnavailable:
        return PlannerUnavailable(
            f"{self.model} cannot be asked: {self._said(error)}",
            hint=f"look at the model's name (SAGA_MODEL), its key ({KEY_VARIABLE} or the provider's own variable), "
            "and the way of answering (SAGA_MODEL_OUTPUT=tool, native, prompted or text)",
        )

    def _said(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        # Some servers repeat the key that they refuse.
        key = self._settings.api_key
        return printable(text.replace(key, "***") if key else text, _MESSAGE_CHARS)


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

    texts: list[str] = []
    calls: list[str] = []
    for part in response.parts:
        if isinstance(part, ToolCallPart) and part.args:
            calls.append(part.args if isinstance(part.args, str) else json.dumps(part.args, ensure_ascii=False))
        elif isinstance(part, TextPart):
            texts.append(part.content)
    text = "\n".join([*texts, *calls])[: MAX_ANSWER_CHARS + 1]
    for said in [*reversed(calls), "\n".join(texts)]:
        found = find_object(said)
        if found:
            return text, found
    return text, ""


def _cost(response: ModelResponse) -> float | None:
    """The price in US dollars, if the model and its provider are in the price list."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


# --- which model ---------------------------------------------------------------------------------------------------


def build_model(settings: PlannerSettings) -> Model:
    """The model of the settings, not connected yet. Raises ``PlannerUnavailable``, saying what to set or install."""
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise PlannerUnavailable("asking a model needs the extra 'planner'", hint=_EXTRA) from error
    kind, _, name = settings.model.partition(":")
    try:
        if kind == "ollama" and not settings.base_url and not os.environ.get("OLLAMA_BASE_URL"):
            settings = replace(settings, base_url=_OLLAMA_URL)
        if settings.base_url:
            return _at_url(kind, name, settings)
        return infer_model(settings.model, lambda provider: _provider(provider, settings))
    except ImportError as error:
        raise PlannerUnavailable(
            f"{settings.model} needs a package that is not installed: {printable(str(error), _MESSAGE_CHARS)}",
            hint=f'pip install "pydantic-ai-slim[{kind}]"',
        ) from error
    except (UserError, ValueError) as error:
        raise PlannerUnavailable(
            f"{settings.model} cannot be set up: {printable(str(error).split('. ')[0], _MESSAGE_CHARS)}",
            hint=f"set {KEY_VARIABLE} (or the provider's own variable), or SAGA_MODEL_BASE_URL for your own server",
        ) from error


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
