"""OpenCode: `~/.config/opencode`, `opencode.json` and `.opencode` of the project, and the keys in its data folder."""

import re
from pathlib import Path
from typing import Any

from odin.commands.setups.item import (
    SIGN_IN,
    SKILLS,
    Kind,
    SetupFolders,
    SetupItem,
    add_files,
    add_instructions,
    as_object,
    as_texts,
    format_markdown,
    make_rule,
    read_folder,
    read_settings,
)
from odin.config.mcp_file import rewrite_texts

_PACKAGES = {
    "@ai-sdk/openai-compatible": "openai-chat",
    "@ai-sdk/openai": "openai-responses",
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/google": "gemini",
}
"""The API that a package of a provider speaks."""

_FILES: dict[Kind, tuple[str, ...]] = {
    "command": ("description",),
    "agent": ("description", "mode", "model", "permission"),
}
"""What can be a file or a part of the configuration, and which keys the file keeps."""


def read_opencode(setup: SetupFolders) -> list[SetupItem]:
    items: list[SetupItem] = []
    folder = setup.find_folder("XDG_CONFIG_HOME", ".config", "opencode")
    data = setup.find_folder("XDG_DATA_HOME", ".local/share", "opencode")
    for place in (folder, setup.root / ".opencode", setup.root):
        for name in ("opencode.json", "opencode.jsonc"):
            _read_config(place / name, items)
    for place in (folder, setup.root / ".opencode"):
        for kind in _FILES:
            for name in (kind, f"{kind}s"):
                read_folder(kind, place / name, ".md", setup, items)
    add_instructions(folder / "AGENTS.md", items)
    auth = data / "auth.json"
    for name, value in read_settings(auth, items).items():
        key = as_object(value).get("key")
        is_key = as_object(value).get("type") == "api" and isinstance(key, str)
        items.append(SetupItem("key", name, auth, key if is_key else None, "" if is_key else SIGN_IN))
    add_files("settings", items, folder / "skills", setup.root / ".opencode/skills", note=SKILLS)
    note = "Use `opencode export ID > FILE`, then `odin import FILE`."
    add_files("session", items, data / "opencode.db", note=note)
    return items


def _read_config(path: Path, items: list[SetupItem]) -> None:
    found = read_settings(path, items)
    # `{env:NAME}` is a variable there, `$NAME` is not
    config = as_object(rewrite_texts(rewrite_texts(found, r"\$", "$$"), r"\{env:(\w+)\}", r"${\1}"))
    for name, value in as_object(config.get("mcp")).items():
        server = None if "{file:" in str(value) else _convert_server(as_object(value))
        items.append(SetupItem("MCP server", name, path, server, "" if server else "Odin inserts no files."))
    for name, value in as_object(config.get("provider")).items():
        items.append(_convert_provider(name, as_object(value), path))
    permission = found.get("permission")
    for name, value in (as_object(permission) or ({"*": permission} if permission else {})).items():
        for tool in ("Edit", "Write") if name == "edit" else (name,):
            patterns = as_object(value) or {"*": value}
            items += [make_rule(tool, pattern, str(action), path) for pattern, action in patterns.items()]
    for kind, keys in _FILES.items():
        for name, value in as_object(found.get(kind)).items():
            given = as_object(value)
            text = given.get("template", given.get("prompt"))
            if isinstance(text, str) and "{file:" not in text:
                items.append(SetupItem(kind, name, path, format_markdown({key: given.get(key) for key in keys}, text)))
            else:
                items.append(SetupItem(kind, name, path, note="It has no text of its own."))
    if isinstance(model := found.get("model"), str):
        items.append(SetupItem("model", model, path, model))
    if names := as_texts(found.get("instructions")):
        items.append(SetupItem("instructions", ", ".join(names), path, note="Name the files in AGENTS.md."))
    if found.get("plugin"):
        items.append(SetupItem("hook", "plugin", path, note="Odin's plugins have another format: docs/plugins.md."))


def _convert_server(given: dict[str, Any]) -> dict[str, Any]:
    words = as_texts(given.get("command"))
    server: dict[str, Any] = {"command": words[0], "args": words[1:]} if words else {}
    names = {"environment": "env", "url": "url", "headers": "headers", "cwd": "cwd"}
    server |= {ours: given[name] for name, ours in names.items() if name in given}
    return server | ({"manual": True} if given.get("enabled") is False else {})


def _convert_provider(name: str, given: dict[str, Any], path: Path) -> SetupItem:
    options = as_object(given.get("options"))
    wire = _PACKAGES.get(str(given.get("npm")))
    if ("npm" in given and not wire) or not options.get("baseURL"):
        return SetupItem("provider", name, path, note="Only a server with a URL and a known API can be imported.")
    settings: dict[str, Any] = {"base_url": options["baseURL"]} | ({"type": wire} if wire else {})
    settings |= {"models": {model: {} for model in models}} if (models := as_object(given.get("models"))) else {}
    settings |= {"headers": headers} if (headers := as_object(options.get("headers"))) else {}
    key = str(options.get("apiKey", ""))
    if re.fullmatch(r"\$\{\w+\}", key):
        return SetupItem("provider", name, path, settings | {"api_key": key})
    return SetupItem("provider", name, path, settings, f"Without its key: `odin auth add {name}`." if key else "")
