"""The arguments of a call in the person's own editor."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from odin.core.errors import UsageError
from odin.ui.question.tty import Tty, restore_terminal_after

_PATIENCE_S = 2.0
"""How long an editor that is no longer wanted may take to leave."""


def find_editor(environ: Mapping[str, str] | None = None) -> list[str]:
    """The command that $VISUAL or $EDITOR names; nothing when neither does."""
    import shlex

    env = os.environ if environ is None else environ
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(env.get(name, ""))
        except ValueError as error:
            raise UsageError(f"${name} cannot be read as a command: {error}.") from None
        if words:
            return words
    return []


def format_arguments(args: Mapping[str, Any]) -> str:
    """Arguments as a person can read and change them."""
    return msgspec.json.format(msgspec.json.encode(args), indent=2).decode() + "\n"


def parse_edited_arguments(text: str) -> dict[str, Any]:
    """What was written there. Raises UsageError when it is no JSON object."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"That is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise UsageError("The arguments have to be one JSON object.")
    return cast("dict[str, Any]", found)


def summarize_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Which arguments are not what they were."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return f"changed {', '.join(names)}" if names else ""


async def edit_externally(tty: Tty, command: list[str], text: str) -> str:
    """What the person makes of this text in the editor, in a file that only they can read. Raises UsageError."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="odin-edit-") as folder:
        path = Path(folder, "arguments.json")
        path.write_text(text, encoding="utf-8")
        with restore_terminal_after(tty.fd):
            code = await _run_editor([*command, str(path)], tty.fd)
        if code:
            raise UsageError(f"The editor {command[0]} ended with exit code {code}, so nothing was changed.")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"What the editor left cannot be read ({error}).") from error


async def _run_editor(command: list[str], fd: int) -> int:
    """It belongs to our own process group, because only that may read the terminal."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=fd, stdout=fd, stderr=fd)
    except OSError as error:
        raise UsageError(f"The editor {command[0]} cannot be started ({error.strerror}).") from error
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await _stop_editor(process)
        raise


async def _stop_editor(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
