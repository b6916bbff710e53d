"""Gemini CLI: `~/.gemini`, and `.gemini` of the project."""

import re
from pathlib import Path
from typing import Any

from odin.commands.setups.item import (
    SIGN_IN,
    SKILLS,
    SetupFolders,
    SetupItem,
    add_files,
    add_instructions,
    as_object,
    as_texts,
    format_markdown,
    list_newest,
    make_rule,
    make_sessions,
    read_folder,
    read_settings,
    read_text,
)
from odin.config.mcp_file import rewrite_texts

_KEY_LINE = r"(?m)^\s*(?:export\s+)?(?:GEMINI|GOOGLE)_API_KEY\s*=\s*[\"']?([^\s\"'#]+)"


def read_gemini(setup: SetupFolders) -> list[SetupItem]:
    items: list[SetupItem] = []
    folder = setup.home / ".gemini"
    for place in dict.fromkeys((folder, setup.root / ".gemini")):
        _read_settings_file(place / "settings.json", items)
        commands: list[SetupItem] = []
        read_folder("command", place / "commands", ".toml", setup, commands)
        items += [_convert_command(item, items) for item in commands]
    add_instructions(folder / "GEMINI.md", items)
    add_files("instructions", items, setup.root / "GEMINI.md", note="Write `@GEMINI.md` into an AGENTS.md.")
    if found := re.search(_KEY_LINE, read_text("key", folder / ".env", items)):
        items.append(SetupItem("key", "google", folder / ".env", found[1]))
    add_files("key", items, folder / "oauth_creds.json", note=SIGN_IN)
    add_files("settings", items, folder / "skills", note=SKILLS)
    add_files("rule", items, folder / "policies", note="Write rules: `odin rules add`.")
    add_files("settings", items, folder / "extensions", note="Odin's plugins have another format: docs/plugins.md.")
    names = as_object(read_settings(folder / "projects.json", items).get("projects"))
    name = str(names.get(str(setup.root), ""))
    if re.fullmatch(r"\w[\w.-]*", name):
        chats = list_newest(folder / "tmp" / name, "chats/session-*.jsonl")
        items += make_sessions(chats, rb'"sessionId":\s*"([0-9A-Za-z-]{1,64})"')
    return items


def _read_settings_file(path: Path, items: list[SetupItem]) -> None:
    config = read_settings(path, items)
    for name, value in as_object(config.get("mcpServers")).items():
        items.append(SetupItem("MCP server", name, path, _convert_server(as_object(value))))
    tools = as_object(config.get("tools"))
    for action, new, old in (("deny", "exclude", "excludeTools"), ("allow", "allowed", "allowedTools")):
        for text in as_texts(tools.get(new)) + as_texts(config.get(old)):
            tool, _, prefix = text.removesuffix(")").partition("(")
            items.append(make_rule(tool, f"{prefix}:*" if prefix else "", action, path))
    model = config.get("model")
    if isinstance(name := as_object(model).get("name", model), str):
        items.append(SetupItem("model", f"google/{name}", path, f"google/{name}"))
    if config.get("hooks"):
        items.append(SetupItem("hook", "hooks", path, note="Odin's hooks have other events: docs/hooks.md."))


def _convert_server(given: dict[str, Any]) -> dict[str, Any]:
    names = {name: name for name in ("command", "args", "env", "cwd", "url", "headers")}
    names |= {"httpUrl": "url", "includeTools": "allowed_tools"}
    server = {ours: given[name] for name, ours in names.items() if name in given}
    if "url" in given and given.get("type") != "http":
        server["type"] = "sse"
    return rewrite_texts(server, r"\$(?![A-Za-z_{])", "$$")


def _convert_command(item: SetupItem, items: list[SetupItem]) -> SetupItem:
    """Return a command in TOML as Markdown."""
    if item.value is None:
        return item
    given = read_settings(item.source, items)
    if not isinstance(prompt := given.get("prompt"), str):
        return SetupItem("command", item.name, item.source, note="It has no prompt.")
    text = prompt.replace("{{args}}", "$ARGUMENTS")
    text = re.sub(r"!\{([^{}`\n]+)\}", r"!`\1`", re.sub(r"@\{([^{}\s]+)\}", r"@\1", text))
    return SetupItem(
        "command", item.name, item.source, format_markdown({"description": given.get("description")}, text)
    )
