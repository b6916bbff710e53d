"""Reads instruction files: the user's and the project's, the files that they import with `@path`, and rules.

Instruction files of a project are ODIN.md, and AGENTS.md and CLAUDE.md of each folder down to the current one. They are
read once, when a session opens. ODIN.md is reloaded after Odin has written it. Those of the folders below, and rules
for certain paths, are sent when a file there is touched (`app/path_instructions.py`).

An imported file follows the file that names it, which stays as it is. Anyone may have written the files of a project,
so those import nothing from outside of it that the user has not allowed, and never a file that may hold secrets.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from odin.core.lazy_pattern import compile_lazily
from odin.core.path_names import contains, is_secret_path
from odin.core.text import to_valid_unicode

if TYPE_CHECKING:
    from odin.context.markdown_folder import MarkdownFile

ODIN_MD = "ODIN.md"
AGENTS_MD = "AGENTS.md"
CLAUDE_FILES = ("CLAUDE.md", ".claude/CLAUDE.md")
CLAUDE_LOCAL_MD = "CLAUDE.local.md"
PERSONAL_FILES = (AGENTS_MD, "SOUL.md", "USER.md", "IDENTITY.md")
"""Files in the configuration folder that are part of every prompt, if they exist."""

PROJECT_PERSONAL_FILES = tuple(f".odin/{name}" for name in PERSONAL_FILES[1:])
"""The same in a trusted project."""

RULES_FOLDER = ".claude/rules"
MAX_BYTES = 32 * 1024
MAX_IMPORT_DEPTH = 5
MAX_RULES = 100
MAX_GLOBS = 30

PROJECT_HEADING = "# Instructions of this project"
USER_HEADING = "# Instructions of the user"


class InstructionFile(Struct, frozen=True):
    """An AGENTS.md or equivalent, with its path relative to the project root or `~/`, and why it was read."""

    label: str
    text: str
    why: str = ""


class PathRule(Struct, frozen=True):
    """A rule for the files that match one of these globs, relative to the project root, with what it imports."""

    files: tuple[InstructionFile, ...]
    globs: tuple[str, ...]
    by_user: bool = False


class Instructions(Struct, frozen=True):
    """`odin_md` is ODIN.md, the other files follow with the nearest last; `warning` is for the user.

    `personal` are the files about the user and the agent. `rules` are sent later. `places` are the files read.
    """

    odin_md: str = ""
    path: str = ""
    warning: str = ""
    files: tuple[InstructionFile, ...] = ()
    personal: tuple[InstructionFile, ...] = ()
    rules: tuple[PathRule, ...] = ()
    places: frozenset[str] = frozenset()

    @property
    def personal_text(self) -> str:
        """The files about the user and the agent as the model reads them, or ""."""
        parts = (f"## {guide.label}\n{guide.text}" for guide in self.personal)
        return "\n\n".join([USER_HEADING, *parts]) if self.personal else ""

    @property
    def files_text(self) -> str:
        """The other files as the model reads them, each under its name."""
        return "\n\n".join(f"{PROJECT_HEADING} ({guide.label})\n{guide.text}" for guide in self.files)

    @property
    def text(self) -> str:
        """All instructions as one text."""
        return "\n\n".join(part for part in (self.personal_text, self.odin_md, self.files_text) if part)


OpenFile = Callable[[str], int]
"""Opens a file for reading by its path without links, and returns its descriptor. Raises OSError."""

RefuseImport = Callable[[str], str]
"""Returns why a file of this path without links may not be imported, or ""."""


def _open_plainly(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def load_instructions(
    root: str,
    cwd: str = "",
    open_file: OpenFile = _open_plainly,
    home: str = "",
    refuse: RefuseImport | None = None,
    seen: Iterable[str] = (),
    prefix: str = "",
) -> Instructions:
    """Read ODIN.md, then AGENTS.md from the root down to `cwd`, then rules. Missing or unreadable files are skipped.

    The other files of a folder are CLAUDE.md, .claude/CLAUDE.md and CLAUDE.local.md. Only the first 32 KiB in total
    are used, because they are sent with every request; cuts are reported. The files in `seen` are left out. `prefix`
    comes before the path of each.
    """
    reader = InstructionReader(root, open_file, home, refuse, seen, prefix)
    own = reader.load(Path(root, ODIN_MD))
    guides = own[1:]
    for folder in _list_folders(root, cwd):
        for path in list_candidates(folder):  # CLAUDE.md is often a copy of AGENTS.md
            guides += [guide for guide in reader.load(path) if guide.text not in {known.text for known in guides}]
    always, rules = _load_rules(reader, root)
    path, text = (str(Path(root, ODIN_MD)), own[0].text) if own else ("", "")
    places = frozenset(reader.seen)
    return Instructions(text, path, " ".join(reader.warnings), (*guides, *always), rules=rules, places=places)


def load_personal_files(
    user: str, root: str, open_file: OpenFile = _open_plainly, home: str = "", refuse: RefuseImport | None = None
) -> Instructions:
    """Read AGENTS.md, SOUL.md, USER.md and IDENTITY.md of the folder `user`, and the last three of `.odin` in `root`.

    Then, with a `home`, its `.claude/CLAUDE.md` and `.claude/rules`. An empty `root` stands for an untrusted project.
    Missing files are skipped; only the first 32 KiB count.
    """
    reader = InstructionReader("/", open_file, home, refuse)
    reader.user_folders = own = tuple(os.path.realpath(folder) for folder in (user, home) if folder)
    found = [guide for name in PERSONAL_FILES for guide in reader.load(Path(user, name), name)]
    if root and any(os.path.isfile(f"{root}/{name}") for name in PROJECT_PERSONAL_FILES):  # noqa: PTH113
        reader.root, reader.user_folders = root, ()
        found += [guide for name in PROJECT_PERSONAL_FILES for guide in reader.load(Path(root, name), name)]
        reader.root, reader.user_folders = "/", own
    rules: tuple[PathRule, ...] = ()
    if home:
        found += reader.load(Path(home, CLAUDE_FILES[1]))
        always, rules = _load_rules(reader, home)
        found += always
    places = frozenset(reader.seen)
    return Instructions(warning=" ".join(reader.warnings), personal=tuple(found), rules=rules, places=places)


def load_agent_instructions(
    root: str, paths: Sequence[str], known: Instructions, open_file: OpenFile = _open_plainly
) -> Instructions:
    """Read the instruction files that an agent has in addition to those of the project, which are left out."""
    reader = InstructionReader(root, open_file, seen=known.places)
    guides = [InstructionFile(path, text) for path in paths if (text := reader.read(Path(root, path)))]
    return Instructions(warning=" ".join(reader.warnings), files=tuple(guides))


def reload_odin_md(known: Instructions, root: str, open_file: OpenFile = _open_plainly) -> Instructions:
    """Return the instructions with the current ODIN.md. What it imports stays as it was."""
    reader = InstructionReader(root, open_file)
    own = reader.read(Path(root, ODIN_MD))
    path = str(Path(root, ODIN_MD)) if own else ""
    warning, places = " ".join(reader.warnings), known.places | reader.seen
    return Instructions(own, path, warning, known.files, known.personal, known.rules, places)


def _list_folders(root: str, cwd: str) -> Iterator[Path]:
    top = Path(root)
    yield top
    here = Path(cwd or root)
    if here.is_relative_to(top):
        for part in here.relative_to(top).parts:
            top = top / part
            yield top


def list_candidates(folder: Path) -> Iterator[Path]:
    return (folder / name for name in (AGENTS_MD, *CLAUDE_FILES, CLAUDE_LOCAL_MD))


class InstructionReader:
    """Reads each file once until the budget is used up."""

    def __init__(
        self,
        root: str,
        open_file: OpenFile,
        home: str = "",
        refuse: RefuseImport | None = None,
        seen: Iterable[str] = (),
        prefix: str = "",
    ) -> None:
        self._prefix = prefix
        self.root = root
        """Only files of this folder are read, and what they import."""
        self.user_folders: tuple[str, ...] = ()
        """If the files are the user's own: where they may import from without a rule."""
        self.bytes_left = MAX_BYTES
        self.warnings: list[str] = []
        self.seen = set(seen)
        self._home = home
        self._open = open_file
        self._refuse = refuse

    def load(
        self, path: Path, label: str = "", why: str = "", text: str | None = None, depth: int = MAX_IMPORT_DEPTH
    ) -> list[InstructionFile]:
        """Return a file, if it exists, and after it those that it imports. `text` is what was read of it already."""
        text = self.read(path, why) if text is None else self._cut(path, text.encode("utf-8", "replace"))
        if not text:
            return []
        found = [InstructionFile(label or self._name_file(path), text, why)]
        for name in _find_imports(text) if depth else ():
            written = self._home + name[1:] if self._home and name.startswith("~/") else name
            # A sentence may end after the path.
            forms = (path.parent / form for form in (written, written.rstrip(".,;:!?)]}>'\"*_")))
            named = next((Path(os.path.normpath(form)) for form in forms if os.path.isfile(form)), None)  # noqa: PTH113
            if named is not None:
                found += self.load(named, why=f"imported by {found[0].label}", depth=depth - 1)
        return found

    def _name_file(self, path: Path) -> str:
        """Return the path as the model reads it: relative to the project or `~/`."""
        if not self.user_folders and path.is_relative_to(self.root):
            return to_valid_unicode(f"{self._prefix}{path.relative_to(self.root)}")
        in_home = self._home and path.is_relative_to(self._home)
        return to_valid_unicode(f"~/{path.relative_to(self._home)}" if in_home else str(path))

    def read(self, path: Path, imported: str = "") -> str:
        """Return the text of a file, or "" if there is none or it may not be read. `imported` tells by which file."""
        if not os.path.isfile(path):  # noqa: PTH113
            return ""
        place = os.path.realpath(path)
        if place in self.seen:
            return ""
        self.seen.add(place)
        is_inside = Path(place).is_relative_to(os.path.realpath(self.root))
        if imported and (why := self._explain_refusal(place, is_inside)):
            return self._warn(f"{path}, {imported}, is not read: {why}")
        if not imported and not is_inside:
            return self._warn(f"{path} points outside the project and is ignored.")
        try:
            with open(self._open(place), "rb") as file:  # noqa: PTH123
                raw = file.read(max(self.bytes_left, 0) + 1)
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            return self._warn(f"{path} cannot be read: {error.strerror or error}. Continuing without it.")
        if imported and b"\0" in raw:
            return self._warn(f"{path}, {imported}, is not read: it is not a text file.")
        return self._cut(path, raw, size)

    def _explain_refusal(self, place: str, is_inside: bool) -> str:
        if is_secret_path(place):
            return "it may contain secrets."
        if any(contains(folder, place) for folder in self.user_folders):
            return ""
        if self._refuse is not None:
            return self._refuse(place)
        return "" if is_inside and not self.user_folders else "it is outside the project."

    def _cut(self, path: Path, raw: bytes, size: int = 0) -> str:
        """Return as much of a text as the budget allows."""
        room = self.bytes_left
        if room <= 0:
            return self._warn(f"{path} is ignored: other instructions already fill {MAX_BYTES // 1024} KiB.")
        self.bytes_left -= len(raw)
        text = raw[:room].decode("utf-8-sig", errors="replace").strip()
        if len(raw) <= room:
            return text
        limit_text = "only the first" if room == MAX_BYTES else "of all instructions only the first"
        kept, size = f"{MAX_BYTES // 1024} KiB", size or len(raw)
        self._warn(f"{path} is {size:,} bytes long; {limit_text} {kept} are used. Shorten it to use all of it.")
        return text.rstrip("\ufffd") + f"\n\n[{path.name} was cut here: {limit_text} {kept} are used.]"

    def _warn(self, text: str) -> str:
        self.warnings.append(text)
        return ""


_FENCE = compile_lazily(r"\s*(`{3,}|~{3,})")
_CODE_SPAN = compile_lazily(r"``[^\n]*?``|`[^`\n]*+`")
_IMPORT = compile_lazily(r"(?<!\S)@((?:[^\s\\]|\\ )+)")


def _find_imports(text: str) -> Iterator[str]:
    """Yield the words after `@` that may be paths, except in code."""
    fence = ""
    for line in text.splitlines() if "@" in text else ():
        found = _FENCE.match(line)
        if fence:
            fence = "" if found and found[1].startswith(fence) else fence
        elif found:
            fence = found[1]
        elif "@" in line:
            yield from (match[1].replace("\\ ", " ") for match in _IMPORT.finditer(_CODE_SPAN.sub("`", line)))


def _load_rules(reader: InstructionReader, top: str) -> tuple[tuple[InstructionFile, ...], tuple[PathRule, ...]]:
    """Read the rules of a project or of the user: those for every session, and those for certain paths."""
    folder = f"{top}/{RULES_FOLDER}"
    if not os.path.isdir(folder):  # noqa: PTH112
        return (), ()
    from odin.context.markdown_folder import MarkdownFolder, to_plain_line

    pages = MarkdownFolder(folder, "" if reader.user_folders else top).read_files(reader.warnings.append)
    always: list[InstructionFile] = []
    limited: list[tuple[MarkdownFile, tuple[str, ...]]] = []
    for count, page in enumerate(pages):
        if count == MAX_RULES:
            reader.warnings.append(f"{folder} holds more than {MAX_RULES} rules; the others are ignored.")
            break
        place = os.path.realpath(page.file)
        if place in reader.seen:
            continue
        reader.seen.add(place)
        if unknown := sorted(page.front.values.keys() - {"paths", "description"}):
            names = to_plain_line(", ".join(unknown))
            reader.warnings.append(f"{page.path}: {names} in its front matter has no effect.")
        written: Any = page.front.values.get("paths", "")
        items = cast("list[Any]", written) if isinstance(written, list) else _COMMA.split(str(written))
        if globs := tuple(glob for item in items if (glob := str(item).strip().strip("\"'"))):
            if len(globs) > MAX_GLOBS:
                reader.warnings.append(f"{page.path}: only the first {MAX_GLOBS} of its paths are used.")
            limited.append((page, globs[:MAX_GLOBS]))
        else:
            always += reader.load(Path(page.file), text=page.front.body)
    rules: list[PathRule] = []
    for page, globs in limited:
        reader.bytes_left = MAX_BYTES  # they are not part of every request
        files = reader.load(Path(page.file), why=f"for {', '.join(globs)}", text=page.front.body)
        rules += [PathRule(tuple(files), globs, by_user=bool(reader.user_folders))] if files else []
    return tuple(always), tuple(rules)


_COMMA = compile_lazily(r",(?![^{]*\})")
"""A comma between globs, not one in the braces of a glob."""
