"""Which settings files of Claude Code there are, of the user and of a project. What reads them is loaded with the
first."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from odin.config.paths import WORKTREE_FOLDER, find_worktree_origin, get_home_dir, get_state_dir

if TYPE_CHECKING:
    from odin.config.claude_settings import ClaudeSettings


def read_claude_files(
    root: str, cwd: str, env: Mapping[str, str]
) -> "tuple[list[ClaudeSettings], list[ClaudeSettings]]":
    """Return the settings for Claude Code of the user and of the project. In the home folder one file is the user's.

    A worktree that Odin made has the local settings of its project, which git does not copy.
    """
    home = str(get_home_dir(env))
    user, local = f"{home}/.claude/settings.json", ".claude/settings.local.json"
    origin = find_worktree_origin(root, get_state_dir(env)) if f"/{WORKTREE_FOLDER}/" in root else root
    top = root if os.path.lexists(f"{root}/{local}") else origin
    places = {f"{root}/.claude/settings.json": root, f"{top}/{local}": top, user: ""}
    existing = {path: folder for path, folder in places.items() if os.path.lexists(path)}
    if not existing:
        return [], []
    from odin.config.claude_settings import convert_rules, read_claude_settings

    same, cwd = os.path.realpath(user), os.path.realpath(cwd)
    names = [path for path in existing if path == user or os.path.realpath(path) != same]
    files = [read_claude_settings(Path(path), existing[path]) for path in names]
    converted = [msgspec.structs.replace(found, entries=convert_rules(found, root, cwd, home)) for found in files]
    return [found for found in converted if found.is_users], [found for found in converted if not found.is_users]


def list_texts(of_project: "Sequence[ClaudeSettings]") -> dict[str, bytes]:
    """Return the texts of the project's settings for Claude Code, which are pinned, by their paths in it."""
    return {f".claude/{Path(found.path).name}": found.raw for found in of_project if found.raw is not None}
