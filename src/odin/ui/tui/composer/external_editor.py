"""The draft in the person's own editor, while the app leaves the terminal alone."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from odin.core.errors import UsageError
from odin.ui.plain.editors import find_editor
from odin.ui.tui.composer.paste import clean_text, explain_too_long

_FALLBACK = "vi"
_STOP_TIMEOUT_S = 1.0


def choose_editor(environ: Mapping[str, str] | None = None) -> list[str]:
    return find_editor(environ) or [_FALLBACK]


async def edit_in_editor(app: App[Any], text: str) -> str:
    """What the person makes of the text. Raises UsageError; the text is what it was, then."""
    import tempfile

    command = choose_editor()
    with tempfile.TemporaryDirectory(prefix="odin-edit-") as folder:
        path = Path(folder, "prompt.md")
        path.write_text(f"{text}\n" if text else "", encoding="utf-8")
        code = await run_in_terminal(app, [*command, str(path)])
        if code:
            raise UsageError(f"The editor {command[0]} ended with exit code {code}; the prompt is as it was.")
        try:
            found = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"What the editor left cannot be read ({error}); the prompt is as it was.") from error
    if sentence := explain_too_long(found):
        raise UsageError(sentence)
    return clean_text(found).removesuffix("\n")


async def run_in_terminal(app: App[Any], command: list[str]) -> int:
    """Leave the terminal to a program; gives its exit code. Raises UsageError when it cannot be started.

    Nothing is drawn meanwhile, but the session goes on: what happens is seen, and shown afterwards.
    """
    try:
        with app.batch_update(), app.suspend():
            return await _wait_for_program(command, getattr(app, "ending", None) or asyncio.Event())
    except SuspendNotSupported:
        raise UsageError("This terminal cannot be left to another program.") from None
    finally:
        app.refresh(layout=True)


async def _wait_for_program(command: list[str], ending: asyncio.Event) -> int:
    """It belongs to our own process group, because only that may read the terminal. It ends when we do."""
    try:
        process = await asyncio.create_subprocess_exec(*command)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(
            f"{command[0]} cannot be started ({why}).", "$VISUAL or $EDITOR names the editor, $PAGER the pager."
        ) from error
    over = asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait({asyncio.ensure_future(process.wait()), over}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        over.cancel()
        if process.returncode is None:
            await _stop_program(process)
    return process.returncode or 0


async def _stop_program(process: asyncio.subprocess.Process) -> None:
    """Odin ends: the program may put the terminal right, but not keep it."""
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
