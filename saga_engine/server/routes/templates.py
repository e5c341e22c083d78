"""Templates."""

from __future__ import annotations

from typing import Final

from saga_engine.errors import TemplateNotFound
from saga_engine.execution.templates import Template
from saga_engine.server import views
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation


def _body(template: Template) -> dict[str, object]:
    return {
        "name": template.name,
        "version": template.version,
        "plan": template.plan,
        "input_schema": template.input_schema,
    }


async def list_templates(incoming: Incoming) -> Answer:
    """All names and versions."""
    found = await incoming.engine.templates.list()
    return Answer({"templates": [views.template_body(name, versions) for name, versions in found]})


async def show(incoming: Incoming) -> Answer:
    """One version."""
    return Answer(_body(await incoming.engine.templates.get(incoming.path("reference"))))


async def put(incoming: Incoming) -> Answer:
    """The next version. A server without tools does not check their names and params."""
    engine = incoming.engine
    made = await engine.templates.put(
        incoming.path("reference"),
        incoming.body["plan"],
        input_schema=incoming.body.get("input_schema"),
        with_tools=bool(len(engine.tools)),
    )
    return Answer(_body(made))


async def delete(incoming: Incoming) -> Answer:
    """All versions, or one."""
    try:
        await incoming.engine.templates.delete(incoming.path("reference"))
    except TemplateNotFound:
        if not incoming.key.repeated:  # else the same request has deleted it
            raise
    return Answer(None, 204)


_PATH: Final = "/v1/templates/{reference}"
OPERATIONS: Final = [
    Operation(
        name="listTemplates",
        method="GET",
        path="/v1/templates",
        summary="List templates",
        handle=list_templates,
        answers={200: "Names and versions."},
    ),
    Operation(
        name="showTemplate",
        method="GET",
        path=_PATH,
        summary="Show a template: NAME (the latest version) or NAME@VERSION",
        handle=show,
        answers={200: "The template."},
    ),
    Operation(
        name="putTemplate",
        method="PUT",
        path=_PATH,
        summary="Store a plan as the next version of a template",
        about="The plan of the latest version again is that version.",
        handle=put,
        answers={200: "The version."},
    ),
    Operation(
        name="deleteTemplate",
        method="DELETE",
        path=_PATH,
        summary="Delete a template, or one version",
        handle=delete,
        answers={204: "Deleted."},
    ),
]
