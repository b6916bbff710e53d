"""A prompt that comes back to be changed and sent again: in the line itself, or in the person's editor."""

import asyncio
import signal
import sys

from odin.core.errors import OdinError, UsageError
from odin.ui.question.editing import edit, editor
from odin.ui.question.lineedit import can_change, change_line
from odin.ui.question.tty import Tty
from odin.ui.terminal import framed, put, say


async def changed(draft: str, label: str, *, outside: bool = False) -> str:
    """What a person makes of it, `outside` always in their editor; "" when they leave it, by Ctrl-C too."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(_changed(draft.rstrip(), label, outside))
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        put(sys.stderr, "\n")
        return ""
    except OdinError as error:
        say(sys.stderr, error.sentence())
        return ""
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _changed(draft: str, label: str, outside: bool) -> str:
    tty = Tty(sys.stdin, sys.stderr)
    command = [] if can_change(draft) and not outside else editor()
    if outside and not command:
        raise UsageError("There is no editor to open.", "Set $VISUAL or $EDITOR to the one you like.")
    if command:
        return await edit(tty, command, draft)
    if can_change(draft.replace("\n", "").replace("\t", "")):
        return await change_line(tty, label, draft) or ""
    put(sys.stderr, "\n".join([*framed(draft, tty.columns()), ""]))
    say(sys.stderr, "That was the prompt. Some of it cannot be shown here: set $EDITOR to change it, or type it anew.")
    return ""
