"""Whether a repository can be looked at with git without starting one of its own programs.

A repository can make `git status` run anything: a file system monitor, diff drivers, filters, hooks. So the keys of its
configuration are read here, as text, and git counts as harmless only when all of them are well known.
"""

import os
import re
from pathlib import Path

from odin.policy.paths import contains, is_folder

_MAX_CHARS = 100_000

_SECTION = r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]\s*'
_KEY = r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(=.*)?"

_HARMLESS: dict[str, str] = {
    "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode autocrlf symlinks eol "
    "safecrlf quotepath whitespace abbrev checkstat trustctime longpaths untrackedcache splitindex preloadindex "
    "compression bigfilethreshold sharedrepository",
    "remote": "url fetch pushurl push tagopt prune mirror skipfetchall partialclonefilter promisor gh-resolved",
    "branch": "remote merge rebase description pushremote autosetuprebase autosetupmerge vscode-merge-base "
    "gh-merge-base sort",
    "user": "name email signingkey useconfigonly",
    "pull": "rebase ff",
    "push": "default autosetupremote followtags",
    "fetch": "prune prunetags parallel",
    "init": "defaultbranch",
    "color": "ui diff status branch",
    "gc": "auto autodetach",
    "submodule": "active url path recurse",
    "advice": "detachedhead",
    "lfs": "repositoryformatversion",
    "merge": "conflictstyle ff",
    "rerere": "enabled autoupdate",
    "commit": "gpgsign verbose",
    "tag": "gpgsign sort",
    "status": "showuntrackedfiles short branch",
}


def tame(cwd: str, root: str) -> bool:
    """Whether the repository that git would find from `cwd`, within the root, names no program of its own."""
    folder = cwd
    while contains(root, folder):
        gate = f"{folder}/.git"
        if os.path.lexists(gate):
            return _folder_tame(gate)
        if os.path.lexists(f"{folder}/HEAD") and os.path.lexists(f"{folder}/objects"):
            return False
        if folder == root:
            break
        folder = folder.rpartition("/")[0]
    return False


def _folder_tame(folder: str) -> bool:
    if Path(folder).is_symlink() or not is_folder(folder):
        return False
    if any(os.path.lexists(f"{folder}/{name}") for name in ("commondir", "config.worktree", "modules")):
        return False
    if os.path.lexists(f"{folder}/hooks/post-index-change"):
        return False
    try:
        with Path(folder, "config").open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARS + 1)
    except (OSError, ValueError):
        return False
    return len(text) <= _MAX_CHARS and _config_tame(text)


def _config_tame(text: str) -> bool:
    section = ""
    for line in text.split("\n"):
        bare = line.strip()
        if not bare or bare[0] in "#;":
            continue
        header = re.fullmatch(_SECTION, line)
        if header:
            section = header[1].lower()
            continue
        key = re.fullmatch(_KEY, line)
        if key is None or key[1].lower() not in _HARMLESS.get(section, "").split():
            return False
    return True
