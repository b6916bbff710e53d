"""Tab on the plain line: a command, one of its words, or a file of the project, as far as the letters are certain."""

import asyncio
import contextlib
from collections.abc import Sequence

from msgspec import Struct

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.ui.completing import (
    CompletionItem,
    CompletionTarget,
    complete_argument,
    complete_command,
    find_target,
    make_file_items,
)
from odin.ui.terminal import escape_hidden

MAX_COMPLETIONS = 20
_RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.4)
"""When files are asked for again: the project is still being looked through the first time."""


class Completion(Struct, frozen=True):
    """`insert` takes the place of what stands from `start` on; `choices` are what it may become, if it is not clear."""

    start: int
    insert: str
    choices: tuple[str, ...] = ()


async def complete(client: Client, before: str) -> Completion | None:
    """What the text before the cursor becomes; None when there is nothing to complete."""
    want = find_target(before, len(before), first=True)
    if want is None:
        return None
    choices = await _find_items(client, want)
    return pick_completion(before[want.start :], want.start, choices) if choices else None


async def _find_items(client: Client, want: CompletionTarget) -> Sequence[CompletionItem]:
    if want.kind == "argument":
        return complete_argument(want)
    with contextlib.suppress(OdinError, OSError):
        if want.kind == "command":
            return complete_command(want.letters, await client.list_commands())
        for pause in (*_RETRY_DELAYS_S, 0.0):
            if found := await client.find_files(want.letters, MAX_COMPLETIONS):
                return make_file_items([path for path in found if escape_hidden(path) == path])
            await asyncio.sleep(pause)
    return ()


def pick_completion(typed: str, start: int, choices: Sequence[CompletionItem]) -> Completion:
    """Those that begin with what was typed count first; of several only what they have in common is certain."""
    begins = [choice for choice in choices if choice.insert.casefold().startswith(typed.casefold())]
    fitting = begins or list(choices)
    if len(fitting) == 1:
        return Completion(start, fitting[0].insert)
    common = _common_prefix_of([choice.insert for choice in fitting])
    if len(common) > len(typed) and begins:
        return Completion(start, common)
    return Completion(start, typed, tuple(choice.label for choice in fitting[:MAX_COMPLETIONS]))


def _common_prefix_of(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    first, last = min(texts), max(texts)
    return next((first[:at] for at, letter in enumerate(first) if letter != last[at]), first)
