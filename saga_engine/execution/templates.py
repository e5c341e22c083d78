"""Templates: named plans in the store, each version of which never changes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from saga_engine.errors import PlanInvalid, Problem, SettingInvalid, StoreRefused, TemplateNotFound
from saga_engine.execution.aside import beside
from saga_engine.execution.child_templates import with_templates
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.salvage import load_checked
from saga_engine.plan.value_schema import SCHEMA_HINT, ValueSchema
from saga_engine.plan.values import cut, plain
from saga_engine.ports import Document, DocumentStore

if TYPE_CHECKING:
    from saga_engine.plan.parser import Source
    from saga_engine.plan.tool_spec import ToolCatalog

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_REFERENCE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})(?:@([1-9][0-9]{0,8}))?", re.ASCII)
#: What only a submission can give is not missing yet: input, and the plans of children that are templates.
_LATER: Final = frozenset({"binding-input-missing", "saga-template"})
#: Writers that put the same template at the same time take turns.
_TRIES: Final = 20
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Template:
    """One version of a template. ``input_schema`` is the JSON Schema of the input of its sagas; None: any input."""

    name: str
    version: int
    plan: dict[str, Any]
    input_schema: dict[str, Any] | None = None

    @property
    def reference(self) -> str:
        """``NAME@VERSION``."""
        return f"{self.name}@{self.version}"

    def checked_input(self, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The input of a saga. Raises ``PlanInvalid`` if it does not have the form that the template declares."""
        values: dict[str, Any] | None = plain(dict(given)) if given else None
        if self.input_schema is None:
            return values
        found = ValueSchema(self.input_schema)({**self.plan.get("input", {}), **(values or {})})
        if found:
            hint = f"`saga template show {self.reference} --json` shows the schema of its input"
            paths = [
                "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path) for path, _ in found
            ]
            raise PlanInvalid(
                [
                    Problem("template-input", f"$.input{path}", message, hint)
                    for path, (_, message) in zip(paths, found, strict=True)
                ]
            )
        return values


class _Body(msgspec.Struct, omit_defaults=True):
    """A version as it is stored."""

    plan: dict[str, Any]
    input_schema: dict[str, Any] | None = None


class _Latest(msgspec.Struct):
    """What is stored for a name. It remains when the template is deleted: no version is ever used again."""

    version: int
    #: The versions that exist.
    kept: list[int] = []


class Templates:
    """The templates of a store."""

    def __init__(self, documents: DocumentStore, catalog: ToolCatalog) -> None:
        self._documents = documents
        self._catalog = catalog

    async def put(
        self, name: str, plan: Plan | Source, *, input_schema: Mapping[str, Any] | None = None, with_tools: bool = True
    ) -> Template:
        """Store a plan under a name, as its next version; the plan of its latest version again is that version.

        The plan is checked like one that is submitted, but for values of its input that a submission gives. A plan
        without a name gets that of the template. Raises ``PlanInvalid`` and ``SettingInvalid``.
        """
        await self._require_children(name, plan, with_tools=with_tools)
        named = _named(name)
        checked = partial(self._checked, named, plan, input_schema, with_tools=with_tools)
        body = msgspec.json.encode(await beside(checked, plan, input_schema), order="deterministic")
        for _ in range(_TRIES):
            at = await self._latest(name)
            latest = _Latest(0) if at is None else msgspec.json.decode(at.body, type=_Latest)
            if latest.version in latest.kept:
                newest = await self._documents.read("template", f"{name}@{latest.version}")
                if newest is not None and newest.body == body:
                    return _template(newest)
            # (A writer that died here has left a version that nobody was told of: it is skipped.)
            made = await self._documents.write("template", Document(f"{name}@{latest.version + 1}", 0, body))
            following = _Latest(latest.version + 1, [*latest.kept, latest.version + 1] if made else latest.kept)
            place = Document(name, 0 if at is None else at.revision, msgspec.json.encode(following))
            if await self._documents.write("template", place) is not None and made is not None:
                return _template(made)
        raise StoreRefused(f"template {name} is being put by too many at once", hint="try again")

    def _checked(
        self, name: str, source: Plan | Source, input_schema: Mapping[str, Any] | None, *, with_tools: bool
    ) -> _Body:
        catalog = self._catalog if with_tools else None
        try:
            loaded = load_checked(source, catalog)
        except PlanInvalid as error:
            raise PlanInvalid([each for each in error.problems if each.code not in _LATER]) from None
        problems = [each for each in check_plan(loaded, catalog) if each.code not in _LATER]
        schema: dict[str, Any] | None = None if input_schema is None else plain(dict(input_schema))
        if schema is not None and (why := ValueSchema(schema).problem()):
            message = f"it is no JSON Schema that can be used: {why}"
            problems.append(Problem("template-input", "$.input_schema", message, SCHEMA_HINT))
        if loaded.task_id is not None:
            hint = "leave it out; a submission chooses the id"
            problems.append(Problem("template-task-id", "$.task_id", "all sagas of a template would have one id", hint))
        if problems:
            raise PlanInvalid(problems)
        plan = msgspec.json.decode(loaded.json_bytes)
        plan.setdefault("name", name)
        return _Body(msgspec.json.decode(load_plan(plan).json_bytes), schema)

    async def get(self, reference: str) -> Template:
        """The latest version of ``NAME``, or ``NAME@VERSION``. Raises ``TemplateNotFound`` and ``SettingInvalid``."""
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise SettingInvalid(f"{cut(reference, 80)} is no template", hint="NAME or NAME@VERSION")
        at = await self._latest(match[1])
        kept = [] if at is None else msgspec.json.decode(at.body, type=_Latest).kept
        version = int(match[2]) if match[2] else max(kept, default=0)
        found = await self._documents.read("template", f"{match[1]}@{version}") if version in kept else None
        if found is None:
            raise TemplateNotFound(f"there is no template {reference}", hint="`saga template list` shows the templates")
        return _template(found)

    async def chosen(
        self, plan: Plan | Source | None, reference: str | None, given: Mapping[str, Any] | None
    ) -> tuple[Plan | Source, str]:
        """The plan of a submission, and the ``NAME@VERSION`` that it comes from (empty: none).

        Raises ``SettingInvalid``, ``TemplateNotFound``, and ``PlanInvalid`` for an input that the template refuses.
        """
        if (plan is None) == (reference is None):
            raise SettingInvalid("a submission has either a plan or a template", hint="give one of the two")
        if reference is None:
            assert plan is not None
            return plan, ""
        template = await self.get(reference)
        template.checked_input(given)
        return template.plan, template.reference

    async def expanded(self, plan: Plan | Source) -> Plan | Source:
        """The plan with the plans of those children that are templates. Raises ``PlanInvalid``."""
        return await with_templates(plan, self.get)

    async def _require_children(self, name: str, plan: Plan | Source, *, with_tools: bool) -> None:
        """Check the plan with its children that are templates. They are stored by name, and read by each submission."""
        whole = await with_templates(plan, self.get, within=name)
        if whole is not plan:
            await beside(partial(self._checked, _named(name), whole, None, with_tools=with_tools), whole)

    async def list(self) -> Sequence[tuple[str, Sequence[int]]]:
        """The names of all templates, each with its versions."""
        found = []
        async for name in self._names():
            at = await self._latest(name)
            if at is not None and (kept := msgspec.json.decode(at.body, type=_Latest).kept):
                found.append((name, tuple(kept)))
        return found

    async def delete(self, reference: str) -> None:
        """Delete a template with all versions, or one version; sagas and their journals keep their plans.

        Raises ``TemplateNotFound``.
        """
        template = await self.get(reference)
        for _ in range(_TRIES):
            at = await self._latest(template.name)
            if at is None:
                return
            latest = msgspec.json.decode(at.body, type=_Latest)
            gone = [template.version] if "@" in reference else latest.kept
            kept = [each for each in latest.kept if each not in gone]
            body = msgspec.json.encode(_Latest(latest.version, kept))
            if await self._documents.write("template", at._replace(body=body)) is None:
                continue
            for version in gone:
                found = await self._documents.read("template", f"{template.name}@{version}")
                if found is not None:
                    await self._documents.remove("template", found.name, found.revision)
            return
        raise StoreRefused(f"template {template.name} is being changed by too many at once", hint="try again")

    async def _latest(self, name: str) -> Document | None:
        return await self._documents.read("template", name)

    async def _names(self) -> AsyncIterator[str]:
        after = ""
        while names := await self._documents.names("template", after, _PAGE):
            after = names[-1]
            for name in names:
                if "@" not in name:
                    yield name


def _named(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        hint = "1 to 64 letters, digits, '.', '_' and '-', of which the first is a letter or a digit"
        raise SettingInvalid(f"{cut(name, 80)} is no name of a template", hint=hint)
    return name


def _template(document: Document) -> Template:
    name, _, version = document.name.partition("@")
    body = msgspec.json.decode(document.body, type=_Body)
    return Template(name, int(version), body.plan, body.input_schema)
