"""The second look: for texts that a shell will run and that could not be read, or that other programs hand to one.

It is crude on purpose. The text is cut at whatever could part two commands, quotes and backslashes are taken away, and
every word that is the name of a program that removes is taken for that program. What only prints or searches is left
alone, so that talking about a removal is not one.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from odin.policy.command.feeding import loose_words
from odin.policy.command.folder import moved
from odin.policy.command.ruinous.targets import Harm
from odin.policy.command.ruinous.values import Place
from odin.policy.command.shapes import Word, named
from odin.policy.command.survey import Part
from odin.policy.command.wrappers import SHELLS, assigns

Judge = Callable[[Part, Place], Harm]

TEXTUAL = named(
    "echo printf grep egrep fgrep zgrep rg ag ack git gh glab hg svn man info tldr whatis apropos which whereis type "
    "help say logger wall notify-send test [ [[ expr cat less more head tail wc file stat basename dirname ls # : true "
    "false export case diff cmp history jq yq apt apt-get dpkg brew dnf yum pacman pip pip3 cargo go claude codex "
    "docker podman kubectl adb nerdctl crictl"
)
"""Programs for which the words of a command are text, or that act on another file system than this one."""

_HERE = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`|\$\{PWD\}")
_FIELDS = re.compile(r"\$\{?IFS\}?")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_ALL_BUT = re.compile(r"!\([^()]*\)")
_BRACES = re.compile(r"(?<![\w${,])(\{)(?!\})|(?<!\{)(\})(?![\w,])")
_CHOICES = re.compile(r"(?<![\w${/.-])\{([^{}\s]*,[^{}\s]*)\}(?![\w/])")
_CUT = re.compile(r"&&|\|\||[;|&\n()`]")
_OPENING = named("{ } then do else ! time -p -- if while until elif exec command builtin sudo")
_FED = SHELLS | named("xargs parallel at batch")
_MAX_TEXT = 40_000
_MAX_SEGMENTS = 5_000
_MAX_JUDGED = 300
_TOO_LONG = "it is too long to be looked through; a script in a file can be"
"""For what names more suspects than are judged: anything could hide behind the last of them."""


def too_long(text: str) -> bool:
    """Whether a text is more than is looked through, so that anything could hide in the rest."""
    return len(text) > _MAX_TEXT or len(_CUT.findall(text)) > _MAX_SEGMENTS


def glance(text: str, place: Place, judge: Judge, suspects: Callable[[str], bool]) -> Harm:
    """Why this text must not run, or "". `suspects` tells which names are worth judging."""
    folder: str | None = ""
    before: Sequence[Word] = ()
    judged: set[Part] = set()
    for words, last in _segments(text):
        name = _name(words)
        given = words
        if name == "xargs" and before:
            given = [*words, *before[1:]]
        if name not in TEXTUAL or last in _FED:
            for part in _commands(given, folder, suspects):
                if len(judged) > _MAX_JUDGED:
                    return _TOO_LONG
                why = judge(part, place) if part not in judged else ""
                judged.add(part)
                if why:
                    return why
        folder = moved(folder, words)
        before = words
    return ""


def _segments(text: str) -> Iterator[tuple[Sequence[Word], str]]:
    """The words between two cuts, each with the name that follows the cut when that is a pipe."""
    short = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT // 2]}\n{text[-_MAX_TEXT // 2 :]}"
    plain = _FIELDS.sub(" ", _HERE.sub("$PWD", short)).replace("\\\n", " ")
    plain = _CHOICES.sub(lambda found: f" {found[1].replace(',', ' ')} ", plain)
    plain = _BRACES.sub(lambda found: f" {found[0]} ", _ALL_BUT.sub("*", _VARIABLE.sub(r"$\1", plain)))
    at = 0
    found: list[tuple[Sequence[Word], bool]] = []
    for cut in _CUT.finditer(plain):
        found.append((_words(plain[at : cut.start()]), cut[0] == "|"))
        at = cut.end()
        if len(found) > _MAX_SEGMENTS:
            break
    found.append((_words(plain[at:]), False))
    for index, (words, piped) in enumerate(found):
        if words:
            yield words, _name(found[index + 1][0]) if piped and index + 1 < len(found) else ""


def _words(text: str) -> Sequence[Word]:
    words = loose_words(text)
    start = 0
    while start < len(words) and (words[start].text in _OPENING or assigns(words[start])):
        start += 1
    return words[start:]


def _name(words: Sequence[Word]) -> str:
    return words[0].text.rsplit("/", 1)[-1] if words else ""


def _commands(words: Sequence[Word], folder: str | None, suspects: Callable[[str], bool]) -> Iterator[Part]:
    for index, word in enumerate(words[:60]):
        if suspects(word.text.rsplit("/", 1)[-1].casefold()):
            yield Part(tuple(words[index:]), True, folder)
