"""Parses the reply of a small model: whole files in code blocks after their paths, deletions, commands, and prose.

A model of this size seldom keeps to a format, so the path may stand in a heading, in the opening line of the block or
in a comment at its start. A block without a path stays prose; `reply_judgement.py` may still find the file it belongs
to.
"""

import re
from collections.abc import Collection, Iterator

from msgspec import Struct

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
_ACTION = re.compile(r"^[\s>*`-]*(?P<verb>RUN|DELETE)\b[*`:]*\s+`?(?P<rest>\S.*?)`*\s*$")
_PATH = re.compile(r"[\w@.+~-]*(?:/[\w@.+~-]+)*\.?[\w+-]+")
_FILE_NAME = re.compile(r"^\.?[\w-]+[\w.-]*\.[A-Za-z]\w{0,7}$|^\.\w{3,}$")
_PRODUCTS = frozenset(
    ("node.js", "next.js", "vue.js", "react.js", "express.js", "three.js", "d3.js", "asp.net", "vb.net")
)
"""Names of products that look like files."""
_PLAIN_NAMES = frozenset(
    ("Makefile", "Dockerfile", "LICENSE", "Procfile", "Gemfile", "Rakefile", "justfile", "VERSION")
)
_DECORATION = " \t#>*+-=`\"'[]:"
"""What may stand around the path in a heading."""
_LABELLED_PATH = re.compile(
    r"^(?:[\w',]+ ){0,6}?(?:files?|path|filename|contents?|version|code|script|module|in|for|to|of|updated?|modified"
    r"|fixed|corrected|changed?|edit|new|create|called|named)(?::\s*|\s+)[`*\"']*(?P<path>[^\s`*\"':]+)[`*\"':]*\s*$",
    re.IGNORECASE,
)
"""A few words that say "here is the file", then the path: `Here is the updated calc.py`."""
_QUOTED = re.compile(r"[`*\"']+([^\s`*\"']+)[`*\"']+")
_WORD = re.compile(r"[^\s`*\"'(),:;]+")
_USAGE = re.compile(
    r"\b(?:run|running|runs|execute|usage|example|outputs?|prints?|result|imports?|calls?|called|used)\b"
    r"|\b(?:use|using|test|try)\s+(?:it|this|the|your|[`*\"']*\S+\.\w+)",
    re.IGNORECASE,
)
"""A sentence about using a file. The block below it shows a call or an output."""
_CONTENT = re.compile(
    r"\b(?:updat|modif|chang|fix|correct|creat|add|replac|edit|implement|refactor|renam|sav|put|contents?\b|version\b"
    r"|complete\b|full\b|new\b|code for\b)",
    re.IGNORECASE,
)
"""A sentence about what a file contains, whatever else it says."""
_COMMENTED_PATH = re.compile(
    r"^\s*(?:#|//|--|;|/\*|<!--)+\s*(?:(?:new |updated |modified )?(?:file ?(?:name)?|path|updated|modified)\s*:?\s+)?"
    r"[`'\"]?(?P<path>[^\s*`'\":]+)[`'\"]?:?(?:\s+[-(].*?)?\s*(?:\*/|-->)?\s*$",
    re.IGNORECASE,
)
_SHELLS = frozenset(("sh", "bash", "shell", "console", "zsh", "terminal", "shell-session", "cmd", "powershell"))
_OTHER_LANGUAGE = re.compile(r"\.(?:py|pyi|[cm]?[jt]sx?|go|rs|java|c|h|cpp|rb|php|json|toml|html?|css|xml|kt|swift)$")
"""Files whose content is never shell."""
_DIFFS = frozenset(("diff", "patch", "udiff"))
_MARKDOWN = (".md", ".markdown", ".mdx", ".rst")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(?P<mark>\w+)\1")
_SPANNING = re.compile(
    r"\\$|<<-?\s*['\"]?\w+|^\s*(?:for|if|while|until|case|cd|function)\b|^\s*\w+\(\)\s*\{", re.MULTILINE
)
"""Shell text whose lines belong together: here-documents, continued lines, loops, functions, a change of folder."""
_SEARCH = re.compile(r"^<{5,9} ?SEARCH\s*$")
_DIVIDER = re.compile(r"^={5,9}\s*$")
_REPLACE = re.compile(r"^>{5,9} ?REPLACE\s*$")
_MAX_COMMANDS = 3


class WrittenBlock(Struct, frozen=True):
    """A code block. `path` is "" if none was written; `is_closed` is False if the reply ended inside it.

    `intro` is the line of prose above it.
    """

    text: str
    path: str = ""
    language: str = ""
    is_closed: bool = True
    intro: str = ""

    @property
    def is_shell(self) -> bool:
        return not self.path and self.language.casefold() in _SHELLS

    @property
    def is_usage(self) -> bool:
        """True if the block shows how something is used, or what it prints."""
        return is_usage(self.intro) or self.language.casefold() in ("text", "plaintext", "output", "console")


class Replacement(Struct, frozen=True):
    """A SEARCH/REPLACE block. `old` is "" if lines are only added."""

    path: str
    old: str
    new: str


class WrittenReply(Struct, frozen=True):
    """What a reply asks for, in its order. `loose` are the code blocks without a path; diffs are not read."""

    prose: str = ""
    files: tuple[WrittenBlock, ...] = ()
    loose: tuple[WrittenBlock, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    deletions: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    has_diff: bool = False

    @property
    def is_cut(self) -> bool:
        return any(not block.is_closed for block in (*self.files, *self.loose))


def is_path(text: str, known: Collection[str] = ()) -> bool:
    """True if a text can be the path of a file: a known one, or a name with an ending."""
    if text in known:
        return True
    name = text.rpartition("/")[2]
    shaped = _PATH.fullmatch(text) is not None and not text.endswith((".", "/")) and not text.startswith("/")
    return shaped and (name in _PLAIN_NAMES or (bool(_FILE_NAME.search(name)) and text.casefold() not in _PRODUCTS))


def is_usage(sentence: str) -> bool:
    """True if a sentence announces a call or an output, not the content of a file."""
    return bool(_USAGE.search(sentence)) and not _CONTENT.search(sentence)


def find_commented_path(line: str, known: Collection[str] = ()) -> str:
    """Return the path that a comment line consists of, or ""."""
    found = None if line.startswith("#!") else _COMMENTED_PATH.match(line)
    return found["path"].removeprefix("./") if found is not None and is_path(found["path"], known) else ""


def starts_action(line: str) -> bool:
    """True if from this line on a reply may ask for something: a code block, a command or a deletion."""
    return _FENCE.match(line) is not None or _ACTION.match(line) is not None or _SEARCH.match(line) is not None


def parse_reply(text: str, known: Collection[str] = ()) -> WrittenReply:
    """Parse a whole reply. `known` are the paths of existing files and those that the prompt names."""
    return _ReplyParser(text, known).parse()


class _ReplyParser:
    def __init__(self, text: str, known: Collection[str]) -> None:
        self._lines = text.splitlines()
        self._known = known
        self._prose: list[str] = []
        self._after_block = 0
        """Where the prose after the last block starts."""
        self._files: list[WrittenBlock] = []
        self._loose: list[WrittenBlock] = []
        self._replacements: list[Replacement] = []
        self._deletions: list[str] = []
        self._commands: list[str] = []
        self._has_diff = False

    def parse(self) -> WrittenReply:
        at = 0
        while at < len(self._lines):
            line = self._lines[at]
            fence = _FENCE.match(line)
            if fence is not None:
                at = self._read_block(at, fence)
                self._after_block = len(self._prose)
            elif _SEARCH.match(line):
                at = self._read_replacement(self._lines, at, self._take_heading()[0])
            else:
                read = self._read_action(self._lines, at)
                if not read:
                    self._prose.append(line)
                at += read or 1
        return WrittenReply(
            re.sub(r"\n{3,}", "\n\n", "\n".join(self._prose)).strip(),
            tuple(self._files),
            tuple(self._loose),
            tuple(self._replacements),
            tuple(dict.fromkeys(self._deletions)),
            tuple(dict.fromkeys(self._commands))[:_MAX_COMMANDS],
            self._has_diff,
        )

    def _read_action(self, lines: list[str], at: int) -> int:
        """Read the command or deletion of this line; return how many lines it has, 0 if it is none."""
        action = _ACTION.match(lines[at])
        if action is None:
            return 0
        rest = action["rest"].strip().strip("`").strip()
        if action["verb"] == "RUN":
            document = _HEREDOC.search(rest)
            end = _find_line(lines, at + 1, re.compile(rf"\s*{document['mark']}\s*$")) if document else -1
            end = max(end, at)
            self._commands.append("\n".join((rest, *lines[at + 1 : end + 1])))
            return end + 1 - at
        names = [name.strip("`'\",") for name in rest.split() if name not in ("and", "file")]
        if len(names) > 1 and not all(is_path(name, self._known) for name in names):
            return 0
        self._deletions += names
        return 1

    def _read_block(self, at: int, fence: re.Match[str]) -> int:
        """Read the block that this line opens; return where the text goes on."""
        intro = next((line for line in reversed(self._prose) if line.strip()), "")
        path, is_sentence = self._take_heading()
        language, info_path = self._read_info(fence["info"])
        path = path or info_path
        end = self._find_close(
            at, fence["fence"], is_markdown=path.endswith(_MARKDOWN) or language in ("markdown", "md")
        )
        body = [
            _dedent(line, len(fence["indent"])) for line in self._lines[at + 1 : end if end >= 0 else len(self._lines)]
        ]
        if any(_SEARCH.match(line) for line in body):
            inner = 0
            while inner < len(body):
                inner = self._read_replacement(body, inner, path) if _SEARCH.match(body[inner]) else inner + 1
        elif language in _DIFFS or any(re.match(r"@@ -\d", line) for line in body):
            self._has_diff = True
        elif not path and self._is_only_actions(body):
            inner = 0
            while inner < len(body):
                inner += self._read_action(body, inner) or 1
        else:
            if language in _SHELLS and (is_sentence or _OTHER_LANGUAGE.search(path)):
                path = ""
            block = WrittenBlock("", path.removeprefix("./"), language, end >= 0, intro)
            self._add_block(body, block)
        return end + 1 if end >= 0 else len(self._lines)

    def _read_info(self, info: str) -> tuple[str, str]:
        """Return the language and the path in the opening line of a block, "" for what is missing."""
        words = [word for word in re.split(r"[\s:(){}#=\"',]+", info) if word]
        path = next((word for word in words if "." in word[1:] and is_path(word, self._known)), "")
        if not path and words and words[0] in self._known:
            path = words[0]
        language = words[0].casefold() if words and words[0] != path else ""
        return language, path

    def _is_only_actions(self, body: list[str]) -> bool:
        lines = [line for line in body if line.strip()]
        return (
            bool(lines)
            and (_ACTION.match(lines[0]) is not None)
            and (all(_ACTION.match(line) for line in lines) or _HEREDOC.search(lines[0]) is not None)
        )

    def _add_block(self, body: list[str], block: WrittenBlock) -> None:
        path = block.path or (find_commented_path(body[0], self._known) if body else "")
        if block.language in _SHELLS and _OTHER_LANGUAGE.search(path):
            path = ""
        if not path and block.intro.rstrip().endswith(":"):
            self._drop_intro(block.intro)
        filled = WrittenBlock(_join(body), path, block.language, block.is_closed, block.intro)
        (self._files if path else self._loose).append(filled)

    def _drop_intro(self, intro: str) -> None:
        """Remove the sentence that announces a block from the prose, which does not show the block."""
        at = next((at for at in range(len(self._prose) - 1, -1, -1) if self._prose[at].strip()), -1)
        if at >= 0 and self._prose[at] == intro:
            del self._prose[at:]

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

    def _take_heading(self) -> tuple[str, bool]:
        """Return the path that the prose above a block names, and if its line is a sentence; remove that line.

        The path may also stand alone a few lines above, before a remark.
        """
        at = next((at for at in range(len(self._prose) - 1, -1, -1) if self._prose[at].strip()), -1)
        if at < max(self._after_block, len(self._prose) - 2):
            return "", False
        path, is_sentence = _find_heading(self._prose[at] if at >= 0 else "", self._known)
        if path:
            del self._prose[at:]
            return path, is_sentence
        for above in range(at - 1, max(self._after_block, at - 4) - 1, -1):
            path, is_sentence = _find_heading(self._prose[above], self._known)
            if path and not is_sentence:
                del self._prose[above]
                return path, False
        return "", False

    def _find_close(self, at: int, fence: str, *, is_markdown: bool) -> int:
        """Return the line that closes the block; -1 if the reply ends before. A Markdown file has blocks of its own."""
        fences = [
            (number, bool(found["info"].strip()))
            for number in range(at + 1, len(self._lines))
            if (found := _FENCE.match(self._lines[number])) is not None
            and found["fence"][0] == fence[0]
            and len(found["fence"]) >= len(fence)
        ]
        is_inner = False
        for index, (number, has_info) in enumerate(fences):
            if has_info:
                is_inner = is_inner or is_markdown
            elif is_inner:
                is_inner = False
            elif is_markdown and self._starts_inner(number) and sum(not info for _, info in fences[index + 1 :]) >= 2:
                is_inner = True
            else:
                return number
        return -1

    def _starts_inner(self, number: int) -> bool:
        """True if a fence without a language looks like the start of a block: text follows at once, none is before."""
        before, after = self._lines[number - 1], self._lines[number + 1 : number + 2]
        return bool(after and after[0].strip()) and (not before.strip() or before.rstrip().endswith(":"))


def _find_heading(line: str, known: Collection[str]) -> tuple[str, bool]:
    """Return the path that a line above a block names, "" if none, and if the line is a sentence around it."""
    bare = re.sub(r"^[\s#>*+-]*\d+[.)]\s+", "", line)
    bare = re.sub(r"\s*\([^)]*\)\s*:?[`*]*\s*$", "", bare).strip(_DECORATION)
    if is_path(bare, known):
        return bare, False
    if is_usage(line):
        return "", False
    labelled = _LABELLED_PATH.match(bare)
    if labelled and is_path(labelled["path"], known):
        return labelled["path"], True
    named = {word.rstrip(".") for word in _WORD.findall(line) if word.rstrip(".") in known}
    if not named and line.rstrip().endswith(":"):
        named = {word for word in _QUOTED.findall(line) if is_path(word, known)}
    return (named.pop(), True) if len(named) == 1 else ("", False)


def _join(lines: list[str]) -> str:
    text = "\n".join(lines).strip("\n")
    return f"{text}\n" if text else ""


def _dedent(line: str, indent: int) -> str:
    """Return a line without the indentation that its block has as a whole."""
    return line[indent:] if not line[:indent].strip() else line


def _find_line(lines: list[str], at: int, pattern: re.Pattern[str]) -> int:
    return next((number for number in range(at, len(lines)) if pattern.match(lines[number])), -1)


def split_commands(blocks: Collection[WrittenBlock]) -> Iterator[str]:
    """Yield the commands of shell blocks that a model wrote instead of RUN lines."""
    for block in blocks:
        if not block.is_shell:
            continue
        if _SPANNING.search(block.text):
            yield re.sub(r"^\$ ", "", block.text.strip(), flags=re.MULTILINE)
            continue
        for line in block.text.splitlines():
            command = line.strip().removeprefix("$ ")
            if command and not command.startswith("#"):
                yield command
