"""Builds the system prompt, and the environment note of the first message.

The system blocks of a mode never change within a session; changes are sent as notes in the newest message. So the bytes
already sent stay the same and the provider's prompt cache hits.
"""

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec

from odin.core.event_values import CachedFile, Mode
from odin.core.message import CACHED_FILES_NOTE, ENVIRONMENT_NOTE
from odin.core.root import Root
from odin.core.text import to_valid_unicode

_FOLDER = Path(__file__).with_name("prompts")


class SystemPromptSource(Protocol):
    """Returns the system blocks of a mode, which must be the same every time."""

    def build_blocks(self, mode: Mode, brief: bool = False) -> tuple[str, ...]: ...


class OutputStyle(msgspec.Struct, frozen=True):
    """How the main agent answers. `keeps_code`: the instructions for writing code stay."""

    name: str
    text: str
    keeps_code: bool = False


class SystemPrompt(msgspec.Struct, frozen=True):
    """Builds the system blocks: an optional header, the main prompt with its mode, the user's and the project's files.

    `base` replaces the main prompt, `append` is added to it, and so is the `style`. `allowed` and `forbidden` are the
    configured command rules, so that the model does not run into them.
    """

    header: str = ""
    base: str | None = None
    append: str = ""
    personal: str = ""
    instructions: str = ""
    other_instructions: str = ""
    allowed: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    style: OutputStyle | None = None

    def build_blocks(self, mode: Mode, brief: bool = False) -> tuple[str, ...]:
        main, style = self.base, ""
        if main is None:
            main = _load_prompt("brief" if brief else "main")
            if self.style is not None:
                style = f"# Output style: {self.style.name}\n{self.style.text}"
                main = _drop_sections(main, ("Tone",) if self.style.keeps_code else ("Tone", "Code"))
        # Ask and plan mode run only commands that are proven to read, whatever is allowed otherwise.
        lines: list[str] = []
        if self.allowed and mode == "edit_mode":
            lines.append(f"Commands that run without approval: {', '.join(self.allowed)}.")
        if self.forbidden:
            lines.append(f"Commands that are forbidden: {', '.join(self.forbidden)}.")
        parts = [main, _BRIEF_MODES[mode] if brief else _load_prompt(mode), style, self.append, "\n".join(lines)]
        blocks = [self.header, "\n\n".join(part.strip() for part in parts if part.strip()), self.personal]
        if self.instructions.strip():
            blocks.append(f"# Instructions of this project (ODIN.md)\n{self.instructions.strip()}")
        blocks.append(self.other_instructions.strip())
        return tuple(block for block in blocks if block.strip())


_BRIEF_MODES: dict[Mode, str] = {
    "ask_mode": "- This is ask mode: look and answer, change nothing.",
    "plan_mode": "- This is plan mode: look, then present a plan with Handoff. Change nothing.",
    "edit_mode": "- This is edit mode: do the work.",
}


@cache
def _load_prompt(name: str) -> str:
    """Return a file of this package."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")


def _drop_sections(text: str, headings: tuple[str, ...]) -> str:
    sections = text.split("\n# ")
    return "\n# ".join(section for section in sections if section.partition("\n")[0] not in headings)


def describe_environment(cwd: str, root: str, shell: str, date: str, roots: Sequence[Root] = ()) -> str:
    """Return facts for the first message of a session. They stay in the history and are not repeated."""
    lines = [f"{ENVIRONMENT_NOTE}{to_valid_unicode(cwd)}"]
    if root != cwd:
        lines.append(f"Project root: {to_valid_unicode(root)}")
    if roots:
        lines.append("Other folders of this session, by absolute paths:")
        lines += (f"- {to_valid_unicode(other.path)} ({other.access_name})" for other in roots)
    lines.append(f"Platform: {sys.platform}, shell: {os.path.basename(shell)}")  # noqa: PTH119
    lines.append(f"Date: {date}")
    return "\n".join(lines)


def format_date(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(timestamp))


def describe_cached_files(files: Sequence[CachedFile]) -> str:
    """Return a note on the files that entered the cache or changed in it since the last note."""
    return CACHED_FILES_NOTE + to_valid_unicode("; ".join(_describe_file(file) for file in files))


def _describe_file(file: CachedFile) -> str:
    facts = [f"{file.size} bytes", f"cached {time.strftime('%H:%M:%S', time.localtime(file.cached_at))}"]
    if file.modified:
        facts.append("modified")
    if file.truncated:
        facts.append("in part")
    return f"{file.path} ({', '.join(facts)})"
