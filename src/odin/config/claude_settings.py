"""Settings files of Claude Code: `.claude/settings.json` and `.claude/settings.local.json` of a project, and the user's
`~/.claude/settings.json`.

A file is parsed to values that `odinconfig.json` could hold, and `layers` adds them below that of the same scope. Keys
that Odin does not support are named. A file that cannot be read is reported, and the session goes on without it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from msgspec import Struct, field

from odin.config.files import NOT_READ, SECRET_NAME, ConfigProblem, parse_json_object, read_config_file
from odin.core.errors import ConfigError
from odin.core.format import clip_line
from odin.core.policy import HookPoint, RuleAction
from odin.core.text import SAID_ONCE
from odin.core.tool import ALIASES, get_canonical_name

_READ_KEYS = ["permissions", "hooks", "env", "disableAllHooks", "disabledMcpjsonServers", "statusLine", "outputStyle"]
_PERMISSION_KEYS = ("allow", "ask", "deny", "defaultMode", "disableBypassPermissionsMode", "additionalDirectories")
_SILENT_KEYS = ("$schema", "enableAllProjectMcpServers", "enabledMcpjsonServers")
"""Keys without an effect here: servers of a project start if the user trusts it."""

_ACTIONS: tuple[RuleAction, ...] = ("allow", "deny", "ask")
_PERMISSION_MODES = {
    "manual": "default",
    **{name: name for name in ("default", "acceptEdits", "auto", "dontAsk", "bypassPermissions")},
}
_FILE_TOOLS = ("Read", "EditTool", "MultiEditTool", "WriteFile", "AppendFile", "Delete", "Grep", "Glob", "LS")
_EVENTS = {*(name for name in get_args(HookPoint) if name[:3] != "on_"), "PostToolUseFailure", "Notification"}
_MAX_NAMED = 30
_MAX_NAME_CHARS = 80
_HOOK_TIMEOUT_S = 600
_STATUS_TIMEOUT_S = 10
_MAX_HOOK_TIMEOUT_S = 3600

_REFUSED_VARIABLES = (
    r"(?i)(?:PATH|HOME|SHELL|USER|LOGNAME|PWD|OLDPWD|IFS|ENV|BASH_ENV|BASHOPTS|SHELLOPTS|CDPATH|PS4|PROMPT_COMMAND"
    r"|TMPDIR|TE?MP|EDITOR|VISUAL|PAGER|LESSOPEN|BROWSER|VIRTUAL_ENV|_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS"
    r"|PYTHON(?:PATH|HOME|STARTUP|BREAKPOINT|USERBASE|EXECUTABLE|PLATLIBDIR|WARNINGS)|PERL\w*|RUBY\w*|BUNDLE_GEMFILE"
    r"|NODE_(?:OPTIONS|PATH|EXTRA_CA_CERTS|TLS_\w+)|REQUESTS_CA_BUNDLE|MAKEFLAGS|RUSTC\w*|CARGO_(?:BUILD|TARGET)_\w+"
    r"|(?:LD|DYLD|GIT|SSH|SSL|CURL|GEM|XDG|NPM_CONFIG|PIP|UV|DOCKER|ODIN|CLAUDE|ANTHROPIC|OPENAI|GEMINI|GOOGLE|AZURE)"
    r"_\w*|AWS_(?!REGION$|DEFAULT_REGION$)\w*|CLAUDECODE|\w*(?:_PROXY|_BASE_URL|_API_BASE|_ENDPOINT))"
)
"""Variables with which a program loads other code, connects elsewhere or uses other accounts, and those for agents."""


class ClaudeRule(Struct, frozen=True):
    """A permission rule as it is written there."""

    action: RuleAction
    text: str


class ClaudeSettings(Struct, frozen=True, kw_only=True):
    """What one file says.

    `is_users`: it is the user's own. `keys` are values for keys of `odinconfig.json`, `hooks` those for its key
    `hooks`, and `entries` the `rules` for its key `rules`; `values` is all that the file holds. `unsupported` names
    what has no effect, `problems` say what is wrong. `raw` are the bytes that were read.
    """

    path: str
    is_users: bool = False
    raw: bytes | None = None
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    keys: dict[str, Any] = field(default_factory=dict[str, Any])
    rules: tuple[ClaudeRule, ...] = ()
    entries: tuple[dict[str, str], ...] = ()
    hooks: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    env: dict[str, str] = field(default_factory=dict[str, str])
    disabled_servers: tuple[str, ...] = ()
    disables_hooks: bool = False
    disables_bypass: bool = False
    unsupported: tuple[str, ...] = ()
    problems: tuple[ConfigProblem, ...] = ()

    @property
    def warnings(self) -> tuple[ConfigProblem, ...]:
        if not self.unsupported:
            return self.problems
        shown, rest = self.unsupported[:_MAX_NAMED], len(self.unsupported) - _MAX_NAMED
        *most, last = (*(clip_line(name, _MAX_NAME_CHARS) for name in shown), *([f"{rest} more"] if rest > 0 else ()))
        names = f"{', '.join(most)} and {last} are" if most else f"{last} is"
        return (*self.problems, ConfigProblem(f"{names} not supported. {SAID_ONCE}", self.path))


def read_claude_settings(path: Path, root: str = "") -> ClaudeSettings:
    """Return what a file says, nothing if it does not exist. That of a project must lie in its folder `root`."""
    raw = None
    if root and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        why = f"{path} is a link that leads out of the project. Copy the file into it."
    else:
        try:
            raw = read_config_file(path)
            found = None if raw is None else parse_claude_settings(raw, path, is_users=not root)
            return found or ClaudeSettings(path=str(path), is_users=not root)
        except ConfigError as error:
            why = error.describe()
    text = f"{why} {NOT_READ} {SAID_ONCE}"
    return ClaudeSettings(path=str(path), is_users=not root, raw=raw, problems=(ConfigProblem(text),))


def parse_claude_settings(raw: bytes, path: Path, *, is_users: bool = False) -> ClaudeSettings:
    """Return what the text of a file says. Raise ConfigError if it is not one JSON object."""
    values, repeated = parse_json_object(raw, path)
    reader = _SettingsReader(path)
    for name in repeated:
        reader.report(f'"{name}" occurs twice in one object; the last one is used.')
    permissions = reader.get_object(values, "permissions")
    mode: str = reader.get(permissions, "defaultMode", str, "a text") or ""
    keys: dict[str, Any] = {"mode": "plan"} if mode == "plan" else {}
    if mode in _PERMISSION_MODES:
        keys["permission_mode"] = _PERMISSION_MODES[mode]
    elif mode not in ("", "plan"):
        reader.report(f"the defaultMode {mode!r} is unknown and ignored.")
    if style := reader.get(values, "outputStyle", str, "a text"):
        keys["output_style"] = style
    if folders := [text for text in reader.get_texts(permissions, "additionalDirectories") if text.strip()]:
        keys["additional_directories"] = folders
    hooks = reader.read_hooks(reader.get_object(values, "hooks"))
    if status := reader.get_object(values, "statusLine"):
        hooks["StatusLine"] = list(reader.read_hook({"timeout": _STATUS_TIMEOUT_S, **status}, {}))
    names = [f"{name!r}" for name in values if name not in (*_READ_KEYS, *_SILENT_KEYS)]
    names += [f"'permissions.{name}'" for name in permissions if name not in _PERMISSION_KEYS]
    return ClaudeSettings(
        path=str(path),
        is_users=is_users,
        raw=raw,
        values=values,
        keys=keys,
        rules=tuple(reader.read_rules(permissions)),
        hooks=hooks,
        env=reader.read_env(reader.get_object(values, "env")),
        disabled_servers=tuple(reader.get_texts(values, "disabledMcpjsonServers")),
        disables_hooks=values.get("disableAllHooks") is True,
        disables_bypass=permissions.get("disableBypassPermissionsMode") == "disable",
        unsupported=tuple(dict.fromkeys((*names, *reader.unsupported))),
        problems=tuple(reader.problems),
    )


class _SettingsReader:
    """Reads the parts of one file, and collects what is wrong and what is not supported."""

    def __init__(self, path: Path) -> None:
        self.problems: list[ConfigProblem] = []
        self.unsupported: list[str] = []
        self._path = str(path)

    def report(self, text: str) -> None:
        if ConfigProblem(text, self._path) not in self.problems:
            self.problems.append(ConfigProblem(text, self._path))

    def get(self, values: dict[str, Any], name: str, kind: type[Any], what: str) -> Any:
        """Return the value of a key; None if it is missing or, which is reported, of another type."""
        value = values.get(name)
        if value is None or isinstance(value, kind):
            return value
        self.report(f"{name} must be {what}; it is ignored.")
        return None

    def get_object(self, values: dict[str, Any], name: str) -> dict[str, Any]:
        return self.get(values, name, dict, "an object") or {}

    def get_texts(self, values: dict[str, Any], name: str) -> Iterator[str]:
        for item in self.get(values, name, list, "a list of texts") or ():
            if isinstance(item, str):
                yield item
            else:
                self.report(f"an entry of {name} is not a text; it is ignored.")

    def read_rules(self, permissions: dict[str, Any]) -> Iterator[ClaudeRule]:
        for action in _ACTIONS:
            for text in self.get_texts(permissions, action):
                tool = text.partition("(")[0].strip()
                known = get_canonical_name(tool) in ALIASES or tool == "NotebookEdit" or tool.startswith("mcp_")
                if known or not re.fullmatch(r"[A-Za-z]+", tool):
                    yield ClaudeRule(action, text)
                else:
                    self.unsupported.append(f"rules for {tool}")

    def read_hooks(self, given: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the programs, each with its matcher. What is malformed is left for `parse_hooks` to report."""
        found: dict[str, list[Any]] = {}
        for event, groups in given.items():
            if event not in _EVENTS:
                self.unsupported.append(f"the hook event {event!r}")
                continue
            for group in cast("list[Any]", groups if isinstance(groups, list) else [groups]):
                inner: Any = cast("dict[str, Any]", group).get("hooks") if isinstance(group, dict) else None
                for hook in cast("list[Any]", inner if isinstance(inner, list) else [group]):
                    found.setdefault(event, []).extend(self.read_hook(hook, group))
        return found

    def read_hook(self, hook: Any, group: Any) -> Iterator[Any]:
        if not isinstance(hook, dict) or hook is group:
            yield hook
            return
        program = cast("dict[str, Any]", hook)
        if program.get("type") != "command":
            self.unsupported.append(f"hooks of type {program.get('type')!r}")
        elif "if" in program:
            self.unsupported.append("hooks with 'if', which do not run")
        else:
            args, timeout = program.get("args"), program.get("timeout", _HOOK_TIMEOUT_S)
            command = program.get("command", "")
            yield {
                "matcher": cast("dict[str, Any]", group).get("matcher") or "",
                "command": [command, *cast("list[Any]", args)] if isinstance(args, list) else command,
                "timeout": min(timeout, _MAX_HOOK_TIMEOUT_S) if isinstance(timeout, int | float) else timeout,
                **({"join": "background"} if program.get("async") is True else {}),
            }

    def read_env(self, given: dict[str, Any]) -> dict[str, str]:
        taken = {
            name: value
            for name, value in given.items()
            if isinstance(value, str) and "\0" not in value and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
            if not re.fullmatch(_REFUSED_VARIABLES, name) and not re.search(SECRET_NAME, name)
        }
        self.unsupported += [f"the variable {name!r}" for name in given if name not in taken]
        return taken


# --- rules ---


def convert_rules(settings: ClaudeSettings, root: str, cwd: str, home: str) -> tuple[dict[str, str], ...]:
    """Return the permission rules of a file as entries of `rules` in `odinconfig.json`; `text` is a rule as written.

    There `/x` is a path from the project or, in the user's file, from its folder, and other paths are relative to the
    working directory. A folder that a deny or ask rule names stands for what is in it, too; such a rule also counts
    from the root of the project if the working directory is another one.
    """
    folder = os.path.relpath(cwd, root)
    found: list[dict[str, str]] = []
    for rule in settings.rules:
        starts = [folder] if rule.action == "allow" or folder == "." else [folder, "."]
        texts = (text for at in starts for text in _convert_rule(rule, root, at, home, is_users=settings.is_users))
        for text in dict.fromkeys(texts):
            written = text if text.startswith("Delegate") else rule.text.strip()
            found.append({"rule": text, "action": rule.action, "text": written})
    return tuple(found)


def _convert_rule(rule: ClaudeRule, root: str, folder: str, home: str, *, is_users: bool) -> Sequence[str]:
    tool, mark, rest = rule.text.strip().partition("(")
    pattern = rest.removesuffix(")").strip()
    name = get_canonical_name(tool.strip())
    if name == "NotebookEdit":
        if not mark:
            return ("Edit(*.ipynb)",)
        name, tool = "EditTool", "Edit"
    if name == "AgentTool":  # both tools start sub-agents
        kind = f"({'general' if pattern == 'general-purpose' else pattern})" if pattern else ""
        return f"Agent{kind}", f"Delegate{kind}"
    if not mark or not rest.endswith(")"):
        return (rule.text,)
    if name in _FILE_TOOLS:
        pattern = _convert_path(pattern, root, folder, is_users=is_users)
        if rule.action != "allow":
            if _may_be_folder(pattern, root, home):
                pattern = f"{pattern.rstrip('/')}/**"
            loose = re.sub(r"\[[^]/]+\]", "?", pattern)  # one of these characters there
            return f"{tool}({pattern})", f"{tool}({loose})"
    elif name == "ExecuteCommand":
        if re.search(r"[^\s:*]\*$", pattern):
            pattern += ":*"  # more words may follow there
        if rule.action != "allow":  # and precede
            pattern = re.sub(r"(?<!\S)\*(?=[^\s*])", "* *", pattern).replace("* *-", "* -")
    elif name == "Skill":
        pattern = re.sub(r"(?::| )\*$", "", pattern)
    return (f"{tool}({pattern})",)


def _convert_path(pattern: str, root: str, folder: str, *, is_users: bool) -> str:
    if pattern.startswith(("//", "~")) or pattern in ("", "*", "**"):
        return pattern
    if pattern.startswith("/"):
        return f"~/.claude{pattern}" if is_users else f".{pattern}"
    if "/" not in pattern.rstrip("/"):  # in any folder
        if folder == "." and not pattern.endswith("/"):
            return pattern
        pattern = f"**/{pattern}"
    inner = os.path.normpath(f"{folder}/{pattern}") + ("/" if pattern.endswith("/") else "")
    return f"/{os.path.normpath(f'{root}/{inner}')}" if inner.startswith("..") else f"./{inner}"


def _may_be_folder(pattern: str, root: str, home: str) -> bool:
    if "/" not in pattern or pattern.endswith("**"):
        return False
    if "*" in pattern or "?" in pattern:  # names with an ending are those of files
        return "." not in pattern.rstrip("/").rpartition("/")[2][1:]
    place = f"{home}{pattern[1:]}" if pattern.startswith("~/") else pattern.removeprefix("/")
    return os.path.isdir(os.path.join(root, place))  # noqa: PTH112, PTH118
