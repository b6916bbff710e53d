"""ODIN.md: what the project wants every planner call to know."""

import os
from pathlib import Path

from msgspec import Struct

NAME = "ODIN.md"
MAX_BYTES = 32 * 1024


class Instructions(Struct, frozen=True):
    """The text for the prompt, and what a person should be told about the file."""

    text: str = ""
    path: str = ""
    warning: str = ""


def load_instructions(root: str) -> Instructions:
    """Read ODIN.md at the root of the project. No such file, or one that cannot be read, means no instructions.

    Only the first 32 KiB count: the text is sent with every request, and what is cut is said, never hidden.
    """
    path = Path(root, NAME)
    if not path.is_file():
        return Instructions()
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        return Instructions(warning=f"{path} leads out of the project and is not used.")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
            size = path.stat().st_size
    except OSError as error:
        return Instructions(warning=f"{path} cannot be read: {error.strerror or error}. Going on without it.")
    text = raw[:MAX_BYTES].decode("utf-8-sig", errors="replace").strip()
    warning = ""
    if len(raw) > MAX_BYTES:
        text = text.rstrip("\ufffd")
        kept = f"{MAX_BYTES // 1024} KiB"
        warning = f"{path} is {size:,} bytes long; only the first {kept} are used. Shorten it so that all of it counts."
        text += f"\n\n[{NAME} was cut here: only its first {kept} are used.]"
    return Instructions(text, str(path), warning)
