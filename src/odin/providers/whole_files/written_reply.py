"""Parses the reply of a small model: whole files in code blocks after their paths, deletions, commands, and prose.

A model of this size seldom keeps to a format, so the path may stand in a heading, in the opening line of the block or
in a comment at its start. A block without a path stays prose; `turn.py` may still find the file it belongs to.
"""

import re
from collections.abc import Collection, Iterator

from msgspec import Struct

_FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
_ACTION = re.compile(r"^[\s>*`-]*(?P<verb>RUN|DELETE)\b[*`:]*\s+`?(?P<rest>\S.*?)`*\s*$")
_PATH = re.compile(r"[\w@.+~-]*(?:/[\w@.+~-]+)*\.?[\w+-]+")
_HEADING = re.compile(
    r"^[\s#>*+-]*(?:\d+[.)]\s*)?(?:(?:\w+ ){0,4}(?:file|path|filename|content|contents|version)(?: of| for)?\s*:?\s*)?"
    r"[`*\"']*(?P<path>[^\s`*\"':]+)[`*\"']*\s*(?:\([^)]*\))?\s*:?[`*]*\s*$",
    re.IGNORECASE,
)
_QUOTED_PATH = re.compile(r"[`*\"']+([^\s`*\"']+)[`*\"']+")
_COMMENTED_PATH = re.compile(r"^\s*(?:#|//|--|;|/\*|<!--)\s*(?:file(?:name)?:\s*)?(?P<path>[^\s*]+)\s*(?:\*/|-->)?\s*$")
_PLAIN_NAMES = frozenset(
    ("Makefile", "Dockerfile", "LICENSE", "Procfile", "Gemfile", "Rakefile", "justfile", "VERSION")
)
_SHELLS = frozenset(("sh", "bash", "shell", "console", "zsh", "terminal"))
_SEARCH = re.compile(r"^<{5,9} ?SEARCH\s*$")
_DIVIDER = re.compile(r"^={5,9}\s*$")
_REPLACE = re.compile(r"^>{5,9} ?REPLACE\s*$")
_MAX_COMMANDS = 3


class WrittenBlock(Struct, frozen=True):
    """A code block. `path` is "" if none was written; `is_closed` is False if the reply ended inside it."""

    text: str
    path: str = ""
    language: str = ""
    is_closed: bool = True

    @property
    def is_shell(self) -> bool:
        return not self.path and self.language.casefold() in _SHELLS


class Replacement(Struct, frozen=True):
    """A SEARCH/REPLACE block."""

    path: str
    old: str
    new: str


class WrittenReply(Struct, frozen=True):
    """What a reply asks for, in its order. `loose` are the code blocks without a path."""

    prose: str = ""
    files: tuple[WrittenBlock, ...] = ()
    loose: tuple[WrittenBlock, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    deletions: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def is_cut(self) -> bool:
        return any(not block.is_closed for block in (*self.files, *self.loose))

    @property
    def acts(self) -> bool:
        return bool(self.files or self.replacements or self.deletions or self.commands)


def is_path(text: str, known: Collection[str] = ()) -> bool:
    """True if a text can be the path of a file: a known one, or a name with an ending."""
    if text in known:
        return True
    name = text.rpartition("/")[2]
    shaped = _PATH.fullmatch(text) is not None and not text.endswith((".", "/")) and not text.startswith("/")
    return shaped and (name in _PLAIN_NAMES or bool(re.search(r"^\.?[\w-]+[\w.-]*\.[A-Za-z]\w{0,7}$|^\.\w{3,}$", name)))


def starts_action(line: str) -> bool:
    """True if from this line on a reply may ask for something: a code block, a command or a deletion."""
    return _FENCE.match(line) is not None or _ACTION.match(line) is not None or _SEARCH.match(line) is not None


def parse_reply(text: str, known: Collection[str] = ()) -> WrittenReply:
    """Parse a whole reply. `known` are the paths of existing files."""
    return _ReplyParser(text, known).parse()


class _ReplyParser:
    def __init__(self, text: str, known: Collection[str]) -> None:
        self._lines = text.splitlines()
        self._known = known
        self._prose: list[str] = []
        self._files: list[WrittenBlock] = []
        self._loose: list[WrittenBlock] = []
        self._replacements: list[Replacement] = []
        self._deletions: list[str] = []
        self._commands: list[str] = []

    def parse(self) -> WrittenReply:
        at = 0
        while at < len(self._lines):
            line = self._lines[at]
            fence = _FENCE.match(line)
            if fence is not None:
                at = self._read_block(at, fence)
            elif _SEARCH.match(line):
                at = self._read_replacement(self._lines, at, self._take_heading())
            else:
                if not self._read_action(line):
                    self._prose.append(line)
                at += 1
        return WrittenReply(
            re.sub(r"\n{3,}", "\n\n", "\n".join(self._prose)).strip(),
            tuple(self._files),
            tuple(self._loose),
            tuple(self._replacements),
            tuple(dict.fromkeys(self._deletions)),
            tuple(dict.fromkeys(self._commands))[:_MAX_COMMANDS],
        )

    def _read_action(self, line: str) -> bool:
        action = _ACTION.match(line)
        if action is None:
            return False
        rest = action["rest"].strip().strip("`").strip()
        if action["verb"] == "RUN":
            self._commands.append(rest)
        else:
            names = [name.strip("`'\",") for name in rest.split() if name not in ("and", "file")]
            if not all(is_path(name, self._known) for name in names):
                return False
            self._deletions += names
        return True

    def _read_block(self, at: int, fence: re.Match[str]) -> int:
        """Read the block that this line opens; return where the text goes on."""
        info = fence["info"].strip()
        path = self._take_heading()
        language, _, rest = info.partition(" ")
        named = re.sub(r"^(?:title|file|filename|path)\s*=\s*", "", rest).strip(" \"'")
        if not path and named and is_path(named, self._known):
            path = named
        if not path and is_path(language, self._known) and ("." in language or language in self._known):
            path, language = language, ""
        language = re.split(r"[:{=]", language)[0]
        end = self._find_close(at, fence["fence"], path)
        body = self._lines[at + 1 : end if end >= 0 else len(self._lines)]
        if any(_SEARCH.match(line) for line in body):
            inner = 0
            while inner < len(body):
                inner = self._read_replacement(body, inner, path) if _SEARCH.match(body[inner]) else inner + 1
        elif not path and self._is_only_actions(body):
            for line in body:
                self._read_action(line)
        else:
            self._add_block(body, path, language, is_closed=end >= 0)
        return end + 1 if end >= 0 else len(self._lines)

    def _is_only_actions(self, body: list[str]) -> bool:
        lines = [line for line in body if line.strip()]
        return bool(lines) and all(_ACTION.match(line) for line in lines)

    def _add_block(self, body: list[str], path: str, language: str, *, is_closed: bool) -> None:
        if not path and body:
            comment = _COMMENTED_PATH.match(body[0])
            if comment is not None and is_path(comment["path"], self._known) and not body[0].startswith("#!"):
                path, body = comment["path"], body[1:]
        text = "\n".join(body).strip("\n")
        block = WrittenBlock(f"{text}\n" if text else "", path.removeprefix("./"), language, is_closed)
        (self._files if path else self._loose).append(block)

    def _read_replacement(self, lines: list[str], at: int, path: str) -> int:
        """Read the SEARCH/REPLACE block that starts here; return where the text goes on."""
        divider = _find_line(lines, at, _DIVIDER)
        end = _find_line(lines, divider, _REPLACE) if divider >= 0 else -1
        if end < 0:
            self._loose.append(WrittenBlock("", is_closed=False))
            return len(lines)
        path = path or (self._replacements[-1].path if self._replacements else "")
        old, new = "\n".join(lines[at + 1 : divider]), "\n".join(lines[divider + 1 : end])
        self._replacements.append(Replacement(path.removeprefix("./"), old, new))
        return end + 1

    def _take_heading(self) -> str:
        """Return the path that the last line of prose names, and remove that line; "" if it names none."""
        at = next((at for at in range(len(self._prose) - 1, -1, -1) if self._prose[at].strip()), -1)
        if at < max(0, len(self._prose) - 2):
            return ""
        line = self._prose[at] if at >= 0 else ""
        heading = _HEADING.match(line)
        if heading is not None and is_path(heading["path"], self._known):
            del self._prose[at:]
            return heading["path"]
        quoted = [word for word in _QUOTED_PATH.findall(line) if is_path(word, self._known)]
        if line.rstrip().endswith(":") and len(set(quoted)) == 1:
            del self._prose[at:]
            return quoted[0]
        return ""

    def _find_close(self, at: int, fence: str, path: str) -> int:
        """Return the line that closes the block; -1 if the reply ends before. A Markdown file has blocks of its own."""
        nested = 0
        for number in range(at + 1, len(self._lines)):
            found = _FENCE.match(self._lines[number])
            if found is None or found["fence"][0] != fence[0] or len(found["fence"]) < len(fence):
                continue
            if not found["info"].strip():
                if not nested:
                    return number
                nested -= 1
            elif path.endswith((".md", ".markdown", ".mdx", ".rst")):
                nested += 1
        return -1


def _find_line(lines: list[str], at: int, pattern: re.Pattern[str]) -> int:
    return next((number for number in range(at, len(lines)) if pattern.match(lines[number])), -1)


def split_commands(blocks: Collection[WrittenBlock]) -> Iterator[str]:
    """Yield the commands of shell blocks that a model wrote instead of RUN lines."""
    for block in blocks:
        if block.is_shell:
            for line in block.text.splitlines():
                command = line.strip().removeprefix("$ ")
                if command and not command.startswith("#"):
                    yield command
