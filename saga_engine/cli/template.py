"""``saga template put``, ``list``, ``show`` and ``delete``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.command import command
from saga_engine.cli.from_table import argument, option
from saga_engine.cli.options import DebugOption, JsonOption, PlanArgument, StoreOption, ToolsOption
from saga_engine.cli.param_types import PlainCommand, PlainGroup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from saga_engine.execution.templates import Template, Templates
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

_T = TypeVar("_T")

NameArgument = Annotated[str, argument("putTemplate", "reference", metavar="NAME")]
ReferenceArgument = Annotated[str, argument("showTemplate", "reference", metavar="NAME[@VERSION]")]

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Named plans in the store: put, list, show and delete them; saga submit --template starts one.",
)


def put(
    name: NameArgument,
    plan: PlanArgument,
    *,
    input_schema: Annotated[
        Path | None,
        option("putTemplate", "input_schema", "--input-schema", metavar="FILE", more=", as a file."),
    ] = None,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Check a plan and store it as the next version of a template. The same plan again is the same version.

    Examples:
      saga template put renewal renewal.json --tools tools.py
      saga template put renewal - --input-schema input.json < renewal.json
    """
    from saga_engine.cli.options import plan_source, registry_for, settings_for
    from saga_engine.cli.output import data, document, note

    settings = settings_for(store, tools)
    registry = registry_for(settings)
    schema = None if input_schema is None else _schema(input_schema)
    source = plan_source(plan)
    made = _written(
        settings,
        registry,
        lambda templates: templates.put(name, source, input_schema=schema, with_tools=settings.names_tools),
    )
    if as_json:
        document(_body(made))
    else:
        data(f"template {made.reference}")
        if not settings.names_tools:
            note("hint: no tools were given, so their names and params were not checked; see --tools")
    return exit_codes.COMPLETED


def list_templates(
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the templates of the store with their versions.

    Examples:
      saga template list
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown, table
    from saga_engine.stores.remote import without_password

    settings = settings_for(store)
    found: Sequence[tuple[str, Sequence[int]]] = _read(settings, lambda templates: templates.list(), [])
    if as_json:
        document({"templates": [{"name": name, "versions": list(versions)} for name, versions in found]})
    elif found:
        rows = [[name, str(versions[-1]), str(len(versions))] for name, versions in found]
        data(table(["TEMPLATE", "LATEST", "VERSIONS"], rows))
    else:
        note(f"there are no templates in {shown(without_password(settings.store))}: `saga template put` makes one")
    return exit_codes.COMPLETED


def show(
    reference: ReferenceArgument,
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Print the plan of a template; with --json also its version and the schema of its input.

    Examples:
      saga template show renewal
      saga template show renewal@2 --json
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import document, note

    template = template_of(settings_for(store), reference)
    if as_json:
        document(_body(template))
    else:
        note(f"template {template.reference}")
        document(template.plan)
    return exit_codes.COMPLETED


def delete(
    reference: ReferenceArgument,
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Delete a template with all its versions, or one version. Sagas keep their plans; no number is used again.

    Examples:
      saga template delete renewal
      saga template delete renewal@2
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document
    from saga_engine.tools.registry import ToolRegistry

    _written(settings_for(store), ToolRegistry(()), lambda templates: templates.delete(reference))
    if as_json:
        document({"deleted": reference})
    else:
        data(f"deleted: template {reference}")
    return exit_codes.COMPLETED


def template_of(settings: Settings, reference: str) -> Template:
    """A template of the store. Raises ``TemplateNotFound``, also if there is no store yet."""
    from saga_engine.errors import TemplateNotFound

    found = _read(settings, lambda templates: templates.get(reference), None)
    if found is None:
        raise TemplateNotFound(f"there is no template {reference}", hint="`saga template put` stores one")
    return found


def _read(settings: Settings, reading: Callable[[Templates], Awaitable[_T]], nothing: _T) -> _T:
    """What is read from the templates; ``nothing`` if there is no store yet."""
    import asyncio

    from saga_engine.cli.read_only import no_store, reading_from
    from saga_engine.execution.templates import Templates
    from saga_engine.tools.registry import ToolRegistry

    async def read() -> _T:
        async with reading_from(settings) as store:
            return await reading(Templates(store.documents(), ToolRegistry(())))

    return nothing if no_store(settings) is not None else asyncio.run(read())


def _written(settings: Settings, registry: ToolRegistry, writing: Callable[[Templates], Awaitable[_T]]) -> _T:
    import asyncio

    from saga_engine.cli.read_only import writing_to
    from saga_engine.execution.templates import Templates

    async def write() -> _T:
        async with writing_to(settings) as store:
            return await writing(Templates(store.documents(), registry))

    return asyncio.run(write())


def _schema(path: Path) -> Any:
    from saga_engine.errors import SettingInvalid
    from saga_engine.plan.strict_json import strict_json

    try:
        found = strict_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, json.JSONDecodeError) as error:
        raise SettingInvalid(f"--input-schema {path}: {error}", hint="a file with a JSON Schema") from error
    if not isinstance(found, dict):
        raise SettingInvalid(f"--input-schema {path}: a JSON Schema is an object", hint="a file with a JSON Schema")
    return found


def _body(template: Template) -> dict[str, Any]:
    return {
        "name": template.name,
        "version": template.version,
        "plan": template.plan,
        "input_schema": template.input_schema,
    }


for _name, _command, _about in (
    ("put", put, "Store a plan as a template."),
    ("list", list_templates, "List the templates."),
    ("show", show, "Print a template's plan."),
    ("delete", delete, "Delete a template or a version."),
):
    app.command(_name, cls=PlainCommand, short_help=_about)(command(_command))
