"""The names of spans and of their attributes: OpenTelemetry's conventions for generative AI, and ours beside them.

https://github.com/open-telemetry/semantic-conventions-genai, v0.1.0: ``execute_tool`` for each attempt, ``plan`` for a
model's answer, ``invoke_workflow`` for a whole saga. They may still change; this module is the one place that names
them.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
PLAN: Final = "plan"
WORKFLOW: Final = "invoke_workflow"
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL_ID: Final = "gen_ai.tool.call.id"
MODEL: Final = "gen_ai.request.model"
TOKENS_IN: Final = "gen_ai.usage.input_tokens"
TOKENS_OUT: Final = "gen_ai.usage.output_tokens"
ERROR_TYPE: Final = "error.type"

SAGA: Final = "saga.id"
KIND: Final = "saga.kind"
TEMPLATE: Final = "saga.template"
STATUS: Final = "saga.status"
REASON: Final = "saga.reason"
STEP: Final = "saga.step"
ATTEMPT: Final = "saga.attempt"
DIRECTION: Final = "saga.direction"
OUTCOME: Final = "saga.outcome"
VIA: Final = "saga.via"
EPOCH: Final = "saga.epoch"
QUESTION: Final = "saga.question"
QUESTION_KIND: Final = "saga.question.kind"
DECISION: Final = "saga.decision"
