"""The user's $EDITOR, for tool arguments and prompts."""

import os

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.sandbox.terminal import make_terminal_programs
from odin.ui.plain.tty import Tty


async def edit_externally(tty: Tty, client: Client, command: list[str], text: str, name: str) -> str:
    """Let the user edit a text in a private file of this name and return it. Raise UsageError."""
    programs = make_terminal_programs(await client.get_info(), os.environ)
    with programs.open_scratch() as folder:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        try:
            async with tty.lend():
                code = await programs.run([*command, str(path)], terminal=tty.fd)
        except OSError as error:
            raise UsageError(f"Cannot start the editor {command[0]} ({error.strerror or error}).") from error
        if code:
            raise UsageError(f"The editor {command[0]} failed with exit code {code}; nothing was changed.")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"Cannot read the edited file ({error}).") from error
