"""Reads agent files: Markdown with YAML front matter, whose text is the agent's prompt.

Files come from `agents` in the user's configuration folder, from `~/.claude/agents`, and from `.odin/agents` and
`.claude/agents` of a trusted project. A later folder replaces agents of an earlier one with the same name; a file that
is named like a built-in agent changes only what it sets. Files of Claude Code work unchanged: keys and tools that Odin
does not have are left out.

A mistake never fails: it is reported with file and line. A value that restricts the agent (its tools, rules, mode or
scope) and cannot be read makes Odin ignore the file; any other one is left out.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, cast, get_args

import msgspec
from msgspec import Struct

from odin.context.agent_definition import (
    BUILTIN_AGENTS,
    SERVER_TOOLS,
    AgentCatalog,
    AgentDefinition,
    AgentProblem,
    AgentSource,
    Isolation,
    find_in_project,
)
from odin.context.markdown_folder import (
    FrontMatter,
    MarkdownFile,
    MarkdownFolder,
    insert_plugin_root,
    split_names,
    to_plain_line,
)
from odin.core.team import DelegationLimits
from odin.core.text import list_choices, suggest_similar, to_valid_unicode
from odin.core.tool import ALIASES, get_canonical_name, get_display_name

AGENT_SUFFIXES = (".md", ".yaml", ".yml")
COLORS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")

CheckRules = Callable[[Any], Iterable[tuple[str, str]]]
"""Returns where in a value of `rules` an entry is wrong (`rules.Bash`) and why."""

_OTHER_KEYS = {
    "denied_tools": "disallowed-tools disallowedtools",
    "pools": "pools model-pools",
    "use": "mode type",
    "rules": "rules permission permissions",
    "permission_mode": "permission-mode permissionmode",
    "read_only": "read-only readonly",
    "write_scope": "write-scope",
    "idle_s": "idle-time",
    "max_turns": "max-turns maxturns",
    "servers": "mcpservers mcp-servers",
}
_SAME_KEYS = "name description tools model isolation color cwd venv instructions skills delegation prompt"
_KEYS = {key: field for field, keys in _OTHER_KEYS.items() for key in keys.split()} | {
    key: key for key in _SAME_KEYS.split()
}
"""Keys of an agent file and the fields they set. `prompt` is for `--agents`; in a file the text below is the prompt."""

_CLAUDE_KEYS = frozenset(("hooks", "memory", "background", "effort", "initialprompt"))
"""Keys of Claude Code that have no effect here."""

_CLAUDE_TOOLS = frozenset(
    name.casefold()
    for name in (
        *("NotebookEdit", "TodoRead", "ExitPlanMode", "EnterPlanMode", "SlashCommand", "LSP", "Monitor"),
        *("EnterWorktree", "ExitWorktree"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "SendMessage", "PowerShell"),
        *("CronCreate", "CronDelete", "CronList"),
    )
)
"""Tools of Claude Code that Odin does not have."""

_TEXT_FIELDS = frozenset(("name", "description", "model", "color", "tools", "denied_tools", "prompt", "skills"))
"""Fields whose value is read as plain text if it is not valid YAML."""

_BUILTIN_NAMES = frozenset(definition.name for definition in BUILTIN_AGENTS)
_PERMISSION_MODES = ("default", "acceptEdits", "auto", "plan", "dontAsk", "bypassPermissions")
_CHOICES: dict[str, Mapping[str, Any]] = {
    "use": {"main": "main", "primary": "main", "subagent": "subagent", "all": "all"},
    "isolation": {name: name for name in get_args(Isolation)},
    "permission_mode": {name.casefold(): name for name in _PERMISSION_MODES},
    "read_only": {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False},
}
_DELEGATION_KEYS = DelegationLimits.__struct_fields__
_NAME = r"\w[\w.-]{0,63}"
_HEX_COLOR = r"#[0-9a-fA-F]{6}"
_TOOL = r"\s*([\w*?.:-]+)\s*(\(.*\))?\s*"


class AgentFolder(Struct, frozen=True):
    """A folder of agent files. With `within`, anything that leads outside that folder is skipped.

    With `only`, no other files count.
    """

    folder: str
    source: AgentSource
    within: str = ""
    only: tuple[str, ...] = ()


def load_agent_catalog(
    folders: Iterable[AgentFolder] = (),
    *,
    given: str = "",
    known_tools: Collection[str] = (),
    known_pools: Collection[str] = (),
    check_rules: CheckRules = lambda rules: (),
) -> AgentCatalog:
    """Return the built-in agents, those of the folders, weakest first, and those of `--agents` in JSON (`given`)."""
    reader = _AgentReader(_KnownNames(frozenset((*ALIASES, *known_tools)), tuple(known_pools)), check_rules)
    for folder in folders:
        reader.read_folder(folder)
    if given:
        reader.read_json(given)
    return AgentCatalog(reader.definitions.values(), reader.problems)


class _KnownNames(Struct, frozen=True):
    """What definitions may name: tools, and the configured model pools."""

    tools: frozenset[str]
    pools: tuple[str, ...]


class _WrongValue(Exception):
    """A value that cannot be used. With `fatal` the whole definition is ignored. `at`: where it is inside its key."""

    def __init__(self, text: str, *, fatal: bool = False) -> None:
        super().__init__(text)
        self.fatal = fatal
        self.at = ""


class _AgentReader:
    """Collects definitions by name, and what is wrong with the files."""

    def __init__(self, known: _KnownNames, check_rules: CheckRules) -> None:
        self.definitions = {definition.name: definition for definition in BUILTIN_AGENTS}
        self.problems: list[AgentProblem] = []
        self._known = known
        self._check_rules = check_rules

    def read_folder(self, folder: AgentFolder) -> None:
        seen: dict[str, MarkdownFile] = {}

        def warn(text: str) -> None:
            self.problems.append(AgentProblem(folder.folder, 0, text))

        for page in MarkdownFolder(folder.folder, folder.within, AGENT_SUFFIXES).read_files(warn):
            if folder.only and page.file not in folder.only:
                continue
            for definition in self._read_page(page, folder):
                first = seen.setdefault(definition.name.casefold(), page)
                if first is page:
                    self._add(definition)
                else:
                    text = f"The name {definition.name} is already used in {first.path}. This file is ignored."
                    self.problems.append(AgentProblem(page.path, page.front.lines.get("name", 1), text))

    def _read_page(self, page: MarkdownFile, folder: AgentFolder) -> Iterator[AgentDefinition]:
        """Yield the definition of a file, if it has one."""
        front, stem = page.front, PurePosixPath(page.name).name
        if not front.values and not front.errors:
            if stem.casefold() != "readme":
                text = "It has no front matter: an agent file starts with --- and ends its settings with ---."
                self.problems.append(AgentProblem(page.path, 1, text))
            return
        for line, text in front.errors:
            self.problems.append(AgentProblem(page.path, line, text))
        fields = _FieldReader(front, page.path, self._known, self._check_rules)
        if "prompt" in front.values:
            fields.report("prompt", "prompt is ignored: the text below the front matter is the prompt.")
        prompt = insert_plugin_root(front.body, folder.within) if folder.source == "plugin" else front.body
        values = {"name": stem, **front.values, "prompt": prompt}
        found = fields.read(values)
        if found is not None and folder.source != "plugin" and found["name"].casefold() != stem.casefold():
            fields.report("name", f"The file is called {stem}, and its agent {found['name']}. Give both the same name.")
        if found is not None and folder.source == "plugin" and found["name"].casefold() in _BUILTIN_NAMES:
            fields.report("name", f"{found['name']} is built in: a plugin cannot change it. This agent is ignored.")
            found = None
        if found is not None and "servers" in found:
            fields.check_servers(found, folder.source)
        if folder.within and folder.source == "project" and found is not None:
            # Report files and folders that the project does not have. They may be made later, so the fields stay.
            needed = (
                *((key, path) for key in ("cwd", "venv") if (path := found.get(key))),
                *(("instructions", path) for path in found.get("instructions", ())),
            )
            for key, path in needed:
                place = find_in_project(folder.within, f"{path}/bin" if key == "venv" else path)
                if not place or os.path.isfile(place) != (key == "instructions"):  # noqa: PTH113
                    kind = {"cwd": "folder", "venv": "virtual environment", "instructions": "file"}[key]
                    fields.report(key, f"{key}: the project has no {kind} {to_plain_line(path)!r}.")
        yield from self._finish(found, fields, folder.source, page.path, front.body_line)

    def read_json(self, text: str) -> None:
        """Read `--agents`: a JSON object of definitions by name."""
        where = "--agents"
        try:
            given: Any = msgspec.json.decode(text.encode("utf-8", "replace"))
        except msgspec.DecodeError as error:
            self.problems.append(AgentProblem(where, 0, f"It is not valid JSON: {error}."))
            return
        if not isinstance(given, dict):
            self.problems.append(AgentProblem(where, 0, "It must be an object: name → description, prompt, tools."))
            return
        for name, value in cast("dict[str, Any]", given).items():
            at = f"{where} {to_plain_line(name)}"
            if not isinstance(value, dict):
                self.problems.append(AgentProblem(at, 0, "It must be an object with description and prompt."))
                continue
            written = cast("dict[str, Any]", value)
            values = {key.casefold().replace("_", "-"): item for key, item in written.items()}
            fields = _FieldReader(FrontMatter(values), at, self._known, self._check_rules)
            for definition in self._finish(fields.read({**values, "name": name}), fields, "flag", "", 0):
                self._add(definition)

    def _finish(
        self, found: dict[str, Any] | None, fields: "_FieldReader", source: AgentSource, path: str, line: int
    ) -> Iterator[AgentDefinition]:
        """Yield the definition with these fields, unless it cannot be used."""
        self.problems += fields.problems
        if found is None:
            return
        base = next((item for item in BUILTIN_AGENTS if item.name == found["name"].casefold()), None)
        prompt = found.pop("prompt", "")
        if prompt:
            found["prompt"] = prompt
        elif base is None:
            self.problems.append(AgentProblem(fields.path, line, "The prompt is empty. This agent is ignored."))
            return
        found.setdefault("description", "" if base else _get_first_line(prompt))
        if base is not None:
            kept = {name: value for name, value in found.items() if value != "" or name == "model"}
            yield msgspec.structs.replace(base, **kept, source=source, path=path)
        else:
            yield AgentDefinition(**found, source=source, path=path)

    def _add(self, definition: AgentDefinition) -> None:
        key = next((key for key in self.definitions if key.casefold() == definition.name.casefold()), definition.name)
        self.definitions[key] = definition


def _get_first_line(text: str) -> str:
    return next((to_plain_line(line.strip("# \t")) for line in text.splitlines() if line.strip("# \t")), "")


class _FieldReader:
    """Turns the values of one definition into fields."""

    def __init__(self, front: FrontMatter, path: str, known: _KnownNames, check_rules: CheckRules) -> None:
        self.path = path
        self.problems: list[AgentProblem] = []
        self._front = front
        self._known = known
        self._check_rules = check_rules

    def report(self, at: str, text: str) -> None:
        self.problems.append(AgentProblem(self.path, self._find_line(at), text))

    def _find_line(self, at: str) -> int:
        """Return the line of a value, or of the nearest one around it."""
        while at and at not in self._front.lines:
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        return self._front.lines.get(at, 0)

    def read(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the fields, or None if the definition cannot be used."""
        found: dict[str, Any] = {}
        usable = True
        for key, value in values.items():
            name = _KEYS.get(key, "")
            if not name:
                if key not in _CLAUDE_KEYS:
                    self.report(key, f"Unknown key {to_plain_line(key)!r} is ignored.{suggest_similar(key, _KEYS)}")
                continue
            if value in ("", None) and name != "prompt":
                continue
            try:
                found[name] = self._read_field(key, name, value)
            except _WrongValue as error:
                end = "This agent is ignored." if error.fatal else f"{key} is ignored."
                self.report(error.at or key, f"{error} {end}")
                usable = usable and not error.fatal
        if found.get("permission_mode") == "plan":
            found |= {"read_only": True, "permission_mode": "default"}
        return found if usable and "name" in found else None

    def check_servers(self, found: dict[str, Any], source: AgentSource) -> None:
        """Leave out MCP servers where they have no effect. A plugin starts only programs that it was trusted with."""
        key = "mcpservers" if "mcpservers" in self._front.values else "mcp-servers"
        servers = cast("dict[str, Any]", found["servers"])
        own = [name for name, settings in servers.items() if settings is not None]
        if found.get("use") == "main":
            self.report(key, "mcpServers is ignored: only sub-agents have servers of their own.")
            found["servers"] = {}
        elif own and source == "plugin":
            shown = to_plain_line(own[0])
            self.report(key, f"The MCP server {shown!r} is ignored: write it into the plugin's .mcp.json.")
            found["servers"] = {name: None for name in servers if name not in own}

    def _read_field(self, key: str, name: str, value: Any) -> Any:
        if key in self._front.as_text and name not in _TEXT_FIELDS:
            raise _WrongValue(f"{key} is not valid YAML: {self._front.as_text[key]}.", fatal=True)
        match name:
            case "name":
                return self._read_name(value)
            case "description" | "prompt" | "model" | "color":
                return self._read_text(key, name, value)
            case "tools" | "denied_tools":
                tools = self._read_tools(key, value)
                return () if tools is None and name == "denied_tools" else tools
            case "rules":
                return self._read_rules(key, value)
            case "write_scope" | "instructions":
                fatal = name == "write_scope"
                paths = _read_strings(key, value, "paths", fatal=fatal)
                return tuple(_read_path(key, path, fatal=fatal) for path in paths)
            case "skills" | "servers":
                return {"skills": _read_skills, "servers": _read_servers}[name](key, value)
            case "pools":
                return self._read_pools(key, value)
            case "cwd" | "venv":
                return _read_path(key, value)
            case "delegation":
                return self._read_delegation(key, value)
            case "idle_s" | "max_turns":
                is_count = name == "max_turns"
                return _read_number(key, value, int if is_count else float, "requests" if is_count else "seconds")
            case _:
                return _choose(key, value, _CHOICES[name])

    def _read_name(self, value: Any) -> str:
        if isinstance(value, str) and re.fullmatch(_NAME, value.strip()):
            return value.strip()
        shown = to_plain_line(str(value))
        raise _WrongValue(f"{shown!r} is not a name: use letters, digits, hyphens and dots.", fatal=True)

    def _read_text(self, key: str, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise _WrongValue(f"{key} must be a text.")
        text = to_valid_unicode(value).strip()
        if name == "description":
            return " ".join(text.replace("\\n", " ").split())
        if name == "model":
            return "" if text == "inherit" else text
        if name == "color" and text.casefold() not in (*COLORS, "automatic") and not re.fullmatch(_HEX_COLOR, text):
            raise _WrongValue(f"Unknown color {to_plain_line(text)!r}. Use {list_choices(COLORS)}, or #rrggbb.")
        return ("" if text.casefold() == "automatic" else text.casefold()) if name == "color" else text

    def _read_tools(self, key: str, value: Any) -> tuple[str, ...] | None:
        """Return the names of tools; None for all tools. Unknown tools are left out."""
        names: list[str] = []
        for number, item in enumerate(_read_strings(key, value, "tools, such as Read, Grep")):
            if item.strip() == "*":
                return None
            at = f"{key}[{number}]"
            match = re.fullmatch(_TOOL, item)
            name = get_canonical_name(match[1]) if match else ""
            if name in self._known.tools:
                if match and match[2] and name != "AgentTool":
                    pattern = to_plain_line(item)
                    self.report(at, f"{pattern} is ignored: a tool has no pattern here. Use rules for that.")
                else:
                    names.append(name)
            elif name.startswith("mcp__") or name in SERVER_TOOLS:
                names.append(name)
            elif name.casefold() not in _CLAUDE_TOOLS:
                hint = suggest_similar(item, (*self._known.tools, *map(get_display_name, self._known.tools)))
                self.report(at, f"Unknown tool {to_plain_line(item)!r} is ignored.{hint}")
        return tuple(dict.fromkeys(names))

    def _read_pools(self, key: str, value: Any) -> tuple[str, ...]:
        """Return the model pools. Unknown ones are left out; if there is no other, the agent is unusable."""
        names = dict.fromkeys(item.strip() for item in _read_strings(key, value, "model pools"))
        for name in [name for name in names if name not in self._known.pools]:
            problem = f"There is no model pool {to_plain_line(name)!r}.{suggest_similar(name, self._known.pools)}"
            del names[name]
            if not names:
                raise _WrongValue(problem, fatal=True)
            self.report(key, problem)
        return tuple(names)

    def _read_rules(self, key: str, value: Any) -> Any:
        rules = {"*": value} if value in ("allow", "ask", "deny") else value
        if not isinstance(rules, list | dict):
            raise _WrongValue(f"{key} must be allow, ask or deny, or a list or mapping of rules.", fatal=True)
        for place, text in self._check_rules(rules):
            at = place.replace("rules", key, 1)
            self.report(at, f"{at} {text}")
        return cast("Any", rules)

    def _read_delegation(self, key: str, value: Any) -> dict[str, int | bool]:
        """Return the limits. A limit that cannot be read makes the agent unusable, because it restricts it."""
        if not isinstance(value, dict):
            raise _WrongValue(f"{key} must be a mapping of {list_choices(_DELEGATION_KEYS)}.", fatal=True)
        found: dict[str, int | bool] = {}
        for written, item in cast("dict[str, Any]", value).items():
            at, name = f"{key}.{written}", str(written).replace("-", "_")
            if name not in _DELEGATION_KEYS:
                hint = suggest_similar(name, _DELEGATION_KEYS)
                self.report(at, f"Unknown key {to_plain_line(at)!r} is ignored.{hint}")
                continue
            try:
                if name == "child_join":
                    found[name] = _choose(at, item, _CHOICES["read_only"])
                else:
                    found[name] = int(_read_number(at, item, int, "tasks" if name == "max_children" else "levels"))
            except _WrongValue as error:
                error.at = at
                raise
        return found


def _choose(key: str, value: Any, choices: Mapping[str, Any]) -> Any:
    found = choices.get(str(value).strip().casefold())
    if found is None:
        names = list(
            dict.fromkeys(str(choice).lower() if isinstance(choice, bool) else choice for choice in choices.values())
        )
        shown = to_plain_line(str(value))
        raise _WrongValue(f"Unknown value {shown!r} for {key}. Use {list_choices(names)}.", fatal=True)
    return found


def _read_path(key: str, value: Any, *, fatal: bool = False) -> str:
    """Return a path relative to the project."""
    path = PurePosixPath(value) if isinstance(value, str) else PurePosixPath("/")
    if path.is_absolute() or ".." in path.parts or str(value).startswith("~") or not str(value).strip():
        raise _WrongValue(f"{key}: {to_plain_line(str(value))!r} is not a path inside the project.", fatal=fatal)
    return to_valid_unicode(str(path))


def _read_strings(key: str, value: Any, what: str, *, fatal: bool = True) -> list[str]:
    """Return a list of texts, which may be written as one text with commas."""
    items = split_names(value) if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in cast("list[Any]", items)):
        raise _WrongValue(f"{key} must be a list of {what}.", fatal=fatal)
    return cast("list[str]", items)


def _read_skills(key: str, value: Any) -> tuple[str, ...]:
    """Return the names of skills; `none` is an empty list."""
    items = _read_strings(key, value, "skills", fatal=False)
    names = tuple(dict.fromkeys(to_valid_unicode(item.strip()) for item in items))
    return () if names == ("none",) else names


def _read_servers(key: str, value: Any) -> dict[str, Any]:
    """Return the settings of MCP servers by name, None for a server of the session.

    They are a list of names and of mappings, as in Claude Code, or one mapping, as in `.mcp.json`.
    """
    items = cast("list[Any]", value if isinstance(value, list) else [value])
    found: dict[str, Any] = {}
    for item in split_names(value) if isinstance(value, str) else items:
        named: Any = {item.strip(): None} if isinstance(item, str) else item
        entries = list(cast("dict[str, Any]", named).items()) if isinstance(named, dict) else [("", "wrong")]
        for name, settings in entries:
            if settings and not isinstance(settings, dict):
                raise _WrongValue(f"{key} must be a list of MCP servers: names, or a name with its settings.")
            found[to_valid_unicode(name)] = settings or None
    return found


def _read_number(key: str, value: Any, kind: type[int] | type[float], unit: str) -> int | float:
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = -1
    if isinstance(value, bool) or not 0 <= number < 1_000_000:
        is_limit = unit not in ("requests", "seconds")
        raise _WrongValue(f"{key} must be a number of {unit}, not {value!r}.", fatal=is_limit)
    return number
