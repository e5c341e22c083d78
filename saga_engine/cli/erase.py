"""``saga erase``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import option
from saga_engine.cli.options import ByOption, DebugOption, JsonOption, SagaArgument, StoreOption

if TYPE_CHECKING:
    from saga_engine.api.erasing import Erased
    from saga_engine.settings import Settings


def erase(
    saga_id: SagaArgument,
    *,
    why: Annotated[str, option("eraseSaga", "why", "--why", metavar="TEXT")],
    family: Annotated[bool, option("eraseSaga", "family", "--family")] = False,
    by: ByOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Destroy the key of a sealed saga that has ended: nobody can read its payloads any more.

    Its id, states and times stay, and who erased it, why and when. Nothing brings the payloads back, except copies of
    the store from before. Erasing it again changes nothing. A saga that has not ended, or is not sealed, is refused
    (exit code 6); so is one of which others hold copies (children, parent, undos, forks), without --family.

    Example:
      saga erase trip-42 --why "the customer asked to be forgotten"
    """
    import asyncio

    from saga_engine.cli.options import person, settings_for
    from saga_engine.cli.output import data, document, note, shown

    found = asyncio.run(_erased(saga_id, person(by), why, settings_for(store), family=family))
    said = found.said
    if as_json:
        document({"saga_id": saga_id, "erased": said, "sagas": found.sagas, "unreached": found.unreached})
    else:
        who = f" by {shown(said['by'])}" if said["by"] else ""
        data(f"saga {shown(saga_id)} is erased{who}: {shown(said['why'])}")
        for member in found.sagas[1:]:
            data(f"saga {shown(member)} is erased")
        for text in found.unreached:
            note(f"not erased: {shown(text)}")
    return exit_codes.COMPLETED


async def _erased(saga_id: str, by: str, why: str, settings: Settings, *, family: bool) -> Erased:
    from saga_engine.api.erasing import erase
    from saga_engine.cli.read_only import no_store, not_found, writing_to
    from saga_engine.cli.retention import retention_in

    folder = no_store(settings)
    if folder is not None:
        raise not_found(saga_id, folder)
    rules = retention_in(settings)
    async with writing_to(settings) as store:
        return await erase(store, saga_id, by, why, family=family, archive=None if rules is None else rules.archive)
