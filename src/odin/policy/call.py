"""One call as the rules see it."""

import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from odin.core.tool import Kind, Subject
from odin.policy import paths
from odin.policy.command.harmless import Step, harmless, steps
from odin.policy.command.shapes import Simple, Word
from odin.policy.modes import ModeSpec
from odin.policy.shell import Survey

_MAX_FOLDERS = 8
_MAX_MATCHES = 1000


class Call(Struct, frozen=True):
    """A tool with what it is called for, in which mode and where. `seen` is what its command would run.

    Several rules ask the same of a call; `known` keeps what was found out.
    """

    name: str
    kind: Kind
    subject: Subject
    spec: ModeSpec
    seen: Survey | None
    root: str
    cwd: str
    known: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @property
    def command(self) -> str:
        return self.subject.command

    def steps(self) -> list[Step]:
        """The commands of a plain line with the folder each runs in; none when that is not certain."""
        if "steps" not in self.known:
            script = self.seen.script if self.seen is not None else None
            self.known["steps"] = (steps(script, self.cwd, self.root) if script is not None else None) or []
        return self.known["steps"]

    def harmless(self, simple: Simple, folder: str) -> bool:
        """Whether one of these commands only looks at the project."""
        key = (id(simple), folder)
        if key not in self.known:
            self.known[key] = harmless(simple, folder, self.root)
        return self.known[key]

    def only_looks(self) -> bool:
        placed = self.steps()
        return bool(placed) and all(self.harmless(simple, folder) for simple, folder in placed)

    def doubt(self) -> str:
        """Which part of a command is not known to only look, as the end of a sentence, or ""."""
        script = self.seen.script if self.seen is not None else None
        if script is None:
            return ""
        from odin.policy.command.harmless.doubt import doubt

        return doubt(script, self.steps(), self.harmless, every=not self.spec.changes)

    def forms(self) -> list[str]:
        """Every path the call may be about, as it is written and as it really is: more rather than fewer."""
        if "forms" not in self.known:
            mentioned = list(self._mentioned())
            places = {folder: paths.real(folder, "/") or folder for folder in {there for _, there in mentioned}}
            found = (form for text, folder in mentioned for form in forms(text, folder, places[folder]))
            self.known["forms"] = list(dict.fromkeys(found))
        return self.known["forms"]

    def _mentioned(self) -> Iterator[tuple[str, str]]:
        """Each text that may be a path, with the folders it may be meant from."""
        if self.seen is None:
            yield from ((path, self.cwd) for path in self.subject.paths)
            return
        words = [word for part in self.seen.parts for word in part.words[1:]]
        words += [word for part in self.seen.parts for word in part.words[:1] if "/" in word.text]
        words += [redirect.target for redirect in self.seen.redirects]
        if self.seen.script is not None:
            words += [word for simple in self.seen.script.commands for word in simple.words if "=" in word.text]
        texts = list(dict.fromkeys(text for word in words for text in spellings(word)))
        for folder in self._folders(texts):
            yield from ((text, folder) for text in texts)
            yield from ((name, folder) for word in words if word.glob for name in _matches(word.text, folder))

    def _folders(self, texts: list[str]) -> list[str]:
        """Where the command may be when it names something: here, and in every folder it mentions."""
        found = [self.cwd, *(there for _, there in self.steps())]
        found += [folder for text in texts if os.path.isdir(folder := paths.joined(self.cwd, text))]  # noqa: PTH112
        return list(dict.fromkeys(found))[:_MAX_FOLDERS]


def forms(path: str, folder: str, really: str = "") -> tuple[str, ...]:
    """A path as it is written and as it really is: a rule that denies holds for both. `really` is the real folder."""
    written = os.path.normpath(paths.joined(folder, path))
    if really and "/" not in path and path not in (".", "..") and not os.path.islink(written):  # noqa: PTH114
        return (written, f"{really}/{path}")
    return (written, paths.real(path, folder) or written)


def spellings(word: Word) -> list[str]:
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


def _matches(pattern: str, folder: str) -> list[str]:
    import glob
    from itertools import islice

    try:
        found = glob.iglob(pattern, root_dir=folder, include_hidden=True)  # noqa: PTH207 (it starts in another folder)
        return list(islice(found, _MAX_MATCHES))
    except (OSError, ValueError):
        return []
