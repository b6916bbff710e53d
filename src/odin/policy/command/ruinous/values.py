"""What the words of a command stand for, as far as the command line itself tells: variables, homes, folders."""

import os
import re
from pathlib import Path

from msgspec import Struct

from odin.policy.command.feeding import split_loose_words
from odin.policy.command.shapes import ShellWord, split_names
from odin.policy.command.survey import CommandAnalysis, ExtractedCommand
from odin.policy.command.wrappers import SHELLS

SOME_VALUE = "\1"
"""Stands for something that is not empty, and not known."""
UNKNOWN_VALUE = "\0"
_STAR = "\2"
_DOLLAR = "\3"

_HOME = re.compile(r"~(?=/|$)|\$HOME\b|\$\{HOME(?::?[-?=][^}]*)?\}")
_PARENT = re.compile(r"\$\{PWD%%?/\*\}|\$\(\s*dirname\s+(?:\"?\$PWD\"?|\"?\$\(pwd\)\"?)\s*\)")
_HERE = re.compile(
    r"\$PWD\b|\$\{PWD(?::?[-?=][^}]*)?\}|\$\(\s*pwd\s*(?:-[LP]\s*)?\)|`\s*pwd\s*(?:-[LP]\s*)?`|~\+(?=/|$)"
)
_TOPLEVEL = re.compile(r"\$\(\s*git rev-parse --show-toplevel\s*\)|`\s*git rev-parse --show-toplevel\s*`")
_GIT_FOLDER = re.compile(r"\$\(\s*git rev-parse --(?:absolute-)?git-dir\s*\)|`\s*git rev-parse --git-dir\s*`")
_CD_PATH = re.compile(r"\$\(\s*cd\s+([\w./~-]+)\s*(?:&&|;)\s*pwd\s*\)")
_PRINTED_PATH = re.compile(
    r"(?:\$\(|`)\s*(?:echo(?:\s+-[neE]+)?|printf(?:\s+['\"]?%s(?:\\n)?['\"]?)?|realpath|readlink\s+-\w+)"
    r"\s+['\"]?([\w./~*-]+)['\"]?\s*(?:\)|`)"
)
_LISTED = re.compile(r"(?:\$\(|`)\s*(?:ls(?:\s+-[\w]+)*|find(?:\s+\.)?(?:\s+-(?:maxdepth|mindepth)\s+\d+)*)\s*(?:\)|`)")
_IN_FOLDER = re.compile(r"(?:\$\(|`)\s*dirname\s+[\w.-]+\s*(?:\)|`)")
_DEFAULT = re.compile(r"\$\{\w+:?[-=]([^{}]+)\}")
_NEVER_EMPTY = re.compile(r"\$\{\w+:?\?[^}]*\}")
_VARIABLE = re.compile(r"\$(\w+|[@*])|\$\{(\w+|[@*])[^}]*\}")
_UNKNOWN_EXPANSION = re.compile(r"\$\([^)]*\)|`[^`]*`|\$[@*#?!$-]")
_MAX_FORMS = 64
_POSITIONAL = [*"@*0123456789"]
_PRINTERS = split_names("echo printf")


class ExpansionContext(Struct, frozen=True):
    """Where a command is judged: the project, the folder it starts in, and the values that its variables may have."""

    root: str
    cwd: str
    home: str
    values: dict[str, tuple[str, ...]]


def context_of(analysis: CommandAnalysis, root: str, cwd: str) -> ExpansionContext:
    values: dict[str, tuple[str, ...]] = {}
    for name, word in analysis.assigned_words:
        _add(values, name, [word])
    for part in analysis.commands:
        if part.name in analysis.functions or part.name == "set" or part.name in SHELLS:
            for name in _POSITIONAL:
                _add(values, name, part.words[1:])
        elif part.name in ("read", "mapfile", "readarray"):
            for word in part.words[1:]:
                _add(values, word.text, _find_readable_words(part, analysis))
    return ExpansionContext(root, cwd or root, str(Path("~").expanduser()), values)


def _add(values: dict[str, tuple[str, ...]], name: str, words: "list[ShellWord] | tuple[ShellWord, ...]") -> None:
    texts = [_freeze_value(word) for word in words if "=" not in word.text][:_MAX_FORMS]
    if texts:
        values[name] = (*values.get(name, ()), *texts)


def _freeze_value(word: ShellWord) -> str:
    """A value in which nothing is replaced any more, if the shell has nothing to replace in it."""
    if word.expands:
        return word.text
    text = word.text.replace("$", _DOLLAR)
    return f"./{text}" if text.startswith("~") else text


def _find_readable_words(part: ExtractedCommand, analysis: CommandAnalysis) -> list[ShellWord]:
    """What `read` may put into a variable: anything that is printed or written out in the same line."""
    texts = list(part.stdin_texts)
    if analysis.script is not None:
        redirects = [item for simple in analysis.script.commands for item in simple.redirects]
        texts += [item.target.text for item in redirects if item.op == "<<<"] + list(analysis.script.bodies)
    words = [word for text in texts for word in split_loose_words(text)]
    words += [word for other in analysis.commands if other.name in _PRINTERS for word in other.words[1:]]
    if any(
        other.texts in (("ls",), ("ls", "-A"), ("ls", "-a"), ("ls", "-1"), ("find", ".")) for other in analysis.commands
    ):
        words.append(ShellWord("*", glob=True))
    return words


def expand_word(part: ExtractedCommand, word: ShellWord, context: ExpansionContext) -> list[str]:
    """What the shell may make of a word, where the unknown is marked as such."""
    text = word.text if word.glob or word.expands else word.text.replace("*", _STAR)
    if not word.expands:
        return [f"./{text}" if text.startswith("~") else text]
    made = [text]
    for _ in range(4):
        made = [form for item in made for form in _with_values(item, context)][:_MAX_FORMS]
    made = [form for item in made for form in _expand_braces(_expand_folders(item, part, context))][:_MAX_FORMS]
    return [
        _UNKNOWN_EXPANSION.sub(UNKNOWN_VALUE, _VARIABLE.sub(UNKNOWN_VALUE, form)).replace(_DOLLAR, "$") for form in made
    ]


def _expand_folders(text: str, part: ExtractedCommand, context: ExpansionContext) -> str:
    """The folders that a word names by a variable or by a command."""
    here = make_absolute("", part.folder, context)
    text = _PRINTED_PATH.sub(lambda found: found[1], text)
    text = _CD_PATH.sub(
        lambda found: make_absolute(_expand_home(found[1], context), part.folder, context) or SOME_VALUE, text
    )
    text = _PARENT.sub(lambda _: f"{here}/.." if here else SOME_VALUE, text)
    text = _HOME.sub(lambda _: context.home, text)
    text = _TOPLEVEL.sub(lambda _: context.root, text)
    text = _GIT_FOLDER.sub(lambda _: f"{context.root}/.git", text)
    text = _HERE.sub(lambda _: here or SOME_VALUE, text)
    text = _IN_FOLDER.sub(".", _LISTED.sub("*", text))
    if re.fullmatch(r"~[\w.-]+(/.*)?", text):
        text = re.sub(r"^~[\w.-]+", lambda _: context.home, text)
    return _NEVER_EMPTY.sub(SOME_VALUE, _DEFAULT.sub(lambda found: _expand_home(found[1].strip("'\""), context), text))


def _expand_home(text: str, context: ExpansionContext) -> str:
    return context.home + text[1:] if text == "~" or text.startswith("~/") else text


def _with_values(text: str, context: ExpansionContext) -> list[str]:
    """The text with the first variable whose value is known replaced by each of its values."""
    for found in _VARIABLE.finditer(text):
        known = context.values.get(found[1] or found[2], ())
        if known and found[0] not in known:
            return [text[: found.start()] + value + text[found.end() :] for value in dict.fromkeys(known)]
    return [text]


def _expand_braces(text: str) -> list[str]:
    made = [text]
    for _ in range(4):
        grown: list[str] = []
        for item in made:
            found = re.search(r"(?<!\$)\{([^{}]*,[^{}]*)\}", item)
            if found is None:
                grown.append(item)
            else:
                grown += [item[: found.start()] + piece + item[found.end() :] for piece in found[1].split(",")]
        made = grown[:_MAX_FORMS]
    return made


def make_absolute(text: str, folder: str | None, context: ExpansionContext) -> str | None:
    """The full path that a text means in a folder; None when the folder is not known."""
    if not text.startswith("/"):
        if folder is None:
            return None
        start = context.home + folder[1:] if folder.startswith("~") else folder
        text = os.path.join(context.cwd, start, text)  # noqa: PTH118 (either may be a full path, which then wins)
    path = os.path.normpath(text)
    return "/" + path.lstrip("/")
