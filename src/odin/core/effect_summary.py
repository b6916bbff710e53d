"""Effects sorted for display. Loaded when a command has written something."""

from collections import Counter
from collections.abc import Sequence

from odin.core.effects import CACHE_NAMES, PACKAGE_NAMES, EffectSummary, FileEffect, FolderSummary
from odin.core.path_names import contains

_BUILD_NAMES = frozenset(("target", "build", "dist", "out", ".next", ".nuxt", "vendor"))
_MANY, _FEW = 20, 5
"""A folder that a build writes to, or that was made or deleted as a whole, is one line if it has more effects; one with
packages if it was made as a whole or more than a few files in it changed."""

_MAX_DEPTH = 20
"""Folders deeper than this are not looked at by themselves."""


def summarize_effects(effects: Sequence[FileEffect], roots: Sequence[str]) -> EffectSummary:
    """Sort effects for display. What follows from others is left out: times of folders, folders around new files."""
    whole = {effect.path for effect in effects if effect.is_folder and effect.kind in ("created", "deleted")}
    weights: Counter[str] = Counter()
    outer: dict[str, list[str]] = {}
    """By folder: itself and the folders around it, outermost first."""
    for effect in effects:
        folder = effect.path if effect.is_folder else effect.path.rpartition("/")[0]
        if folder not in outer:
            root = max((root for root in roots if contains(root, folder)), key=len, default="")
            names = folder[len(root) :].strip("/").split("/")
            outer[folder] = [f"{root}/{'/'.join(names[:end])}" for end in range(1, min(len(names), _MAX_DEPTH) + 1)]
        if not effect.is_folder and not effect.group:
            weights.update(outer[folder])

    def is_one_line(folder: str) -> bool:
        name = folder.rpartition("/")[2]
        is_whole, weight = folder in whole, weights[folder]
        is_package = name in PACKAGE_NAMES and (is_whole or weight > _FEW)
        return is_package or (weight > _MANY and (name in _BUILD_NAMES or is_whole))

    line_of = {folder: next(filter(is_one_line, around), "") for folder, around in outer.items()}
    shown: dict[str, list[FileEffect]] = {"": [], "git": []}
    lines: dict[tuple[str, str], FolderSummary] = {}
    for effect in effects:
        if effect.after == "other" or (effect.is_folder and effect.kind == "touched"):
            continue
        inner = effect.path if effect.is_folder else effect.path.rpartition("/")[0]
        folder = line_of[inner]
        if effect.group == "cache":
            known = (
                path for path in outer[inner] if path.rpartition("/")[2] in CACHE_NAMES or ("cache", path) in lines
            )
            folder = next(known, inner)
        if folder and effect.group != "git" and (effect.kind != "moved" or effect.group):
            line = lines.setdefault((effect.group, folder), FolderSummary(folder))
            if not effect.is_folder:
                lines[effect.group, folder] = FolderSummary(
                    folder,
                    line.created + (effect.kind == "created"),
                    line.changed + (effect.kind not in ("created", "deleted")),
                    line.deleted + (effect.kind == "deleted"),
                    line.size + effect.size * (effect.kind != "deleted"),
                )
        elif not effect.is_folder or effect.kind not in ("created", "deleted") or not weights[effect.path]:
            shown[effect.group].append(effect)
    plain, caches = (tuple(line for (group, _), line in lines.items() if group == wanted) for wanted in ("", "cache"))
    return EffectSummary(tuple(shown[""]), plain, caches, tuple(shown["git"]))
