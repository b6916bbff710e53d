"""One call as the rules see it."""

import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from odin.core.tool import Kind, Subject
from odin.policy import paths
from odin.policy.commands.analysis import is_step_read_only, locate_steps
from odin.policy.commands.syntax import CommandAnalysis, CommandStep, ShellWord, SimpleCommand
from odin.policy.modes import ModeSpec

_MAX_FOLDERS = 8
_MAX_MATCHES = 1000


class PolicyCall(Struct, frozen=True):
    """A tool with what it is called for, in which mode and where. `seen` is what its command would run.

    Several rules ask the same of a call; `known` keeps what was found out.
    """

    name: str
    kind: Kind
    subject: Subject
    spec: ModeSpec
    analysis: CommandAnalysis | None
    root: str
    cwd: str
    cache: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @property
    def command(self) -> str:
        return self.subject.command

    def find_steps(self) -> list[CommandStep]:
        """The commands of a plain line with the folder each runs in; none when that is not certain."""
        if "steps" not in self.cache:
            script = self.analysis.script if self.analysis is not None else None
            self.cache["steps"] = (locate_steps(script, self.cwd, self.root) if script is not None else None) or []
        return self.cache["steps"]

    def is_step_read_only(self, simple: SimpleCommand, folder: str) -> bool:
        """Whether one of these commands only looks at the project."""
        key = (id(simple), folder)
        if key not in self.cache:
            self.cache[key] = is_step_read_only(simple, folder, self.root)
        return self.cache[key]

    def is_read_only(self) -> bool:
        placed = self.find_steps()
        return bool(placed) and all(self.is_step_read_only(simple, folder) for simple, folder in placed)

    def explain_doubt(self) -> str:
        """Which part of a command is not known to only look, as the end of a sentence, or ""."""
        script = self.analysis.script if self.analysis is not None else None
        if script is None:
            return ""
        from odin.policy.commands.readonly.check import explain_doubt

        return explain_doubt(script, self.find_steps(), self.is_step_read_only, every=not self.spec.allows_changes)

    def list_path_forms(self) -> list[str]:
        """Every path the call may be about, as it is written and as it really is: more rather than fewer."""
        if "forms" not in self.cache:
            mentioned = list(self._find_mentions())
            places = {folder: paths.resolve_path(folder, "/") or folder for folder in {there for _, there in mentioned}}
            found = (form for text, folder in mentioned for form in path_forms_of(text, folder, places[folder]))
            self.cache["forms"] = list(dict.fromkeys(found))
        return self.cache["forms"]

    def _find_mentions(self) -> Iterator[tuple[str, str]]:
        """Each text that may be a path, with the folders it may be meant from."""
        if self.analysis is None:
            yield from ((path, self.cwd) for path in self.subject.paths)
            return
        words = [word for part in self.analysis.commands for word in part.words[1:]]
        words += [word for part in self.analysis.commands for word in part.words[:1] if "/" in word.text]
        words += [redirect.target for redirect in self.analysis.redirects]
        if self.analysis.script is not None:
            words += [word for simple in self.analysis.script.commands for word in simple.words if "=" in word.text]
        texts = list(dict.fromkeys(text for word in words for text in spellings_of(word)))
        for folder in self._list_folders(texts):
            yield from ((text, folder) for text in texts)
            yield from ((name, folder) for word in words if word.glob for name in _expand_glob(word.text, folder))

    def _list_folders(self, texts: list[str]) -> list[str]:
        """Where the command may be when it names something: here, and in every folder it mentions."""
        found = [self.cwd, *(there for _, there in self.find_steps())]
        found += [folder for text in texts if os.path.isdir(folder := paths.join_path(self.cwd, text))]  # noqa: PTH112
        return list(dict.fromkeys(found))[:_MAX_FOLDERS]


def path_forms_of(path: str, folder: str, real_folder: str = "") -> tuple[str, ...]:
    """A path as it is written and as it really is: a rule that denies holds for both. `really` is the real folder."""
    written = os.path.normpath(paths.join_path(folder, path))
    if real_folder and "/" not in path and path not in (".", "..") and not os.path.islink(written):  # noqa: PTH114
        return (written, f"{real_folder}/{path}")
    return (written, paths.resolve_path(path, folder) or written)


def spellings_of(word: ShellWord) -> list[str]:
    """A word, and what is glued to an option, a variable or an `@` in it."""
    text = word.text
    found = [] if text.startswith("-") else [text]
    if "=" in text:
        found.append(text.split("=", 1)[1])
    if "@" in text:
        found.append(text.rsplit("@", 1)[1])
    if text.startswith("-") and len(text) > 2:
        found.append(text[2:])
    return [form for form in found if form and "\0" not in form]


def _expand_glob(pattern: str, folder: str) -> list[str]:
    import glob
    from itertools import islice

    try:
        found = glob.iglob(pattern, root_dir=folder, include_hidden=True)  # noqa: PTH207 (it starts in another folder)
        return list(islice(found, _MAX_MATCHES))
    except (OSError, ValueError):
        return []
