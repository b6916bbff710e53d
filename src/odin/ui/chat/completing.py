"""Tab on the plain line: a command, one of its words, or a file of the project, as far as the letters are certain."""

import asyncio
import contextlib
from collections.abc import Sequence

from msgspec import Struct

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.ui.completing import Choice, Wanted, arguments, commands, files, wanted
from odin.ui.terminal import visible

LISTED = 20
_AGAIN_S = (0.05, 0.1, 0.2, 0.4)
"""When files are asked for again: the project is still being looked through the first time."""


class Completion(Struct, frozen=True):
    """`insert` takes the place of what stands from `start` on; `choices` are what it may become, if it is not clear."""

    start: int
    insert: str
    choices: tuple[str, ...] = ()


async def completed(client: Client, before: str) -> Completion | None:
    """What the text before the cursor becomes; None when there is nothing to complete."""
    want = wanted(before, len(before), first=True)
    if want is None:
        return None
    choices = await _choices(client, want)
    return chosen(before[want.start :], want.start, choices) if choices else None


async def _choices(client: Client, want: Wanted) -> Sequence[Choice]:
    if want.kind == "argument":
        return arguments(want)
    with contextlib.suppress(OdinError, OSError):
        if want.kind == "command":
            return commands(want.letters, await client.commands())
        for pause in (*_AGAIN_S, 0.0):
            if found := await client.find_files(want.letters, LISTED):
                return files([path for path in found if visible(path) == path])
            await asyncio.sleep(pause)
    return ()


def chosen(typed: str, start: int, choices: Sequence[Choice]) -> Completion:
    """Those that begin with what was typed count first; of several only what they have in common is certain."""
    begins = [choice for choice in choices if choice.insert.casefold().startswith(typed.casefold())]
    fitting = begins or list(choices)
    if len(fitting) == 1:
        return Completion(start, fitting[0].insert)
    common = _common([choice.insert for choice in fitting])
    if len(common) > len(typed) and begins:
        return Completion(start, common)
    return Completion(start, typed, tuple(choice.shown for choice in fitting[:LISTED]))


def _common(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    first, last = min(texts), max(texts)
    return next((first[:at] for at, letter in enumerate(first) if letter != last[at]), first)
