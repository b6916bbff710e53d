"""Claude Code. Odin reads the files of `.claude` where they are; servers and sessions are elsewhere."""

import re
from typing import Any

from odin.commands.setups.item import (
    SIGN_IN,
    SetupFolders,
    SetupItem,
    add_files,
    as_object,
    list_newest,
    make_sessions,
    read_settings,
)
from odin.config.mcp_file import rewrite_texts

_LOCAL = "Claude Code uses it in this project only, Odin would everywhere."


def read_claude(setup: SetupFolders) -> list[SetupItem]:
    items: list[SetupItem] = []
    folder = setup.find_folder("CLAUDE_CONFIG_DIR", ".claude")
    state_file = setup.find_folder("CLAUDE_CONFIG_DIR", "", ".claude.json")
    state = read_settings(state_file, items)
    project = as_object(as_object(state.get("projects")).get(str(setup.root)))
    for servers, note in ((state, ""), (project, _LOCAL)):
        for name, value in as_object(servers.get("mcpServers")).items():
            server = _convert_server(as_object(value))
            items.append(SetupItem("MCP server", name, state_file, server, note, suggested=not note))
    if isinstance(key := state.get("primaryApiKey"), str):
        items.append(SetupItem("key", "anthropic", state_file, key))
    add_files("key", items, folder / ".credentials.json", note=SIGN_IN)
    for place in dict.fromkeys((folder, setup.root / ".claude")):
        names = ("settings.json", "settings.local.json", "skills")
        add_files("settings", items, *(place / name for name in names))
        add_files("agent", items, place / "agents")
        add_files("command", items, place / "commands")
        add_files("instructions", items, place / "CLAUDE.md", place / "rules")
    names = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")
    add_files("instructions", items, *(setup.root / name for name in names))
    add_files("MCP server", items, setup.root / ".mcp.json")
    transcripts = folder / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(setup.root))
    items += make_sessions(list_newest(transcripts, "*.jsonl"), rb"^([0-9a-f-]{36})\.jsonl")
    return items


def _convert_server(given: dict[str, Any]) -> dict[str, Any]:
    names = ("command", "args", "env", "url", "headers", *(["type"] if given.get("type") == "sse" else []))
    # only `${NAME}` is a variable there
    return {name: rewrite_texts(given[name], r"\$(?!\{)", "$$") for name in names if given.get(name)}
