"""A prompt that comes back to be changed and sent again: in the line itself, or in the person's editor."""

import asyncio
import signal
import sys

from odin.core.errors import OdinError, UsageError
from odin.ui.question.editing import edit_externally, find_editor
from odin.ui.question.lineedit import can_edit_line, edit_line
from odin.ui.question.tty import Tty
from odin.ui.terminal import quote_block, write_line, write_text


async def edit_draft(draft: str, label: str, *, outside: bool = False) -> str:
    """What a person makes of it, `outside` always in their editor; "" when they leave it, by Ctrl-C too."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(_edit_draft(draft.rstrip(), label, outside))
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        write_text(sys.stderr, "\n")
        return ""
    except OdinError as error:
        write_line(sys.stderr, error.describe())
        return ""
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _edit_draft(draft: str, label: str, outside: bool) -> str:
    tty = Tty(sys.stdin, sys.stderr)
    command = [] if can_edit_line(draft) and not outside else find_editor()
    if outside and not command:
        raise UsageError("There is no editor to open.", "Set $VISUAL or $EDITOR to the one you like.")
    if command:
        return await edit_externally(tty, command, draft)
    if can_edit_line(draft.replace("\n", "").replace("\t", "")):
        return await edit_line(tty, label, draft) or ""
    write_text(sys.stderr, "\n".join([*quote_block(draft, tty.get_columns()), ""]))
    write_line(
        sys.stderr, "That was the prompt. Some of it cannot be shown here: set $EDITOR to change it, or type it anew."
    )
    return ""
