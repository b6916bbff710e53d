"""Slash commands that send a prompt: Odin's own, and custom ones from folders of Markdown files and the configuration.

A custom command replaces one of Odin's own with the same name. Commands are read on demand and are text for the model.
What they want to run or allow is for `app/command_shell.py` to decide.
"""

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from odin.context.arguments import fill_text
from odin.context.markdown_folder import (
    MAX_BYTES,
    MarkdownFolder,
    insert_plugin_root,
    is_typable,
    split_names,
    to_plain_line,
)
from odin.core.client import CommandSource, CustomCommand
from odin.core.slash_commands import is_reserved
from odin.core.text import to_valid_unicode

if TYPE_CHECKING:
    from odin.context.skills import Skill, SkillCatalog

_INIT = """\
Write instructions for coding agents that will work in this repository, in AGENTS.md at its root.

If AGENTS.md exists, improve it: keep what is right, correct what is wrong, add what is missing. If there is no \
AGENTS.md but an ODIN.md or CLAUDE.md, improve that file instead of writing a second one.

First look at the repository: the README, the build and package files, the CI configuration, rules for other tools \
(.cursor/rules, .cursorrules, .github/copilot-instructions.md), the layout of the source, a few typical files and tests.

Then write down what an agent cannot see at a glance:
- the commands to build, lint, format and test, and how to run a single test;
- the architecture: the main parts, how they work together, where to start reading;
- conventions that the code follows and a newcomer would break, and pitfalls.

Take every command and name from the repository; try commands that only read. Leave out what is obvious, general \
advice and lists of files. Stay under 100 lines. End with a summary of what you wrote or changed.

$ARGUMENTS
"""

_REVIEW = """\
Review a change in this repository. What to review: $ARGUMENTS

- Nothing is named: review the uncommitted changes (`git status`, `git diff HEAD`), and read new files.
- A branch: review what it adds to the default branch (`git diff main...BRANCH`). The default branch itself: review \
what the current branch adds to it (`git diff main...HEAD`).
- A commit or a range: review that (`git show COMMIT`, `git diff RANGE`).

Read enough of the code around the change to judge it. Do not change any file.

Look for what matters, in this order: wrong behavior, missing cases and error handling, security, data loss, races, \
broken callers and interfaces, performance, missing or weak tests, documentation that is now wrong. Do not comment on \
formatting or taste. Check each finding against the code before you report it.

Answer with the findings, most severe first. For each one: `file:line`, what is wrong, an input or a situation in \
which it fails, and how to fix it. If there are none, say so. End with one sentence: can this be merged?
"""

BUILTIN_COMMANDS: dict[str, dict[str, Any]] = {
    "init": {
        "description": "Write or improve AGENTS.md, the project's instructions for coding agents.",
        "argument-hint": "[INSTRUCTIONS]",
        "body": _INIT,
    },
    "review": {
        "description": "Review the uncommitted changes, or a branch or commit.",
        "argument-hint": "[BRANCH|COMMIT]",
        "body": _REVIEW,
    },
}


def format_value(value: Any) -> str:
    """Return a front matter value as one line of text."""
    if isinstance(value, list):
        return f"[{', '.join(format_value(item) for item in cast('list[Any]', value))}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {format_value(item)}" for key, item in cast("dict[Any, Any]", value).items())
    return str(value)


_KEYS = frozenset(("description", "argument-hint", "hint", "allowed-tools", "disable-model-invocation", "body"))
"""Keys that have an effect, or need none: the model never calls a command by itself."""

PROJECT_FOLDERS = (".odin/commands", ".claude/commands")
USER_FOLDER = "commands"


class CommandFolder(Struct, frozen=True):
    """A folder of commands. With `within`, anything that leads outside that folder is skipped.

    Commands of a `plugin` are also called `plugin:name`. With `only`, no other files count.
    """

    folder: str
    source: CommandSource
    within: str = ""
    plugin: str = ""
    only: tuple[str, ...] = ()


class ConfiguredCommands(Struct, frozen=True):
    """Commands from a configuration file: name → text, or name → {description, argument-hint, body}."""

    entries: Mapping[str, Any]
    source: CommandSource
    path: str = ""


class CommandText(Struct, frozen=True):
    """A command and its text. `overridden_path`: a command of the user's or Odin's that a project's replaces.

    `allowed_tools` are calls that it wants to be allowed, `ignored` the keys that have no effect.
    """

    command: CustomCommand
    body: str
    path: str
    overridden_path: str = ""
    allowed_tools: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def is_from_project(self) -> bool:
        return self.command.source in ("project", "project config")

    def fill(self, arguments: str, outputs: Mapping[str, str] | None = None) -> str:
        """Return the text with the arguments and the output of its commands inserted."""
        return fill_text(self.body, arguments, first=1, outputs=outputs or {})


class CommandLibrary:
    """The sources of commands, strongest first, and weaker than those, skills. It reads files: call it in a thread."""

    def __init__(
        self, sources: Iterable[CommandFolder | ConfiguredCommands], skills: "SkillCatalog | None" = None
    ) -> None:
        self._skills = skills
        self._sources = tuple(
            (source, MarkdownFolder(source.folder, source.within) if isinstance(source, CommandFolder) else None)
            for source in sources
        )
        self._reported: set[str] = set()
        self._pending_warnings: list[str] = []
        self._lock = Lock()

    def list_commands(self) -> tuple[CustomCommand, ...]:
        """Return all commands, sorted by name."""
        found = {name: text.command for name, text in self._read_all().items()}
        for skill in self._skills.list_skills() if self._skills is not None else ():
            if skill.for_user and not is_reserved(skill.name):
                about = to_plain_line(skill.description)
                command = CustomCommand(skill.name, about, skill.hint, "skill", skill.plugin)
                found.setdefault(skill.name.casefold(), command)
        return tuple(found[name] for name in sorted(found))

    def list_texts(self) -> tuple[CommandText, ...]:
        return tuple(self._read_all().values())

    def find(self, typed: str) -> tuple[CommandText, str] | None:
        """Return the command a line starts with and the rest of the line, or None."""
        name, arguments = split_command(typed)
        found = self._read_all() if name else {}
        text = found.get(name.casefold())
        if text is None:
            plugin, _, rest = name.casefold().partition(":")
            text = other if (other := found.get(rest)) and other.command.plugin.casefold() == plugin else None
        text = text or found.get(name.casefold().replace(":", "/"))
        if text is None:
            return None
        if text.ignored:
            self._warn(f"{text.path}: {', '.join(text.ignored)} in its front matter has no effect.")
        return text, arguments

    def expand_skill(self, typed: str, session: str = "") -> "tuple[Skill, str] | None":
        """Return the skill a line calls, and its text with the rest of the line as arguments; None if it calls none.

        Raise UsageError if the skill cannot be used. A command of the same name is stronger: use `find` first.
        """
        name, arguments = split_command(typed)
        skill = self._skills.find(name) if self._skills is not None and name else None
        if skill is None or not skill.for_user:
            return None
        from odin.context.skill_files import fill_skill

        return skill, fill_skill(skill, arguments, {"CLAUDE_SESSION_ID": session})

    def take_warnings(self) -> list[str]:
        """Return what was skipped and why, each warning once."""
        warnings, self._pending_warnings = self._pending_warnings, []
        return warnings

    def _read_all(self) -> dict[str, CommandText]:
        found: dict[str, CommandText] = {}
        with self._lock:
            for source, folder in self._sources:
                for text in self._read_source(source, folder):
                    self._add(found, text)
        return found

    def _read_source(
        self, source: CommandFolder | ConfiguredCommands, folder: MarkdownFolder | None
    ) -> Iterator[CommandText]:
        if isinstance(source, ConfiguredCommands):
            yield from self._read_config(source)
        elif folder is not None:
            for page in folder.read_files(self._warn):
                if source.only and page.file not in source.only:
                    continue
                if is_typable(page.name):
                    body = insert_plugin_root(page.front.body, source.within) if source.plugin else page.front.body
                    text = _make_text(page.name, page.front.values, body, source.source, page.path)
                    if source.plugin:
                        import shlex

                        place = shlex.quote(source.within)
                        tools = tuple(insert_plugin_root(tool, place) for tool in text.allowed_tools)
                        text = replace(text, command=replace(text.command, plugin=source.plugin), allowed_tools=tools)
                    yield text
                else:
                    self._warn(f"{page.path} is ignored: its name must be one word.")

    def _read_config(self, written: ConfiguredCommands) -> Iterator[CommandText]:
        for name, value in written.entries.items():
            at = f"{written.path}: commands.{to_plain_line(name)}"
            fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {"body": value}
            texts = {key.replace("_", "-"): text for key, text in fields.items()}
            body: Any = texts.get("body")
            if not is_typable(name):
                self._warn(f"{at} is ignored: its name must be one word.")
            elif not all(isinstance(text, str) for text in texts.values()) or body is None:
                self._warn(f"{at} is ignored: it must be a string, or an object with body and description.")
            elif len(body) > MAX_BYTES:
                self._warn(f"{at} is ignored: it is {len(body):,} characters long; {MAX_BYTES:,} is the limit.")
            else:
                yield _make_text(name, texts, body.strip(), written.source, at)

    def _add(self, found: dict[str, CommandText], text: CommandText) -> None:
        name = text.command.name.casefold()
        plugin = text.command.plugin
        if plugin and (name in found or is_reserved(name)):
            text = replace(text, command=replace(text.command, name=f"{plugin}:{text.command.name}"))
            name = text.command.name.casefold()
        if is_reserved(name):
            self._warn(f"{text.path} is ignored: /{name} is a built-in command. Rename it.")
        elif not text.body:
            self._warn(f"{text.path} is ignored: the command /{name} is empty.")
        elif name not in found:
            found[name] = text
        elif not text.is_from_project and (first := found[name]).is_from_project:
            found[name] = replace(first, overridden_path=first.overridden_path or text.path)

    def _warn(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._pending_warnings.append(text)


def split_command(typed: str) -> tuple[str, str]:
    """Return the name a line starts with, without its slash, and the rest; "" if it starts with none."""
    line = typed.strip()
    if not line.startswith("/") or line[1:2].isspace():
        return "", ""
    word, *rest = line[1:].split(maxsplit=1) or [""]
    return word, rest[0] if rest else ""


def _make_text(name: str, values: Mapping[str, Any], body: str, source: CommandSource, path: str) -> CommandText:
    first = next((line.strip("# \t") for line in body.splitlines() if line.strip("# \t")), "")
    description = to_plain_line(format_value(values.get("description", "")) or first)
    hint = to_plain_line(format_value(values.get("argument-hint", "") or values.get("hint", "")))
    allowed: Any = values.get("allowed-tools", "")
    tools = cast("list[Any]", allowed) if isinstance(allowed, list) else split_names(str(allowed))
    return CommandText(
        CustomCommand(name, description, hint, source),
        to_valid_unicode(body),
        path,
        allowed_tools=tuple(to_valid_unicode(str(tool)) for tool in tools),
        ignored=tuple(to_plain_line(key) for key in values if key not in _KEYS),
    )
