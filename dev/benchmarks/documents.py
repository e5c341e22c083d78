"""What ``saga tools import openapi`` makes of real documents: ``python dev/benchmarks/documents.py FOLDER [--write]``.

The documents are public and not committed. ``FOLDER`` has them as ``OWNER/NAME/PATH``, as a clone of each repository
lies there; ``--from 'https://…/{repository}/{path}'`` takes those that are missing from there and keeps them.

Counted for each document: its operations; how many are drafted; why others are left out; the request examples that the
document's own schema accepts, and how many of them pass the drafted tool. ``--write`` puts the table into
``DOCUMENTS.md`` beside this file.
"""

from __future__ import annotations

import argparse
import re
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs

from saga_engine.sources.http import http_tools
from saga_engine.sources.openapi import draft_tables
from saga_engine.sources.openapi.document import Document, Operation, mapping, parse
from saga_engine.sources.openapi.files import beside

PAGE = Path(__file__).with_name("DOCUMENTS.md")
DOCUMENTS = [
    ("Asana/openapi", "defs/asana_oas.yaml"),
    ("PagerDuty/api-schema", "reference/REST/openapiv3.json"),
    ("PagerDuty/api-schema", "reference/integration-jira-service/openapiv3.json"),
    ("PagerDuty/api-schema", "reference/scim/openapiv3.json"),
    ("Redocly/museum-openapi-example", "openapi.yaml"),
    ("XeroAPI/Xero-OpenAPI", "xero_accounting.yaml"),
    ("XeroAPI/Xero-OpenAPI", "xero-payroll-uk.yaml"),
    ("XeroAPI/Xero-OpenAPI", "xero_bankfeeds.yaml"),
    ("box/box-openapi", "openapi.json"),
    ("digitalocean/openapi", "specification/DigitalOcean-public.v2.yaml"),
    ("discord/discord-api-spec", "specs/openapi.json"),
    ("getsentry/sentry-api-schema", "openapi-derefed.json"),
    ("intercom/Intercom-OpenAPI", "descriptions/2.14/api.intercom.io.yaml"),
    ("lob/lob-openapi", "lob-api-public.yml"),
    ("meilisearch/open-api", "open-api.json"),
    ("okta/okta-management-openapi-spec", "dist/2024.06.1/management-minimal.yaml"),
    ("openai/openai-openapi", "openapi.json"),
    ("paypal/paypal-rest-api-specifications", "openapi/billing_subscriptions_v1.json"),
    ("paypal/paypal-rest-api-specifications", "openapi/checkout_orders_v2.json"),
    ("paypal/paypal-rest-api-specifications", "openapi/invoicing_v2.json"),
]
#: For documents whose server is relative, or none.
SERVER = "https://api.example.com"
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_QUOTED = re.compile(r"['\"{].*")


@dataclass
class Counted:
    """What was counted of one document."""

    name: str
    operations: int = 0
    drafted: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: int = 0
    passed: int = 0
    refused: list[str] = field(default_factory=list)


def counted(name: str, document: Document) -> Counted:
    """Draft all operations of a document, and try its examples."""
    found = Counted(name)
    operations = {operation.word: operation for operation in document.operations()}
    draft = draft_tables(document)
    if not draft.tables:
        draft = draft_tables(document, base_url=SERVER)
    found.operations, found.drafted = len(draft.tables) + len(draft.left_out), len(draft.tables)
    found.reasons = Counter(_kind(left.why) for left in draft.left_out)
    for table in draft.tables:
        fields = next(iter(tomllib.loads(table.toml)["http"].values()))
        examples = list(acceptable(document, operations[table.operation]))
        if not examples or not fields.keys() & {"body", "form"}:
            continue  # an optional body with GET is left out, and the table says so
        (tool,) = http_tools({"it": fields}, base=Path(), source=name)
        for example in examples:
            found.examples += 1
            why = refusal(fields, tool.spec().input_schema, example)
            found.passed += not why
            if why:
                found.refused.append(f"{table.operation}: {why[:200]}")
    return found


def _kind(why: str) -> str:
    """A reason without the names in it."""
    return _QUOTED.sub("…", why.partition("; ")[0])


#: How the page's table writes a reason: what begins so is that word, or the rest of the reason.
_SHORT = {
    "it needs a body of ": "",
    "its path has ": "path",
    "the host of its server ": "host",
    "the document ": "server",
}


def _short(why: str) -> str:
    for start, word in _SHORT.items():
        if why.startswith(start):
            return f"`{word or why.removeprefix(start)}`"
    return f"`{why}`"


def left_out(found: Counter[str]) -> str:
    """The cell of the table: how many operations are left out for which reason."""
    return ", ".join(f"{count} {_short(why)}" for why, count in found.most_common())


def acceptable(document: Document, operation: Operation) -> Iterator[Any]:
    """The request examples of an operation that the document's own schema accepts."""
    body = document.resolved(operation.body.get("requestBody"))
    for media, given in mapping(body.get("content")).items():
        if str(media).partition(";")[0].strip().lower() not in (_JSON, _FORM):
            continue
        content = mapping(given)
        shown = [content["example"]] if "example" in content else []
        shown += [document.resolved(each).get("value") for each in mapping(content.get("examples")).values()]
        schema = document.resolved(content.get("schema"))
        shown += [schema["example"]] if "example" in schema else []
        validator = own_schema(document, content.get("schema"))
        yield from (each for each in shown if isinstance(each, dict | list) and validator(each))
        return


def own_schema(document: Document, schema: Any) -> Any:
    """Whether the document's schema accepts a value; never, if it is no schema itself."""
    whole = {"$ref": "#/components/schemas/it", "components": {"schemas": {**_schemas(document), "it": schema or {}}}}
    try:
        if str(root_of(document).get("openapi", "")).startswith("3.0"):
            return jsonschema_rs.Draft4Validator(_nullable(whole), validate_formats=False).is_valid
        return jsonschema_rs.Draft202012Validator(whole, validate_formats=False).is_valid
    except ValueError:  # a schema that no validator takes accepts nothing
        return lambda _: False


def root_of(document: Document) -> Mapping[str, Any]:
    """The document as it was read."""
    return document._root  # noqa: SLF001 - nobody else wants it


def _schemas(document: Document) -> Mapping[str, Any]:
    return mapping(mapping(root_of(document).get("components")).get("schemas"))


def _nullable(value: Any) -> Any:
    """A schema of OpenAPI 3.0 as one of JSON Schema."""
    if isinstance(value, list):
        return [_nullable(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {name: _nullable(each) for name, each in value.items() if name not in ("example", "examples")}
    return {"anyOf": [made, {"type": "null"}]} if made.get("nullable") is True else made


def refusal(fields: Mapping[str, Any], schema: Mapping[str, Any], example: Any) -> str:
    """Why a drafted tool does not take the body of an example; empty if it does."""
    template = fields.get("form", fields.get("body"))
    if template is None:
        return "the tool has no body"
    if isinstance(template, str):
        params = {template[1:-1]: example}
    elif not isinstance(example, dict):
        return "it is no object"
    else:
        missing = [name for name in example if name not in template]
        if missing:
            return f"the tool has no param for {missing[0]}"
        params = {template[name][1:-1]: value for name, value in example.items()}
    names = {template[1:-1]} if isinstance(template, str) else {each[1:-1] for each in template.values()}
    wanted = [name for name in schema.get("required", ()) if name in names]
    validator = jsonschema_rs.Draft202012Validator({**schema, "required": wanted}, validate_formats=False)
    return next((str(error) for error in validator.iter_errors(params)), "")


def text_of(folder: Path, repository: str, path: str, template: str | None) -> tuple[str, Path]:
    """A document's text, and the file that it lies in."""
    file = folder / repository / path
    if not file.exists() and template is not None:
        with urllib.request.urlopen(template.format(repository=repository, path=path)) as answer:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(answer.read())
    return file.read_text(encoding="utf-8"), file


def rows(counts: list[Counted]) -> str:
    """The rows of the page's table."""
    names = ("operations", "drafted", "examples", "passed")
    numbers = [[f"{getattr(each, name):,}" for name in names] for each in counts]
    lines = [
        f"| {each.name.replace(': ', ' ')} | {' | '.join(row)} | {left_out(each.reasons)} |"
        for each, row in zip(counts, numbers, strict=True)
    ]
    total = [sum(getattr(each, name) for each in counts) for name in names]
    lines.append(
        f"| **{len(counts)}** | {' | '.join(f'**{number:,}**' for number in total)} | {sum(reasons(counts).values())} |"
    )
    return "\n".join(lines)


def reasons(counts: list[Counted]) -> Counter[str]:
    """Why operations are left out, over all documents."""
    return sum((each.reasons for each in counts), Counter())


def written(page: str, text: str) -> str:
    """The page with these rows below the heading of its table."""
    head = re.search(r"(?m)^(?:\|[^|\n]+){6}\|\n\|---\|---:\|---:\|---:\|---:\|---\|\n", page)
    if head is None:
        raise SystemExit("the page has no such table")
    rest = re.sub(r"\A(?:\|.*\n)*", "", page[head.end() :])
    return f"{page[: head.end()]}{text}\n{rest}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--from", dest="template", help="a URL with {repository} and {path}")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="a part of the names of the documents")
    args = parser.parse_args()
    counts = []
    for repository, path in DOCUMENTS:
        name = f"{repository}: {path}"
        if args.only not in name:
            continue
        text, file = text_of(args.folder, repository, path, args.template)
        one = counted(name, parse(text, str(file), beside(str(file), _refuse)))
        counts.append(one)
        print(one.name, one.operations, one.drafted, one.examples, one.passed, dict(one.reasons), flush=True)
        for refused in one.refused[:10]:
            print("   ", refused)
    print(rows(counts))
    for why, count in reasons(counts).most_common():
        print(f"- {why}: {count}")
    if args.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), rows(counts)), encoding="utf-8")


def _refuse(address: str) -> str:
    raise OSError(f"{address} is not fetched")


if __name__ == "__main__":
    main()
