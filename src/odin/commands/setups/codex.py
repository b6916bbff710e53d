"""Codex: `~/.codex`, and `.codex` of the project."""

import ast
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

from odin.commands.setups.item import (
    SIGN_IN,
    SKILLS,
    SetupFolders,
    SetupItem,
    add_files,
    add_instructions,
    as_object,
    as_texts,
    list_newest,
    make_rule,
    make_sessions,
    read_folder,
    read_settings,
    read_text,
)
from odin.config.mcp_file import rewrite_texts

_NOT_IMPORTED = {
    "approval_policy": "Odin asks by permission rules and --permission-mode.",
    "sandbox_mode": "Odin's sandbox is on; `odin doctor` shows it.",
    "notify": "Write a hook for on_stop or Notification.",
    "profiles": "Use --model, or model_pools in odinconfig.json.",
    "agents": "Write an agent file.",
}
"""Settings that are named, and what Odin has instead."""

_DECISIONS = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
_MAX_SCANNED = 300
"""Transcripts whose first line is read: those of all projects are in one folder."""


def read_codex(setup: SetupFolders) -> list[SetupItem]:
    items: list[SetupItem] = []
    folder = setup.find_folder("CODEX_HOME", ".codex")
    for place in dict.fromkeys((folder, setup.root / ".codex")):
        _read_config(place / "config.toml", items)
        _add_hooks(read_settings(place / "hooks.json", items), place / "hooks.json", items)
        for path in sorted(place.glob("rules/*.rules")):
            _read_rules(path, items)
    add_instructions(folder / "AGENTS.md", items)
    read_folder("command", folder / "prompts", ".md", setup, items)
    add_files("settings", items, *sorted(folder.glob("skills/[!.]*")), note=SKILLS)
    auth = folder / "auth.json"
    found = read_settings(auth, items)
    if isinstance(key := found.get("OPENAI_API_KEY"), str):
        items.append(SetupItem("key", "openai", auth, key))
    elif found:
        items.append(SetupItem("key", "sign-in", auth, note=SIGN_IN))
    transcripts = _list_transcripts(folder / "sessions", str(setup.root))
    items += make_sessions(transcripts, rb"^rollout-.*?([0-9a-f]{8}-[0-9a-f-]{27})\.jsonl")
    return items


def _read_config(path: Path, items: list[SetupItem]) -> None:
    config = read_settings(path, items)
    for name, value in as_object(config.get("mcp_servers")).items():
        items.append(SetupItem("MCP server", name, path, _convert_server(as_object(value))))
    for name, value in as_object(config.get("model_providers")).items():
        given = as_object(value)
        wire = "openai-chat" if given.get("wire_api") == "chat" else "openai-responses"
        settings = {"type": wire, "base_url": given.get("base_url")}
        settings |= {"headers": headers} if (headers := _collect_headers(given)) else {}
        settings |= {"api_key": f"${given['env_key']}"} if given.get("env_key") else {}
        items.append(SetupItem("provider", name, path, settings))
    if isinstance(model := config.get("model"), str):
        ref = f"{config.get('model_provider', 'openai')}/{model}"
        items.append(SetupItem("model", ref, path, ref))
    _add_hooks(config, path, items)
    items += [SetupItem("settings", name, path, note=note) for name, note in _NOT_IMPORTED.items() if name in config]


def _convert_server(given: dict[str, Any]) -> dict[str, Any]:
    names = {name: name for name in ("command", "args", "env", "cwd", "url")}
    names |= {"enabled_tools": "allowed_tools", "tool_timeout_sec": "timeout_s"}
    # nothing is a variable there
    server = {ours: rewrite_texts(given[name], r"\$", "$$") for name, ours in names.items() if name in given}
    if variables := as_texts(given.get("env_vars")):
        server["env"] = {name: f"${name}" for name in variables} | as_object(server.get("env"))
    headers = _collect_headers(given)
    if isinstance(token := given.get("bearer_token_env_var"), str):
        headers["Authorization"] = f"Bearer ${token}"
    server |= {"headers": headers} if headers else {}
    return server | ({"manual": True} if given.get("enabled") is False else {})


def _collect_headers(given: dict[str, Any]) -> dict[str, Any]:
    headers = as_object(rewrite_texts(given.get("http_headers"), r"\$", "$$"))
    return headers | {name: f"${variable}" for name, variable in as_object(given.get("env_http_headers")).items()}


def _add_hooks(config: dict[str, Any], path: Path, items: list[SetupItem]) -> None:
    """Add the hooks, which have Claude Code's format. Codex runs only those that the user has reviewed, see `state`."""
    note = "It runs programs: read the file first."
    hooks = as_object(config.get("hooks")).items()
    items += [SetupItem("hook", name, path, value, note, suggested=False) for name, value in hooks if name != "state"]


def _read_rules(path: Path, items: list[SetupItem]) -> None:
    """Add the rules of a file, which is read as Python: `prefix_rule(pattern=["git", "pull"], decision="allow")`."""
    try:
        statements = ast.parse(read_text("rule", path, items)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        items.append(SetupItem("rule", path.name, path, note=f"It cannot be read: {error}."))
        return
    for node in statements:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            continue
        try:
            given = {word.arg: ast.literal_eval(word.value) for word in node.value.keywords}
        except (ValueError, TypeError, RecursionError, MemoryError):
            given = {}
        pattern = given.get("pattern")
        words = [str(word) for word in cast("list[Any]", pattern)] if isinstance(pattern, list) else []
        if words and all(re.fullmatch(r"[\w./:@=+,-]+", word) for word in words):
            action = _DECISIONS.get(str(given.get("decision", "allow")), "")
            items.append(make_rule("Bash", f"{' '.join(words)}:*", action, path))
        else:
            items.append(SetupItem("rule", f"line {node.lineno}", path, note="It is not a list of plain words."))


def _list_transcripts(folder: Path, root: str) -> Iterator[Path]:
    """Yield the transcripts of the project, newest first."""
    for path in islice(list_newest(folder, "*/*/*/rollout-*.jsonl"), _MAX_SCANNED):
        with path.open("rb") as file:
            found = re.search(rb'"cwd":\s*"((?:\\.|[^"\\])*)"', file.readline(1_000_000))
        cwd = found[1].decode("utf-8", "replace") if found else ""
        if cwd == root or cwd.startswith(f"{root}/"):
            yield path
