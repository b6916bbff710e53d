"""Where a session's custom slash commands come from."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from odin.app.workspace import list_markdown_folders
from odin.config import Config, get_config_dir
from odin.config.paths import get_home_dir
from odin.config.settings import Plugin, is_command_setting
from odin.context.arguments import find_shell_commands
from odin.context.library import (
    BUILTIN_COMMANDS,
    PROJECT_FOLDERS,
    USER_FOLDER,
    CommandFolder,
    CommandLibrary,
    CommandText,
    ConfiguredCommands,
)
from odin.context.skills import SkillCatalog


def _drop_settings(declared: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in declared.items() if not is_command_setting(name, value)}


def describe_demands(text: CommandText) -> str:
    """Return what a command runs and allows, for people who decide whether to trust it, or ""."""
    parts = [f"runs {', '.join(commands)}"] if (commands := find_shell_commands(text.body)) else []
    if text.allowed_tools:
        from odin.policy.rules.skill_rules import list_effective_rules

        rules = list_effective_rules(text.allowed_tools)
        parts += [f"allows {', '.join(rules)}"] if rules else []
    return f", which {' and '.join(parts)}" if parts else ""


def list_plugin_commands(plugin: Plugin) -> tuple[CommandText, ...]:
    return CommandLibrary(_list_plugin_folders(plugin)).list_texts()


def _list_plugin_folders(plugin: Plugin) -> Iterator[CommandFolder]:
    for folder, only in list_markdown_folders(plugin.commands, plugin.folder):
        yield CommandFolder(folder, "plugin", plugin.folder, plugin.name, only)


def load_command_library(config: Config, env: Mapping[str, str], skills: SkillCatalog | None = None) -> CommandLibrary:
    """Collect custom commands: the project's files, the user's files, both configuration files, Odin's own; skills."""
    root, declared = config.root, config.declared.get("commands", ())
    project = (CommandFolder(str(Path(root, folder)), "project", within=root) for folder in PROJECT_FOLDERS)
    user = (get_config_dir(env) / USER_FOLDER, get_home_dir(env) / ".claude/commands")
    configured = (
        ConfiguredCommands(
            _drop_settings(item.value), "project config" if layer == "project" else "user config", item.source
        )
        for layer in ("project", "user")
        for item in declared
        if item.layer == layer
    )
    plugins = (folder for plugin in config.plugins for folder in _list_plugin_folders(plugin))
    own = ConfiguredCommands(BUILTIN_COMMANDS, "built-in", "Odin")
    mine = (CommandFolder(str(folder), "user") for folder in user)
    return CommandLibrary((*project, *mine, *configured, *plugins, own), skills)
