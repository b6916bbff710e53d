"""Builds the system prompt, and the environment note of the first message; loads the instruction files for it.

The system blocks of a mode never change within a session; changes are sent as notes in the newest message. So the bytes
already sent stay the same and the provider's prompt cache hits.

Instruction files are ODIN.md, and AGENTS.md or CLAUDE.md of each folder down to the current one. They are read once,
when a session opens. ODIN.md is reloaded after Odin has written it.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from odin.core.event_values import CachedFile, Mode
from odin.core.message import CACHED_FILES_NOTE, ENVIRONMENT_NOTE
from odin.core.text import to_valid_unicode

ODIN_MD = "ODIN.md"
AGENTS_MD = "AGENTS.md"
CLAUDE_MD = "CLAUDE.md"
CLAUDE_LOCAL_MD = "CLAUDE.local.md"
PERSONAL_FILES = (AGENTS_MD, "SOUL.md", "USER.md", "IDENTITY.md")
"""Files in the configuration folder that are part of every prompt, if they exist."""

PROJECT_PERSONAL_FILES = tuple(f".odin/{name}" for name in PERSONAL_FILES[1:])
"""The same in a trusted project."""

MAX_BYTES = 32 * 1024


class InstructionFile(Struct, frozen=True):
    """An AGENTS.md or equivalent, with its path relative to the project root."""

    label: str
    text: str


class Instructions(Struct, frozen=True):
    """`odin_md` is ODIN.md, the other files follow with the nearest last; `warning` is for the user.

    `personal` are the files about the user and the agent.
    """

    odin_md: str = ""
    path: str = ""
    warning: str = ""
    files: tuple[InstructionFile, ...] = ()
    personal: tuple[InstructionFile, ...] = ()

    @property
    def personal_text(self) -> str:
        """The files about the user and the agent as the model reads them, or ""."""
        parts = (f"## {guide.label}\n{guide.text}" for guide in self.personal)
        return "\n\n".join(["# Instructions of the user", *parts]) if self.personal else ""

    @property
    def files_text(self) -> str:
        """The other files as the model reads them, each under its name."""
        return "\n\n".join(f"# Instructions of this project ({guide.label})\n{guide.text}" for guide in self.files)

    @property
    def text(self) -> str:
        """All instructions as one text."""
        return "\n\n".join(part for part in (self.personal_text, self.odin_md, self.files_text) if part)


OpenFile = Callable[[str], int]
"""Opens a file for reading by its path without links, and returns its descriptor. Raises OSError."""


def _open_plainly(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def load_instructions(root: str, cwd: str = "", open_file: OpenFile = _open_plainly) -> Instructions:
    """Read ODIN.md, then AGENTS.md from the root down to `cwd`. Missing or unreadable files are skipped.

    Without AGENTS.md a folder's CLAUDE.md counts; CLAUDE.local.md counts in addition. Only the first 32 KiB in total
    are used, because they are sent with every request; cuts are reported.
    """
    reading = _BudgetedReader(root, open_file)
    own = reading.read(Path(root, ODIN_MD))
    guides = [
        InstructionFile(to_valid_unicode(str(path.relative_to(root))), text)
        for folder in _list_folders(root, cwd)
        for path in _list_candidates(folder)
        if (text := reading.read(path))
    ]
    path = str(Path(root, ODIN_MD)) if own else ""
    return Instructions(own, path, " ".join(reading.warnings), tuple(guides))


def load_personal_files(user: str, root: str, open_file: OpenFile = _open_plainly) -> Instructions:
    """Read AGENTS.md, SOUL.md, USER.md and IDENTITY.md of the folder `user`, and the last three of `.odin` in `root`.

    An empty `root` stands for an untrusted project. Missing files are skipped; only the first 32 KiB count.
    """
    reading = _BudgetedReader("/", open_file)
    found = [InstructionFile(name, text) for name in PERSONAL_FILES if (text := reading.read(Path(user, name)))]
    if root and any(os.path.isfile(f"{root}/{name}") for name in PROJECT_PERSONAL_FILES):  # noqa: PTH113
        reading.root = root
        found += [
            InstructionFile(name, text) for name in PROJECT_PERSONAL_FILES if (text := reading.read(Path(root, name)))
        ]
    return Instructions(warning=" ".join(reading.warnings), personal=tuple(found))


def load_agent_instructions(
    root: str, paths: Sequence[str], known: Instructions, open_file: OpenFile = _open_plainly
) -> Instructions:
    """Read the instruction files that an agent has in addition to those of the project, which are left out."""
    reading = _BudgetedReader(root, open_file)
    labels = {guide.label for guide in known.files} | ({ODIN_MD} if known.odin_md else set[str]())
    guides = [
        InstructionFile(path, text) for path in paths if path not in labels and (text := reading.read(Path(root, path)))
    ]
    return Instructions(warning=" ".join(reading.warnings), files=tuple(guides))


def reload_odin_md(known: Instructions, root: str, open_file: OpenFile = _open_plainly) -> Instructions:
    """Return the instructions with the current ODIN.md."""
    reading = _BudgetedReader(root, open_file)
    own = reading.read(Path(root, ODIN_MD))
    path = str(Path(root, ODIN_MD)) if own else ""
    return Instructions(own, path, " ".join(reading.warnings), known.files, known.personal)


def _list_folders(root: str, cwd: str) -> Iterator[Path]:
    top = Path(root)
    yield top
    here = Path(cwd or root)
    if here.is_relative_to(top):
        for part in here.relative_to(top).parts:
            top = top / part
            yield top


def _list_candidates(folder: Path) -> Iterator[Path]:
    yield next((folder / name for name in (AGENTS_MD, CLAUDE_MD) if os.path.isfile(folder / name)), folder / AGENTS_MD)  # noqa: PTH113
    yield folder / CLAUDE_LOCAL_MD


class _BudgetedReader:
    """Reads each file once until the budget is used up."""

    def __init__(self, root: str, open_file: OpenFile) -> None:
        self.root = root
        """Only files of this folder are read."""
        self.warnings: list[str] = []
        self._open = open_file
        self._bytes_left = MAX_BYTES
        self._seen: set[str] = set()

    def read(self, path: Path) -> str:
        if not os.path.isfile(path):  # noqa: PTH113
            return ""
        place = os.path.realpath(path)
        if place in self._seen:
            return ""
        self._seen.add(place)
        if not Path(place).is_relative_to(os.path.realpath(self.root)):
            return self._warn(f"{path} points outside the project and is ignored.")
        if self._bytes_left <= 0:
            return self._warn(f"{path} is ignored: other instructions already fill {MAX_BYTES // 1024} KiB.")
        try:
            with open(self._open(place), "rb") as file:  # noqa: PTH123
                raw = file.read(self._bytes_left + 1)
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            return self._warn(f"{path} cannot be read: {error.strerror or error}. Continuing without it.")
        room, self._bytes_left = self._bytes_left, self._bytes_left - len(raw)
        text = raw[:room].decode("utf-8-sig", errors="replace").strip()
        if len(raw) <= room:
            return text
        limit_text = "only the first" if room == MAX_BYTES else "of all instructions only the first"
        kept = f"{MAX_BYTES // 1024} KiB"
        self._warn(f"{path} is {size:,} bytes long; {limit_text} {kept} are used. Shorten it to use all of it.")
        return text.rstrip("\ufffd") + f"\n\n[{path.name} was cut here: {limit_text} {kept} are used.]"

    def _warn(self, text: str) -> str:
        self.warnings.append(text)
        return ""


_FOLDER = Path(__file__).with_name("prompts")


class SystemPromptSource(Protocol):
    """Returns the system blocks of a mode, which must be the same every time."""

    def build_blocks(self, mode: Mode, brief: bool = False) -> tuple[str, ...]: ...


class OutputStyle(Struct, frozen=True):
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


def describe_environment(cwd: str, root: str, shell: str, date: str) -> str:
    """Return facts for the first message of a session. They stay in the history and are not repeated."""
    lines = [f"{ENVIRONMENT_NOTE}{to_valid_unicode(cwd)}"]
    if root != cwd:
        lines.append(f"Project root: {to_valid_unicode(root)}")
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
