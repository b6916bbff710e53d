"""Where the custom commands of a session come from."""

from collections.abc import Mapping
from pathlib import Path

from odin.config import Config, get_config_dir
from odin.context.library import PROJECT_FOLDERS, USER_FOLDER, CommandFolder, CommandLibrary, ConfiguredCommands
from odin.core.client import CommandSource


def build_command_library(config: Config, env: Mapping[str, str]) -> CommandLibrary:
    """The project's files, the user's files, then what the two configuration files say."""
    root = config.root
    project = (CommandFolder(str(Path(root, folder)), "project", within=root) for folder in PROJECT_FOLDERS)
    user = CommandFolder(str(get_config_dir(env) / USER_FOLDER), "user")
    return CommandLibrary((*project, user, *_list_configured(config, "project"), *_list_configured(config, "user")))


def _list_configured(config: Config, layer: str) -> tuple[ConfiguredCommands, ...]:
    source: CommandSource = "project config" if layer == "project" else "user config"
    said = config.declared.get("commands", ())
    return tuple(ConfiguredCommands(item.value, source, item.source) for item in said if item.layer == layer)
