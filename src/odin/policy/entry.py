"""What a person writes to allow or deny: `Tool`, `Tool(pattern)`, and the first words of a command.

Allowing and denying read the same text with opposite care. To allow, everything about a call must match exactly as it
is written. To deny, it is enough that something in the call looks like it: options in another order, another path to
the same program, a wrapper around it.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from odin.core.errors import UsageError
from odin.core.registry import canonical
from odin.core.tool import Kind, Subject
from odin.policy import paths
from odin.policy.command.grammar import Unclear, Word, parse
from odin.policy.shell import Part, Survey

_FORM = r"(?s)\s*([\w*.:-]+)\s*(?:\((.*)\))?\s*"

_GIT_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix"))


class CommandPrefix(Struct, frozen=True):
    """The words a command begins with."""

    text: str
    words: tuple[str, ...]
    exact: bool = False

    def rest(self, words: Sequence[Word]) -> Sequence[Word] | None:
        """The words after the prefix when the command begins with it word for word; None when it does not."""
        size = len(self.words)
        begins = tuple(word.text for word in words[:size]) == self.words
        if not begins or (self.exact and len(words) != size):
            return None
        return words[size:]

    def forbids(self, part: Part) -> bool:
        """Whether a command means this one, whatever path, options or order of options it is written with."""
        texts = (part.name, *_without_git_values(part.name, part.texts[1:]))
        named, flags = _sorted_out(self.words)
        plain, given = _sorted_out(texts)
        return bool(named) and plain[: len(named)] == named and flags <= given

    def appears_in(self, text: str) -> bool:
        """The crude look, for a text that could not be read: the words in a row, whatever stands between them."""
        return (
            re.search(r"(?<![\w-])" + r"[^\w]+".join(re.escape(word) for word in self.words) + r"(?![\w-])", text)
            is not None
        )


def _without_git_values(name: str, texts: Sequence[str]) -> list[str]:
    if name != "git":
        return list(texts)
    rest = list(texts)
    while rest and rest[0].startswith("-"):
        rest = rest[2 if rest[0] in _GIT_VALUED else 1 :]
    return rest


def _sorted_out(words: Sequence[str]) -> tuple[list[str], set[str]]:
    """Plain words in order, and options as a set with bundles of short ones taken apart."""
    plain = [word for word in words if not word.startswith("-") or word == "-"]
    flags: set[str] = set()
    for word in words:
        if word.startswith("--"):
            flags.add(word.split("=", 1)[0])
        elif word.startswith("-"):
            flags.update(word[1:])
    return plain, flags


class Entry(Struct, frozen=True):
    """One `Tool` or `Tool(pattern)`."""

    text: str
    tool: str
    pattern: str
    command: CommandPrefix

    def names(self, name: str) -> bool:
        """Rules for ExecuteCommand hold for Spawn too: the same commands run, only longer."""
        name = canonical(name)
        if name == "Spawn" and self.tool == "ExecuteCommand":
            return True
        return _glob("*" if self.tool == "*" else self.tool).fullmatch(name) is not None

    def is_exactly(self, command: str) -> bool:
        return bool(self.pattern) and self.pattern.strip() == command.strip()

    def covers(self, name: str, kind: Kind, subject: Subject, root: str, cwd: str) -> bool:
        """To allow: the whole call is meant. A bare name means what the tool does inside the project."""
        if not self._reaches(name, kind):
            return False
        if subject.url:
            return not self.pattern or _url_matches(self.pattern, subject.url)
        if not self.pattern:
            return all(paths.inside(path, root, cwd) for path in subject.paths)
        found = [paths.real(path, cwd) for path in subject.paths]
        return bool(found) and all(path is not None and _path_matches(self.pattern, path, root) for path in found)

    def touches(self, name: str, kind: Kind, subject: Subject, seen: Survey | None, root: str, cwd: str) -> bool:
        """To deny: any part of the call is meant. Patterns for reading and editing also hold for a command's words."""
        if self.names(name):
            if not self.pattern or self.pattern == "*":
                return True
            if seen is not None:
                return self._denies_command(seen, subject.command)
        if subject.url:
            return self.names(name) and _url_matches(self.pattern, subject.url)
        if not self.pattern or not (
            self._reaches(name, kind) or (seen is not None and self.tool in ("Read", "EditTool"))
        ):
            return False
        mentioned = [word.text for part in seen.parts for word in part.words[1:]] if seen is not None else subject.paths
        return any(_path_matches(self.pattern, form, root) for path in mentioned for form in _forms(path, cwd))

    def _denies_command(self, seen: Survey, command: str) -> bool:
        if self.is_exactly(command) or any(self._denies_part(part) for part in seen.parts):
            return True
        return not seen.sure and self.command.appears_in(command)

    def _denies_part(self, part: Part) -> bool:
        if self.command.exact:
            return part.texts == self.command.words
        return self.command.forbids(part)

    def _reaches(self, name: str, kind: Kind) -> bool:
        """`Read(pattern)` means all tools that read, `Edit(pattern)` all that change files; a bare name, that tool."""
        if self.names(name):
            return True
        return bool(self.pattern) and {"Read": "read", "EditTool": "edit"}.get(self.tool) == kind


def entries_of(texts: Iterable[str]) -> tuple[Entry, ...]:
    return tuple(_entry(text) for text in texts if text.strip())


def _entry(text: str) -> Entry:
    found = re.fullmatch(_FORM, text)
    if found is None:
        raise UsageError(f"{text!r} is not a rule for tools.", "Write Tool or Tool(pattern), such as Bash(git log:*).")
    pattern = (found[2] or "").strip()
    return Entry(text.strip(), canonical(found[1]), pattern, _command(pattern))


def _command(pattern: str) -> CommandPrefix:
    for suffix in (":*", " *"):
        if pattern.endswith(suffix):
            return _prefix(pattern.removesuffix(suffix))
    return _prefix(pattern, exact=True)


def prefixes_of(texts: Iterable[str]) -> tuple[CommandPrefix, ...]:
    return tuple(_prefix(text) for text in texts if text.strip())


def _prefix(text: str, *, exact: bool = False) -> CommandPrefix:
    try:
        commands = parse(text.strip()).commands
        words = tuple(word.text for word in commands[0].words) if len(commands) == 1 else ()
    except Unclear:
        words = ()
    return CommandPrefix(text.strip(), words or tuple(text.split()), exact)


# --- patterns ---


def _forms(path: str, cwd: str) -> list[str]:
    """A path as it is written and as it really is: a rule that denies holds for both."""
    written = os.path.normpath(paths.joined(cwd, path))
    return [written, paths.real(path, cwd) or written]


def _path_matches(pattern: str, path: str, root: str) -> bool:
    """Without a slash a name anywhere in the project, with one a path from its root; `/` and `~/` begin a full path."""
    if pattern.startswith("~/"):
        pattern = f"{Path.home()}{pattern[1:]}"
    if pattern.startswith("/"):
        return _glob(pattern).fullmatch(path) is not None
    if not paths.contains(root, path):
        return False
    inner = path[len(root.rstrip("/")) :].lstrip("/")
    pattern = pattern.removeprefix("./")
    if "/" not in pattern:
        return any(_glob(pattern).fullmatch(name) for name in inner.split("/")) or pattern in ("*", "**")
    return _glob(pattern).fullmatch(inner) is not None


def _glob(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within one folder, `**` crosses them; `dir/**` also means the folder itself."""
    body = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"/\*\*", "(?:/.*)?").replace(r"\*\*", ".*")
    return re.compile(body.replace(r"\*", "[^/]*").replace(r"\?", "[^/]"))


def _url_matches(pattern: str, url: str) -> bool:
    """`domain:example.org` means that host and those below it, compared by labels of the host."""
    if not pattern.startswith("domain:"):
        return pattern == url
    domain = pattern.removeprefix("domain:").strip().lower().removeprefix("*.")
    host = host_of(url)
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def host_of(url: str) -> str:
    """The host of an address, or "" when it has none that could be a host."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return host if re.fullmatch(r"[a-z0-9.-]+", host) else ""
