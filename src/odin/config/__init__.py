"""`odinconfig.json` in layers: defaults, the user's file, the project's, the environment, the flags."""

from odin.config.keys import Config, Options, Retry
from odin.config.layers import load
from odin.config.places import (
    CONFIG_NAME,
    INSTRUCTIONS_NAME,
    cache_dir,
    config_dir,
    current_folder,
    make_private,
    project_root,
    state_dir,
)

__all__ = [
    "CONFIG_NAME",
    "INSTRUCTIONS_NAME",
    "Config",
    "Options",
    "Retry",
    "cache_dir",
    "config_dir",
    "current_folder",
    "load",
    "make_private",
    "project_root",
    "state_dir",
]
