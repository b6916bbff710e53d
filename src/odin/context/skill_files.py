"""Reads skills: finds SKILL.md files, reads their front matter, fills in arguments, and checks them for mistakes.

A mistake never fails: it is reported with file and line, and a skill that cannot be used is left out. Links that lead
out of a project or a plugin are not followed.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from odin.context.arguments import fill_text, find_shell_commands
from odin.context.markdown_folder import FrontMatter, insert_plugin_root, split_front_matter, split_names, to_plain_line
from odin.context.skills import Skill, SkillCatalog, SkillFolder, SkillProblem
from odin.core.errors import UsageError
from odin.core.text import join_some, suggest_similar, to_valid_unicode

SKILL_FILE = "SKILL.md"
MAX_BYTES = 256 * 1024
MAX_SKILLS = 2_000
"""Skills of one folder that are used."""

_HEAD_BYTES = 32 * 1024
_MAX_DEPTH = 4
_MAX_SCANNED = 20_000
_SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__"))

_MAX_FILES = 40

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_STRICT_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_STRICT_NAME_CHARS = 64
_STRICT_DESCRIPTION_CHARS = 1024
_STRICT_LINES = 500

_KEYS = frozenset(
    (
        *("name", "description", "license", "compatibility", "metadata", "allowed-tools"),
        *("when-to-use", "argument-hint", "arguments", "disable-model-invocation", "user-invocable"),
    )
)
_CLAUDE_KEYS = frozenset(
    ("model", "effort", "context", "agent", "hooks", "paths", "shell", "version", "author", "disallowed-tools")
)
"""Keys of other agents that have no effect here."""

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def load_skills(folders: Iterable[SkillFolder]) -> SkillCatalog:
    """Return the skills of these folders, strongest first."""
    skills: list[Skill] = []
    problems: list[SkillProblem] = []
    seen: set[tuple[int, int]] = set()
    for folder in folders:
        for path in _SkillWalk(folder, problems).walk():
            if (place := _identify(path)) in seen:
                continue
            seen.add(place)
            found = read_skill(path, folder, problems.append)
            if found is not None:
                skills.append(found)
    used = [problem for problem in problems if not problem.strict]
    return SkillCatalog(skills, used)


def _identify(path: str) -> tuple[int, int]:
    """Return what two names of the same file or folder have in common."""
    try:
        info = os.stat(path)  # noqa: PTH116
    except OSError:
        return 0, hash(path)
    return info.st_dev, info.st_ino


class _SkillWalk:
    """The SKILL.md files below a folder, sorted by path. Folders inside of a skill are not searched."""

    def __init__(self, folder: SkillFolder, problems: list[SkillProblem]) -> None:
        self._top = folder
        self._within = os.path.realpath(folder.within) if folder.within else ""
        self._problems = problems
        self._entered: set[tuple[int, int]] = set()
        self._scanned = 0
        self._found = 0
        self._is_full = False

    def walk(self) -> Iterator[str]:
        if not os.path.isdir(self._top.folder):  # noqa: PTH112
            self._report(self._top.folder, "It is not a folder, so it has no skills.")
        elif self._is_inside(self._top.folder):
            yield from self._walk_folder(self._top.folder, _MAX_DEPTH)

    def _walk_folder(self, folder: str, depth: int) -> Iterator[str]:
        place = _identify(folder)
        if place in self._entered:
            return
        self._entered.add(place)
        names = self._list_names(folder)
        own = next((name for name in (SKILL_FILE, SKILL_FILE.lower()) if name in names), "")
        if own:
            yield from self._take_file(f"{folder}/{own}")
            return
        inner = (name for name in sorted(names) if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for path in (f"{folder}/{name}" for name in inner if depth):
            if not self._is_full and os.path.isdir(path) and self._is_inside(path):  # noqa: PTH112
                yield from self._walk_folder(path, depth - 1)

    def _take_file(self, path: str) -> Iterator[str]:
        if not self._is_inside(path):
            return
        self._found += 1
        if self._found > MAX_SKILLS:
            self._stop(f"It holds more than {MAX_SKILLS:,} skills; the rest is ignored.")
        else:
            yield path

    def _list_names(self, folder: str) -> set[str]:
        try:
            with os.scandir(folder) as entries:
                names = {entry.name for _, entry in zip(range(_MAX_SCANNED), entries, strict=False)}
        except OSError as error:
            self._report(folder, f"It cannot be read: {error.strerror or error}.")
            return set()
        self._scanned += len(names)
        if self._scanned > _MAX_SCANNED:
            self._stop(f"It holds more than {_MAX_SCANNED:,} files outside of skills; the rest is ignored.")
        return names

    def _stop(self, text: str) -> None:
        if not self._is_full:
            self._is_full = True
            self._report(self._top.folder, text)

    def _is_inside(self, path: str) -> bool:
        if not self._within or Path(os.path.realpath(path)).is_relative_to(self._within):
            return True
        owner = "plugin" if self._top.plugin else "project"
        self._report(path, f"It points outside the {owner} and is ignored.")
        return False

    def _report(self, path: str, text: str) -> None:
        self._problems.append(SkillProblem(to_plain_line(path), 0, text, fatal=True))


Report = Callable[[SkillProblem], None]
"""Receives the mistakes in a skill."""


def read_skill(path: str, folder: SkillFolder, report: Report) -> Skill | None:
    """Return the skill in this SKILL.md, or None if it cannot be used."""
    reader = _SkillReader(path, folder, report)
    try:
        return reader.read()
    except _Unusable as error:
        reader.report(error.line, f"{error} This skill is ignored.", fatal=True)
        return None


class _Unusable(Exception):
    """A skill cannot be used. `line` is where the reason is."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


class _SkillReader:
    """Reads one SKILL.md and reports its mistakes."""

    def __init__(self, path: str, folder: SkillFolder, report: Report) -> None:
        self._path = path
        self._folder = folder
        self._report_problem = report
        self._front = FrontMatter()

    def report(self, line: int, text: str, *, fatal: bool = False, strict: bool = False) -> None:
        self._report_problem(SkillProblem(to_plain_line(self._path), line, text, fatal, strict))

    def _report_at(self, key: str, text: str, *, strict: bool = False) -> None:
        self.report(self._find_line(key), text, strict=strict)

    def read(self) -> Skill:
        """Return the skill. Raise _Unusable."""
        raw, info = _read_start(self._path, _HEAD_BYTES)
        text = raw.decode("utf-8-sig", "replace")
        if not text.startswith("---"):
            raise _Unusable("It has no front matter: a skill starts with ---, description and ---.", 1)
        front = self._front = split_front_matter(text)
        if not front.lines:
            raise _Unusable("Its front matter is empty or is not closed with ---.", 1)
        for line, problem in front.errors:
            self.report(line, problem)
        for key, why in front.as_text.items():
            self._report_at(key, f"{key} is not valid YAML ({why}). It is read as plain text.", strict=True)
        name = self._read_name()
        text = " ".join(part for key in ("description", "when-to-use") if (part := self._read_text(key)))
        if not text:
            raise _Unusable("description is missing: it tells the model when to use the skill.", 1)
        if len(text) > _STRICT_DESCRIPTION_CHARS:
            limit = f"{_STRICT_DESCRIPTION_CHARS:,} is the limit"
            self._report_at("description", f"description has {len(text):,} characters; {limit}.", strict=True)
        description = text
        if not front.body and info.st_size <= _HEAD_BYTES:
            raise _Unusable("It has no text below the front matter.", front.body_line)
        for key in self._front.values:
            if key not in _KEYS:
                effect = "has no effect in Odin" if key in _CLAUDE_KEYS else "is unknown"
                hint = "" if key in _CLAUDE_KEYS else suggest_similar(key, _KEYS)
                self._report_at(key, f"The key {to_plain_line(key)!r} {effect}.{hint}", strict=True)
        return Skill(
            name=name,
            description=description,
            path=self._path,
            folder=os.path.realpath(os.path.dirname(self._path)),  # noqa: PTH120
            source=self._folder.source,
            plugin=self._folder.plugin,
            allowed_tools=self._read_rules(),
            hint=to_plain_line(self._read_text("argument-hint")),
            arguments=self._read_names("arguments"),
            for_model=not self._read_switch("disable-model-invocation", False),
            for_user=self._read_switch("user-invocable", True),
            stamp=(info.st_mtime_ns, info.st_size, info.st_ino) if self._folder.within else None,
            plugin_root=self._folder.within if self._folder.plugin else "",
        )

    def _read_rules(self) -> tuple[str, ...]:
        """Return `allowed-tools`, with the folder of the plugin inserted unless it would change the pattern."""
        rules, root = self._read_names("allowed-tools"), self._folder.within if self._folder.plugin else ""
        if not root or set(root) & set("*?"):
            return rules
        import shlex

        return tuple(insert_plugin_root(rule, shlex.quote(root)) for rule in rules)

    def _read_name(self) -> str:
        own = os.path.basename(os.path.dirname(os.path.abspath(self._path)))  # noqa: PTH100, PTH119, PTH120
        written = self._front.values.get("name", "")
        name = written.strip() if isinstance(written, str) else ""
        if not name:
            text = "name must be a text." if written else "name is missing."
            self._report_at("name", f"{text} The folder's name is used.", strict=not written)
            name = own
        if not _NAME.fullmatch(name):
            if name == own or not _NAME.fullmatch(own):
                shown = to_plain_line(name)
                raise _Unusable(f"{shown!r} is not a name: use letters, digits and hyphens.", self._find_line("name"))
            self._report_at("name", f"{to_plain_line(name)!r} is not a name. The folder's name is used.", strict=True)
            name = own
        if name != own:
            self._report_at("name", f"name is {name}, but the folder is called {to_plain_line(own)}.", strict=True)
        if not _STRICT_NAME.fullmatch(name) or len(name) > _STRICT_NAME_CHARS:
            self._report_at("name", "name may have lowercase letters, digits and single hyphens only.", strict=True)
        return name

    def _read_text(self, key: str) -> str:
        value: Any = self._front.values.get(key, "")
        if isinstance(value, list):
            value = " ".join(map(str, cast("list[Any]", value)))
        elif not isinstance(value, str):
            self._report_at(key, f"{key} must be a text. It is ignored.")
            return ""
        return " ".join(to_valid_unicode(value).split())

    def _read_names(self, key: str) -> tuple[str, ...]:
        value: Any = self._front.values.get(key, "")
        items = split_names(value) if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in cast("list[Any]", items)):
            self._report_at(key, f"{key} must be a list of names. It is ignored.")
            return ()
        return tuple(dict.fromkeys(to_valid_unicode(item.strip()) for item in cast("list[str]", items)))

    def _read_switch(self, key: str, default: bool) -> bool:
        value: Any = self._front.values.get(key, "")
        found = _WORDS.get(str(value).strip().casefold(), None if value else default)
        if found is None:
            self._report_at(key, f"Unknown value {to_plain_line(str(value))!r} for {key}. Use true or false.")
            return default
        return found

    def _find_line(self, key: str) -> int:
        return self._front.lines.get(key, 1)


def _read_start(path: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Return the first bytes of a regular text file, and its stat result. Raise _Unusable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "a pipe, a socket or a device"
            raise _Unusable(f"It is {kind}, not a text file.")
        with os.fdopen(fd, "rb") as file:
            raw = file.read(limit)
    except OSError as error:
        raise _Unusable(f"It cannot be read: {error.strerror or error}.") from error
    if info.st_size > MAX_BYTES:
        raise _Unusable(f"It is {info.st_size:,} bytes long; {MAX_BYTES:,} is the limit.")
    if b"\0" in raw:
        raise _Unusable("It is not a text file.")
    return raw, info


# --- using a skill ---


def fill_skill(skill: Skill, arguments: str = "", variables: Mapping[str, str] | None = None) -> str:
    """Return the text of a skill for the model: where its files are, and its instructions with the arguments.

    `variables` are further names that `${NAME}` stands for. Raise UsageError if the file cannot be used any more.
    """
    try:
        raw, info = _read_start(skill.path, MAX_BYTES)
    except _Unusable as error:
        raise UsageError(f"The skill {skill.name} cannot be used: {skill.shown_path}: {error}") from None
    if skill.stamp is not None and skill.stamp != (info.st_mtime_ns, info.st_size, info.st_ino):
        raise UsageError(
            f"{skill.shown_path} changed since this session opened, so the skill {skill.name} is not trusted any more.",
            f"Review it with `odin {'plugin list' if skill.plugin else 'trust'}`, then start a new session.",
        )
    body = to_valid_unicode(split_front_matter(raw.decode("utf-8-sig", "replace")).body)
    body = insert_plugin_root(body, skill.plugin_root) if skill.plugin_root else body
    known = {"CLAUDE_SKILL_DIR": skill.folder, "ODIN_SKILL_DIR": skill.folder, **(variables or {})}
    body = re.sub(r"\$\{(\w+)\}", lambda match: known.get(match[1], match[0]), body)
    first = 0 if skill.hint or skill.arguments else None
    text = fill_text(body, arguments, first=first, names=skill.arguments, lead="ARGUMENTS: ")
    where = f"Its folder is {skill.folder}; its paths are relative to that. Run its scripts as any other command."
    files = list_files(skill.folder)
    listed = f"\nFiles: {join_some(files, _MAX_FILES)}" if files else ""
    return to_valid_unicode(f"# Skill {skill.name}\n{where}{listed}\n\n{text}")


def list_files(folder: str) -> list[str]:
    """Return the other files of a skill, relative to its folder, sorted."""
    found: list[str] = []
    scanned = 0
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        scanned += len(files) + len(folders)
        found += [os.path.relpath(f"{where}/{name}", folder) for name in files if not name.startswith(".")]
        if scanned > _MAX_SCANNED:
            break
    return sorted(to_plain_line(name) for name in found if name.casefold() != SKILL_FILE.casefold())


# --- checking a skill ---


def check_skills(folder: str) -> tuple[list[Skill], list[SkillProblem]]:
    """Return the skills in a folder, which may be one itself, and everything in them that is wrong or unusual."""
    place = SkillFolder(folder, "extra")
    problems: list[SkillProblem] = []
    skills: list[Skill] = []
    for path in _SkillWalk(place, problems).walk():
        found = read_skill(path, place, problems.append)
        if found is not None:
            skills.append(found)
            problems += _check_text(found)
    problems += [item for item in SkillCatalog(skills).problems if item not in problems]
    return skills, problems


_LINK = re.compile(r"\]\((?!\w+:|#|/)([^)\s#]+)")


def _check_text(skill: Skill) -> Iterator[SkillProblem]:
    raw, _ = _read_start(skill.path, MAX_BYTES)
    front = split_front_matter(raw.decode("utf-8-sig", "replace"))
    lines = front.body.splitlines()
    below = raw.decode("utf-8-sig", "replace").splitlines()[front.body_line - 1 :]
    first = front.body_line + next((at for at, line in enumerate(below) if line.strip()), 0)
    if len(lines) > _STRICT_LINES:
        text = f"The text has {len(lines)} lines; keep it below {_STRICT_LINES} and move parts to other files."
        yield SkillProblem(skill.shown_path, first, text, strict=True)
    for number, line in enumerate(lines, first):
        for match in _LINK.finditer(line):
            if not os.path.exists(f"{skill.folder}/{match[1]}"):  # noqa: PTH110
                yield SkillProblem(
                    skill.shown_path, number, f"There is no file {to_plain_line(match[1])!r}.", strict=True
                )
        if find_shell_commands(line):
            text = "Odin does not run !`command` in a skill: the model reads it as text."
            yield SkillProblem(skill.shown_path, number, text, strict=True)


def find_line(skill: Skill, text: str) -> int:
    """Return the line of the front matter with this item of `allowed-tools`, or that of the key."""
    raw, _ = _read_start(skill.path, _HEAD_BYTES)
    written = raw.decode("utf-8-sig", "replace")
    first = split_front_matter(written).lines.get("allowed-tools", 1)
    below = enumerate(written.splitlines()[first:], first + 1)
    return next((number for number, line in below if line.strip().strip("-, \"'") == text), first)
