"""A tool call as the permission rules see it: with the analysis of its command and the paths it mentions."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, field

from odin.core.profile import CommandLevel
from odin.core.tool import Kind, ResolvedPath, Target, get_canonical_name
from odin.policy import paths
from odin.policy.command_scope import CommandScope
from odin.policy.commands.analysis import is_step_read_only, locate_steps
from odin.policy.commands.globs import expand_glob
from odin.policy.commands.syntax import CommandAnalysis, CommandStep, ShellWord, SimpleCommand
from odin.policy.modes import ModeSpec
from odin.policy.rules.pattern import is_private_url

_MAX_FOLDERS = 8


class PolicyCall(Struct, frozen=True):
    """A tool call: the tool, its target, the mode, and for a command the `analysis` of what it would run.

    `is_confined`: the command would run in a sandbox. `cache` stores results that several rules need.
    """

    name: str
    kind: Kind
    target: Target
    spec: ModeSpec
    analysis: CommandAnalysis | None
    scope: CommandScope
    is_confined: bool = False
    find_level: Callable[[], CommandLevel] = lambda: "none"
    cache: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @property
    def level(self) -> CommandLevel:
        """How the command would be confined. Commands of the short list need not know."""
        if "level" not in self.cache:
            self.cache["level"] = self.find_level()
        return self.cache["level"]

    @property
    def root(self) -> str:
        return self.scope.root

    @property
    def cwd(self) -> str:
        return self.scope.cwd

    @property
    def command(self) -> str:
        return self.target.command

    def list_paths(self) -> tuple[ResolvedPath, ...]:
        """Return the paths of the target, resolved once for all rules."""
        if "paths" not in self.cache:
            self.cache["paths"] = paths.resolve_target(self.target, self.cwd, self.scope.environment.home).resolved
        return self.cache["paths"]

    def is_removed(self, item: ResolvedPath) -> bool:
        """True if the call deletes this path of its target or moves it away."""
        return item.written in self.target.removes or get_canonical_name(self.name) == "Delete"

    def list_forms(self, item: ResolvedPath) -> tuple[str, ...]:
        """Return a path of the target as written and resolved: a deny rule applies to each form."""
        return (os.path.normpath(paths.join_path(self.cwd, item.written)), item.shown, item.path, item.target)

    def find_steps(self, homes: tuple[str, ...] = ()) -> list[CommandStep]:
        """Return the simple commands with the folder each runs in; empty if that is not certain.

        They may also enter the folders `homes` outside the project.
        """
        key = ("steps", homes)
        if key not in self.cache:
            script = self.analysis.script if self.analysis is not None else None
            self.cache[key] = (locate_steps(script, self.scope, homes) if script is not None else None) or []
        return self.cache[key]

    def is_step_read_only(self, simple: SimpleCommand, folder: str) -> bool:
        """True if this command is on the short list and stays inside the project."""
        return is_step_read_only(simple, self.scope.enter(folder), not self.is_confined)

    def is_plainly_read_only(self) -> bool:
        steps = self.find_steps()
        return bool(steps) and all(self.is_step_read_only(simple, folder) for simple, folder in steps)

    def is_private_fetch(self) -> bool:
        """True if the model wants a page of this machine or a private network.

        WebSearch is exempt: it asks only the server that the user configured.
        """
        return get_canonical_name(self.name) == "WebFetch" and is_private_url(self.target.url)

    def list_path_forms(self) -> list[str]:
        """Return every path the call may refer to, as written and resolved. Errs on the side of too many."""
        if "forms" not in self.cache and self.analysis is None:
            forms = (form for item in self.list_paths() for form in self.list_forms(item))
            self.cache["forms"] = list(dict.fromkeys(forms))
        if "forms" not in self.cache:
            mentioned = list(self._find_mentions())
            real_folders = {folder: paths.resolve_path(folder, "/") or folder for _, folder in mentioned}
            forms = (form for text, folder in mentioned for form in find_path_forms(text, folder, real_folders[folder]))
            self.cache["forms"] = list(dict.fromkeys(forms))
        return self.cache["forms"]

    def _find_mentions(self) -> Iterator[tuple[str, str]]:
        """Yield each text that may be a path, with each folder it may be relative to."""
        if self.analysis is None:
            return
        words = [word for part in self.analysis.commands for word in part.words[1:]]
        words += [word for part in self.analysis.commands for word in part.words[:1] if "/" in word.text]
        words += [redirect.target for redirect in self.analysis.redirects]
        if self.analysis.script is not None:
            words += [word for simple in self.analysis.script.commands for word in simple.words if "=" in word.text]
        texts = list(dict.fromkeys(text for word in words for text in list_spellings(word)))
        for folder in self._list_folders(texts):
            yield from ((text, folder) for text in texts)
            yield from ((name, folder) for word in words if word.glob for name in expand_glob(word.text, folder))

    def _list_folders(self, texts: list[str]) -> list[str]:
        """Return the folders the command may run in: the current one and every folder it mentions."""
        folders = [self.cwd, *(folder for _, folder in self.find_steps())]
        folders += [folder for text in texts if os.path.isdir(folder := paths.join_path(self.cwd, text))]  # noqa: PTH112
        return list(dict.fromkeys(folders))[:_MAX_FOLDERS]


def find_path_forms(path: str, folder: str, real_folder: str = "") -> tuple[str, ...]:
    """Return a path as written and resolved: a deny rule applies to both. `real_folder` is the resolved folder."""
    written = os.path.normpath(paths.join_path(folder, path))
    if real_folder and "/" not in path and path not in (".", "..") and not os.path.islink(written):  # noqa: PTH114
        return (written, f"{real_folder}/{path}")
    return (written, paths.resolve_path(path, folder) or written)


def list_spellings(word: ShellWord) -> list[str]:
    """Return a word and its parts that may be paths: after an option letter, `=`, `@` and `:`."""
    text = word.text
    forms = [] if text.startswith("-") else [text]
    if "=" in text:
        forms.append(text.split("=", 1)[1])
    forms += [text.rsplit(mark, 1)[1] for mark in "@:" if mark in text and "://" not in text]
    if text.startswith("-") and len(text) > 2:
        forms.append(text[2:])
    return [form for form in forms if form and "\0" not in form]
