"""Where a session's custom slash commands come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odin.app.workspace import list_markdown_folders
from odin.config import Config, get_config_dir
from odin.config.settings import is_command_setting
from odin.context.library import (
    BUILTIN_COMMANDS,
    PROJECT_FOLDERS,
    USER_FOLDER,
    CommandFolder,
    CommandLibrary,
    ConfiguredCommands,
)
from odin.context.skills import SkillCatalog


def _drop_settings(declared: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in declared.items() if not is_command_setting(name, value)}


def load_command_library(config: Config, env: Mapping[str, str], skills: SkillCatalog | None = None) -> CommandLibrary:
    """Collect custom commands: the project's files, the user's files, both configuration files, Odin's own; skills."""
    root, declared = config.root, config.declared.get("commands", ())
    project = (CommandFolder(str(Path(root, folder)), "project", within=root) for folder in PROJECT_FOLDERS)
    user = CommandFolder(str(get_config_dir(env) / USER_FOLDER), "user")
    configured = (
        ConfiguredCommands(
            _drop_settings(item.value), "project config" if layer == "project" else "user config", item.source
        )
        for layer in ("project", "user")
        for item in declared
        if item.layer == layer
    )
    plugins = (
        CommandFolder(folder, "plugin", plugin.folder, plugin.name, only)
        for plugin in config.plugins
        for folder, only in list_markdown_folders(plugin.commands, plugin.folder)
    )
    own = ConfiguredCommands(BUILTIN_COMMANDS, "built-in", "Odin")
    return CommandLibrary((*project, user, *configured, *plugins, own), skills)
