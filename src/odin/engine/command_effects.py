"""Sorts what a command wrote in its view by the decision it needs, and describes it for the user and the model."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from odin.core.effect_summary import summarize_effects
from odin.core.effects import PACKAGE_NAMES, EffectSummary, FileEffect, ViewLayer
from odin.core.event_values import SkippedFile
from odin.core.lazy_pattern import compile_lazily
from odin.core.path_names import classify_entry, contains, decode_path, encode_path, find_protected_name, show_path
from odin.core.policy import EffectsAction
from odin.core.text import join_some
from odin.core.timing import run_in_thread
from odin.sandbox.views.applier import ApplyResult, apply_effects
from odin.sandbox.views.caches import find_emptied
from odin.sandbox.views.effects import read_effects
from odin.sandbox.views.git_changes import describe_git_changes
from odin.sandbox.views.layer import remove_layer

_MAX_FILES = 500
"""Effects that a request lists one by one."""

_MAX_NAMED = 10
"""How many effects of one kind the model gets by name."""

_GIT_SETTING = compile_lazily(
    r"(?:(?:worktrees/[^/]+|modules/.+?)/)?(?:config|config\.worktree|hooks|commondir|info/attributes)(?:/|$)"
)
"""What configures git. Everything else in a git folder is data, which commits must be able to write."""

_GIT_MARKS = ("/HEAD", "/objects", "/refs", "/config", "/hooks")


class CommandEffects(Struct, frozen=True):
    """The effects of one command, sorted by the decision they need.

    `silent` are caches, what follows from other effects, and what is never applied; `edits` are files that it created
    or changed; `rest` are deletions, moves and changes of the repository; `protected` are files that make other
    programs run something. `refusals` say why an effect cannot be made real; `emptied` are hidden files that
    git has recorded as empty.
    """

    layer: ViewLayer
    silent: tuple[FileEffect, ...] = ()
    edits: tuple[FileEffect, ...] = ()
    rest: tuple[FileEffect, ...] = ()
    protected: tuple[FileEffect, ...] = ()
    refusals: tuple[SkippedFile, ...] = ()
    emptied: tuple[str, ...] = ()

    def split(self, after: EffectsAction) -> tuple[tuple[FileEffect, ...], tuple[FileEffect, ...]]:
        """Return the effects to apply unasked, and those to ask about."""
        if after == "apply":
            return (*self.edits, *self.rest), self.protected
        if after == "edits":
            return self.edits, (*self.rest, *self.protected)
        return (), (*self.edits, *self.rest, *self.protected)


class EffectTexts(Struct, frozen=True):
    """Effects for the user and the model: as a summary with paths relative to the project, and in git's words."""

    summary: EffectSummary
    git_changes: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return `created a, changed b and 2 more; node_modules: 12 files`."""
        by_word: dict[str, list[str]] = {"created": [], "changed": [], "deleted": [], "moved": []}
        for effect in self.summary.files:
            name = f"{effect.source} to {effect.path}" if effect.kind == "moved" else effect.path
            by_word.setdefault(effect.verb, []).append(name)
        parts = [f"{word} {join_some(names, _MAX_NAMED)}" for word, names in by_word.items() if names]
        parts += [f"{self.summary.more} more files"] if self.summary.more else []
        parts += [f"{folder.path}: {folder.describe()}" for folder in self.summary.folders]
        git = self.git_changes or tuple(f"{effect.verb} {effect.path}" for effect in self.summary.git)
        parts += [f"git: {join_some(git, _MAX_NAMED)}"] if git else []
        return "; ".join(parts)


async def read_command_effects(
    layer: ViewLayer, root: str, *, makes_repositories: bool, hidden: Sequence[str] = ()
) -> CommandEffects:
    """Read and sort the effects in a thread.

    `makes_repositories`: a repository that the command has made is kept. It saw the `hidden` files empty.
    """

    def read() -> CommandEffects:
        effects = read_effects(layer)
        found = _sort_effects(layer, effects, root, makes_repositories)
        return replace(found, emptied=find_emptied(layer, effects, hidden)) if hidden else found

    return await run_in_thread(lambda stopped: read())


def _sort_effects(
    layer: ViewLayer, effects: Sequence[FileEffect], root: str, makes_repositories: bool
) -> CommandEffects:
    sorted_: dict[str, list[FileEffect]] = {"silent": [], "edits": [], "rest": [], "protected": []}
    is_protected = _make_protection(effects, [root, *(item.real for item in layer.roots)], makes_repositories)
    for effect in effects:
        if effect.after == "other" or (effect.is_folder and effect.kind == "touched"):
            kind = "silent"
        elif is_protected(effect):
            kind = "protected"
        elif effect.group == "cache":
            kind = "silent"
        else:
            kind = "rest" if effect.group == "git" or effect.kind in ("deleted", "moved") else "edits"
        sorted_[kind].append(effect)
    refusals = tuple(SkippedFile(effect.path, effect.refusal) for effect in effects if effect.refusal)
    return CommandEffects(layer, *map(tuple, sorted_.values()), refusals=refusals)


def _make_protection(
    effects: Sequence[FileEffect], roots: Sequence[str], makes_repositories: bool
) -> Callable[[FileEffect], bool]:
    """Return a function that tells protected effects. Folders above a root do not count.

    A repository that the command has made is protected as a whole, unless it `makes_repositories`. A package folder
    that it has made is not: other programs do not know it yet. A moved folder is protected if something in it is.
    """
    created = {effect.path for effect in effects if effect.kind == "created"}
    made = {effect.path for effect in effects if effect.kind == "created" and effect.after == "folder"}
    packages = {folder for folder in made if f"{folder}/pyvenv.cfg" in created}
    changed = {effect.path.rpartition("/")[0] for effect in effects if effect.path.endswith(_GIT_MARKS)}
    bare: dict[str, bool] = {}
    """Git folders of any name, and whether the command has made them."""
    for folder in changed:
        marks = [f"{folder}{mark}" for mark in ("/HEAD", "/objects", "/refs")]
        if all(mark in created or os.path.lexists(decode_path(mark)) for mark in marks):
            bare[folder] = not created.isdisjoint(marks)

    def is_protected(path: str) -> bool:
        root = max((root for root in roots if contains(root, decode_path(path))), key=len, default="")
        top, mark, inner = path.partition("/.git/")
        if mark and (len(top) >= len(root) or contains(f"{top}/.git", root)):
            if f"{top}/.git" in made:
                return not makes_repositories
            return _GIT_SETTING.match(inner) is not None
        names = path[len(root) :].strip("/").split("/")
        for at, name in enumerate(names if packages or bare or not PACKAGE_NAMES.isdisjoint(names) else ()):
            folder = "/".join((root, *names[: at + 1]))
            if folder in bare:
                inner = "/".join(names[at + 1 :])
                return not makes_repositories if bare[folder] else _GIT_SETTING.match(inner) is not None
            if name in PACKAGE_NAMES or folder in packages:
                inside = range(at + 1, len(names))
                return folder not in made and any(
                    classify_entry(names[:end], names[end]) == "installed" for end in inside
                )
        return bool(find_protected_name(names))

    return lambda effect: effect.kind != "touched" and any(map(is_protected, _list_paths(effect)))


def _list_paths(effect: FileEffect) -> Iterator[str]:
    """Yield the paths that an effect changes: those in a moved folder have no effects of their own."""
    yield from filter(None, (effect.path, effect.source))
    if effect.kind == "moved":
        source = decode_path(effect.source)
        for folder, folders, files in os.walk(source):
            for name in (*folders, *files):
                inner = encode_path(f"{folder}/{name}"[len(source) :])
                yield from (f"{effect.path}{inner}", f"{effect.source}{inner}")


def describe_effects(layer: ViewLayer, effects: Sequence[FileEffect], root: str) -> EffectTexts:
    """Return effects for display. Reads the references of repositories that changed."""
    summary = summarize_effects(effects, [item.real for item in layer.roots])

    def shorten(path: str) -> str:
        return show_path(path.removeprefix(f"{root}/"))

    def shorten_all(items: Iterable[FileEffect]) -> tuple[FileEffect, ...]:
        return tuple(replace(item, path=shorten(item.path), source=shorten(item.source)) for item in items)

    git = describe_git_changes(effects, layer) if summary.git else ()
    short = EffectSummary(
        shorten_all(summary.files[:_MAX_FILES]),
        *(
            tuple(replace(one, path=shorten(one.path)) for one in group if ".git" not in one.path.split("/"))
            for group in (summary.folders, summary.caches)
        ),
        git=() if git else shorten_all(summary.git[:_MAX_FILES]),
        more=max(len(summary.files) - _MAX_FILES, 0),
    )
    return EffectTexts(short, tuple(map(show_path, git)))


def describe_caches(caches: Sequence[FileEffect], layer: ViewLayer, root: str) -> str:
    """Return the line for the user about caches that were kept, or ""."""
    found = describe_effects(layer, [effect for effect in caches if effect.group == "cache"], root).summary.caches
    return f"kept caches: {join_some((cache.path for cache in found), 5)}" if found else ""


def drop_layer(layer: ViewLayer) -> None:
    """Remove a layer, with what the command wrote, without waiting for it."""

    def remove() -> None:
        with suppress(OSError):
            remove_layer(layer)

    asyncio.get_running_loop().run_in_executor(None, remove)


async def apply_unrecorded(call_id: str, agent: str, layer: ViewLayer, effects: Sequence[FileEffect]) -> ApplyResult:
    """Apply effects without a checkpoint."""
    return await run_in_thread(lambda stopped: apply_effects(layer, effects, layer.stage))
