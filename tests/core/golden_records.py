"""The golden records: a line of JSON for each kind of record, with a value in each of its fields.

``python -m tests.core.golden_records`` adds lines for kinds and fields that have none. It changes no line: what was
written once must stay readable as it is.
"""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as kinds

from saga_engine.core import records as r

FILE = Path(__file__).with_name("golden") / "records.jsonl"
STRUCTS: dict[str, type] = {kind.__name__: kind for kind in typing.get_args(r.AnyRecord)}


def lines() -> list[bytes]:
    """The records that must stay readable."""
    return FILE.read_bytes().splitlines()


def missing() -> dict[str, list[str]]:
    """The fields of each kind that no line has, by kind."""
    there: dict[str, set[str]] = {}
    for line in lines() if FILE.exists() else ():
        body = json.loads(line)
        there.setdefault(body["k"], set()).update(body)
    wanted = {name: set(struct.__struct_fields__) - {"v"} for name, struct in STRUCTS.items()}
    left = {name: sorted(fields - there.get(name, set())) for name, fields in wanted.items()}
    return {name: fields for name, fields in left.items() if fields}


def sample(kind: kinds.Type, name: str, default: Any) -> Any:
    """A value of a type that is not the default, so that it is written."""
    if isinstance(kind, kinds.UnionType):
        return sample(next(each for each in kind.types if not isinstance(each, kinds.NoneType)), name, default)
    if isinstance(kind, kinds.LiteralType):
        return next(value for value in reversed(kind.values) if value != default)
    if isinstance(kind, kinds.BoolType):
        return not default
    if isinstance(kind, kinds.IntType):
        return 1 if name == "v" else 7
    if isinstance(kind, kinds.FloatType):
        return 0.5
    if isinstance(kind, kinds.StrType):
        return f"some {name}"
    if isinstance(kind, kinds.ListType):
        return [sample(kind.item_type, name, None)]
    if isinstance(kind, kinds.DictType):
        return {"x": sample(kind.value_type, name, None)}
    if isinstance(kind, kinds.StructType):
        return {each.encode_name: sample(each.type, each.name, each.default) for each in kind.fields}
    return {"any": name}


def add_missing() -> None:
    """A line for each kind that has fields which no line has."""
    for name in missing():
        made = kinds.type_info(STRUCTS[name])
        assert isinstance(made, kinds.StructType)
        body = {each.encode_name: sample(each.type, each.name, each.default) for each in made.fields}
        record = msgspec.convert({"k": name, **body}, STRUCTS[name])
        with FILE.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")


if __name__ == "__main__":
    add_missing()
