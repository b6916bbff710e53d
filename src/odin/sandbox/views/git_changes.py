"""What the effects in a git folder mean, in git's words: commits, branches, tags, stashes, the index.

The references before and after decide, and the reflog tells how a branch got there. Git is not run: it would need the
view, and what a command has written there could make it run programs.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from odin.core.effects import FileEffect, ViewLayer
from odin.core.format import clip_line
from odin.core.path_names import contains, decode_path
from odin.sandbox.views.open_tree import OpenTree

_MAX_BYTES = 10_000_000
_HASH = "[0-9a-f]{40}(?:[0-9a-f]{24})?"
_REF_KINDS = {"refs/heads/": "branch", "refs/tags/": "tag", "refs/remotes/": "remote branch"}
_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "BISECT_LOG": "bisect",
}
_BOOKKEEPING = (
    r"(?:logs|objects|refs|worktrees|modules)(?:/|$)|info/refs$|packed-refs$|[A-Z_]+_(?:HEAD|EDITMSG|MSG)$|\.?$"
)
"""Files that change with every command of git and mean nothing by themselves."""

_INNER_FOLDER = re.compile(
    r"(?:worktrees/[^/]+|modules/.+?)/(?=(?:HEAD|index|config|packed-refs|[A-Z_]+_HEAD|refs|logs|objects|hooks|info)(?:/|$))"
)

GitReader = Callable[[str, bool], str]
"""Returns a file of a git folder, before or after the command; "" if there is none."""


def describe_git_changes(effects: Sequence[FileEffect], layer: ViewLayer) -> tuple[str, ...]:
    """Return one line for each change to a repository, such as `commit 1a2b3c4 on main: Fix the parser`."""
    said: dict[str, None] = {}
    with ExitStack() as stack:
        for root in layer.roots:
            upper, real = (stack.enter_context(OpenTree(path)) for path in (root.upper, root.real))
            # The names that changed, by git folder; a linked worktree and a submodule have one inside another.
            folders: dict[str, dict[str, FileEffect]] = {}
            for effect in effects:
                path = decode_path(effect.path)
                if effect.group == "git" and contains(root.real, path):
                    start, mark, name = f"{path}/".partition("/.git/")
                    inner = _INNER_FOLDER.match(name)
                    folder = f"{start}{mark}{inner[0] if inner else ''}"[len(root.real) + 1 :]
                    folders.setdefault(folder, {})[name[inner.end() if inner else 0 :].rstrip("/")] = effect
            for folder, changes in folders.items():
                said |= dict.fromkeys(
                    _describe_folder(folder, changes, partial(_read_version, upper, real, folder, changes))
                )
    return tuple(said)


def _describe_folder(folder: str, changes: dict[str, FileEffect], read: GitReader) -> Iterator[str]:
    heads = [re.sub("^ref: refs/heads/", "", read("HEAD", after).strip()) for after in (False, True)]
    if not all(heads) and "HEAD" in changes:
        inner = re.search(r"/\.git/(worktree|module)s/(.+)/$", f"/{folder}")
        name = "repository" if inner is None else f"{inner[1].replace('module', 'submodule')} {inner[2]}"
        yield f"{'new' if heads[1] else 'deleted'} {name}"
        return
    packs = [
        {name: value for value, name in re.findall(rf"(?m)^({_HASH}) (refs/\S+)$", read("packed-refs", after))}
        for after in (False, True)
    ]
    repacked = {name for name in packs[0].keys() | packs[1].keys() if packs[0].get(name) != packs[1].get(name)}
    has_moved = False
    if heads[0] != heads[1]:
        has_moved = True
        is_detached = re.fullmatch(_HASH, heads[1])
        yield from _list_commits(read, "HEAD", "a detached HEAD", heads[1]) if is_detached else ()
        yield f"HEAD is now at {heads[1][:7]}, on no branch" if is_detached else f"switched to branch {heads[1]}"
    names = repacked.union(name for name in changes if name.startswith("refs/"))
    for name in sorted(names, key=lambda name: (name != f"refs/heads/{heads[1]}", name)):
        # A reference in a file of its own hides the packed one.
        old, new = (read(name, after).strip() or packs[after].get(name, "") for after in (False, True))
        if old == new:
            continue
        has_moved = True
        if name == "refs/stash":
            logs = [read("logs/refs/stash", after).splitlines() for after in (False, True)]
            if len(logs[1]) > len(logs[0]):
                yield f"stashed changes: {clip_line(logs[1][-1].partition(chr(9))[2], 80)}"
            else:
                yield f"dropped {len(logs[0]) - len(logs[1]) or 1} of the stashes"
            continue
        kind = next((kind for start, kind in _REF_KINDS.items() if name.startswith(start)), "reference")
        short = f"{kind} {re.sub('^refs/(heads|tags|remotes)/', '', name)}"
        place = short.removeprefix("branch ")
        commits = list(_list_commits(read, name, place, new)) if kind == "branch" and new else []
        if commits:
            yield from commits
        elif not old:
            yield f"new {short} at {new[:7]}"
        else:
            yield f"moved {short} from {old[:7]} to {new[:7]}" if new else f"deleted {short}, which was at {old[:7]}"
    for name, operation in _OPERATIONS.items():
        effect = changes.get(name)
        if effect is not None and effect.kind in ("created", "deleted"):
            yield f"{operation} in progress" if effect.kind == "created" else f"ended the {operation}"
    if "index" in changes and not has_moved:
        yield "changed what is staged"
    for name, effect in changes.items():
        top = name.partition("/")[0]
        if effect.kind == "touched" or effect.is_folder or re.match(_BOOKKEEPING, name):
            continue
        if top not in ("HEAD", "index", *_OPERATIONS):
            yield f"{effect.verb} {folder if '.git/' in folder else f'.git/{folder}'}{name}"


def _list_commits(read: GitReader, name: str, place: str, value: str) -> Iterator[str]:
    """Return the commits that were added to the reflog of a reference, if they lead to its value."""
    old, new = (read(f"logs/{name}", after) for after in (False, True))
    lines = new[len(old) :].splitlines() if new.startswith(old) else []
    if lines and lines[-1].split(" ")[1:2] == [value]:
        for line in lines:
            entry, _, message = line.partition("\t")
            found = re.match(r"commit(?: \((amend|merge|initial)\))?: ", message)
            if found is not None:
                verb = "amended commit" if found[1] == "amend" else "commit"
                yield f"{verb} {entry.split(' ')[1][:7]} on {place}: {clip_line(message[found.end() :], 80)}"


def _read_version(
    upper: OpenTree, real: OpenTree, folder: str, changes: dict[str, FileEffect], name: str, after: bool
) -> str:
    is_changed = after and name in changes
    try:
        with os.fdopen((upper if is_changed else real).open_file(folder + name), "rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
