"""`odinconfig.json` in layers: defaults, the user's file, the project's, the environment, the flags."""

from odin.config.checkpoints import CheckpointSettings
from odin.config.keys import Config, Options, Retry
from odin.config.layers import load
from odin.config.places import (
    CONFIG_NAME,
    INSTRUCTIONS_NAME,
    cache_dir,
    config_dir,
    current_folder,
    home_dir,
    make_private,
    project_root,
    state_dir,
)
from odin.config.sandbox import SandboxSettings
from odin.config.web import SearchSettings, WebSettings

__all__ = [
    "CONFIG_NAME",
    "INSTRUCTIONS_NAME",
    "CheckpointSettings",
    "Config",
    "Options",
    "Retry",
    "SandboxSettings",
    "SearchSettings",
    "WebSettings",
    "cache_dir",
    "config_dir",
    "current_folder",
    "home_dir",
    "load",
    "make_private",
    "project_root",
    "state_dir",
]
