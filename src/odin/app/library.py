"""Where the custom commands of a session come from."""

from collections.abc import Mapping
from pathlib import Path

from odin.config import Config, config_dir
from odin.context.library import PROJECT_FOLDERS, USER_FOLDER, Library, Place, Written
from odin.core.client import CommandSource


def command_library(config: Config, env: Mapping[str, str]) -> Library:
    """The project's files, the user's files, then what the two configuration files say."""
    root = config.root
    project = (Place(str(Path(root, folder)), "project", within=root) for folder in PROJECT_FOLDERS)
    user = Place(str(config_dir(env) / USER_FOLDER), "user")
    return Library((*project, user, *_written(config, "project"), *_written(config, "user")))


def _written(config: Config, layer: str) -> tuple[Written, ...]:
    source: CommandSource = "project config" if layer == "project" else "user config"
    said = config.declared.get("commands", ())
    return tuple(Written(item.value, source, item.source) for item in said if item.layer == layer)
