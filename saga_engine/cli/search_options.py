"""The options by which commands find sagas: those of ``saga list``, and of the commands that act on many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from saga_engine.cli.exit_codes import SagaStatus

NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Search: only sagas of plans with this name.")
]
TagsOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Search: only sagas with this tag. Repeatable.")
]
ToolOption = Annotated[
    str | None, typer.Option("--tool", metavar="TOOL", help="Search: only sagas with a step that calls TOOL.")
]
AsksOption = Annotated[bool, typer.Option("--asks", help="Search: only sagas with an open question.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="AGE", help="Search: only sagas created within AGE, such as 90s, 2h, 7d."),
]
StatusOption = Annotated[
    SagaStatus | None,
    typer.Option("--status", metavar="S", case_sensitive=False, help="Search: only sagas of this status."),
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=100_000, help="Of a search, act on at most this many sagas. Default: 1000."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Of a search: show what would happen to each saga; nothing changes.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Of a search: act without asking first.")]


class Wanted(NamedTuple):
    """What a command line searches for."""

    status: SagaStatus | None = None
    name: str | None = None
    tags: list[str] | None = None
    tool: str | None = None
    since: str | None = None

    def __bool__(self) -> bool:
        return any(part is not None and part != [] for part in self)

    def fields(self, now_ms: float) -> dict[str, Any]:
        """As ``Coordinator.select`` takes them. Raises ``typer.BadParameter`` for what is no age."""
        from saga_engine.cli.times import age_ms

        return {
            "status": None if self.status is None else self.status.value,
            "name": self.name,
            "tags": self.tags or (),
            "tool": self.tool,
            "since_ms": 0 if self.since is None else round(now_ms - age_ms(self.since, "--since")),
        }


class Many(NamedTuple):
    """What a command line says of many sagas: the search, and how to act on what it finds."""

    wanted: Wanted = Wanted()
    limit: int | None = None
    dry_run: bool = False
    yes: bool = False


#: The options of a command that acts on many sagas, in the order of its help.
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "status": (StatusOption, None),
    "name": (NameOption, None),
    "tags": (TagsOption, None),
    "tool": (ToolOption, None),
    "since": (SinceOption, None),
    "limit": (LimitOption, None),
    "dry_run": (DryRunOption, False),
    "yes": (YesOption, False),
}


def for_many(body: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a search to a command, which gets them as ``many``."""

    @functools.wraps(body)
    def run(*args: Any, **options: Any) -> int:
        said = {name: options.pop(name, default) for name, (_, default) in _OPTIONS.items()}
        wanted = Wanted(*(said.pop(name) for name in Wanted._fields))
        return body(*args, many=Many(wanted, **said), **options)

    # typer reads options from signature and annotations.
    signature = inspect.signature(body, eval_str=True)
    kept = [each for each in signature.parameters.values() if each.name != "many"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]
    at = next((at for at, each in enumerate(kept) if each.kind is inspect.Parameter.KEYWORD_ONLY), len(kept))
    run.__signature__ = signature.replace(parameters=[*kept[:at], *added, *kept[at:]])  # type: ignore[attr-defined]
    annotations = {name: of for name, of in inspect.get_annotations(body, eval_str=True).items() if name != "many"}
    run.__annotations__ = {**annotations, **{name: of for name, (of, _) in _OPTIONS.items()}}
    return run
