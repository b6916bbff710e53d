"""`odinconfig.json` in layers: defaults, user file, project file, environment, flags."""

from odin.config.layers import load
from odin.config.paths import (
    CONFIG_NAME,
    INSTRUCTIONS_NAME,
    find_project_root,
    get_cache_dir,
    get_config_dir,
    get_current_folder,
    get_home_dir,
    get_state_dir,
    make_private_folder,
    resolve_folder,
)
from odin.config.settings import (
    CheckpointSettings,
    Config,
    LanguageServerSettings,
    Options,
    RetrySettings,
    SandboxSettings,
    SearchSettings,
    WebSettings,
)

__all__ = [
    "CONFIG_NAME",
    "INSTRUCTIONS_NAME",
    "CheckpointSettings",
    "Config",
    "LanguageServerSettings",
    "Options",
    "RetrySettings",
    "SandboxSettings",
    "SearchSettings",
    "WebSettings",
    "find_project_root",
    "get_cache_dir",
    "get_config_dir",
    "get_current_folder",
    "get_home_dir",
    "get_state_dir",
    "load",
    "make_private_folder",
    "resolve_folder",
]
