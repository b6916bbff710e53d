"""Claude Code. Odin reads the files of `.claude` where they are; servers, commands of the user and sessions are not."""

import re
from typing import Any

from odin.commands.setups.item import (
    SIGN_IN,
    SetupFolders,
    SetupItem,
    add_used,
    as_object,
    list_newest,
    make_sessions,
    read_folder,
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
    if (tokens := folder / ".credentials.json").exists():
        items.append(SetupItem("key", "sign-in", tokens, note=SIGN_IN))
    read_folder("command", folder / "commands", ".md", setup, items)
    add_used("command", items, setup.root / ".claude/commands")
    for place in dict.fromkeys((folder, setup.root / ".claude")):
        add_used("settings", items, place / "settings.json", place / "settings.local.json", place / "skills")
        add_used("agent", items, place / "agents")
    add_used("MCP server", items, setup.root / ".mcp.json")
    guides = (setup.root / name for name in ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md"))
    add_used("instructions", items, folder / "CLAUDE.md", *guides)
    transcripts = folder / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(setup.root))
    items += make_sessions(list_newest(transcripts, "*.jsonl"), rb"^([0-9a-f-]{36})\.jsonl")
    return items


def _convert_server(given: dict[str, Any]) -> dict[str, Any]:
    names = ("command", "args", "env", "url", "headers", *(["type"] if given.get("type") == "sse" else []))
    # only `${NAME}` is a variable there
    return {name: rewrite_texts(given[name], r"\$(?!\{)", "$$") for name in names if given.get(name)}
