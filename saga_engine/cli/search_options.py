"""The options by which commands find sagas: those of ``saga list``, and of the commands that act on many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from saga_engine.cli.exit_codes import SagaStatus
from saga_engine.cli.from_table import option

_SEARCH = "Search: "
NameOption = Annotated[str | None, option("searchSagas", "name", "--name", metavar="NAME", before=_SEARCH)]
TagsOption = Annotated[list[str] | None, option("searchSagas", "tag", "--tag", metavar="TAG", before=_SEARCH)]
ToolOption = Annotated[str | None, option("searchSagas", "tool", "--tool", metavar="TOOL", before=_SEARCH)]
AsksOption = Annotated[bool, option("searchSagas", "asks", "--asks", before=_SEARCH)]
SinceOption = Annotated[
    str | None,
    option(
        *("searchSagas", "since_ms", "--since"),
        bounds=False,
        metavar="AGE",
        help="Search: only sagas created within AGE, such as 90s, 2h, 7d.",
    ),
]
StatusOption = Annotated[
    SagaStatus | None,
    option("searchSagas", "status", "--status", metavar="S", case_sensitive=False, before=_SEARCH),
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=100_000, help="Of a search, act on at most this many sagas. Default: 1000."),
]
DryRunOption = Annotated[bool, option("createJob", "dry_run", "--dry-run", before="Of a search: ")]
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
