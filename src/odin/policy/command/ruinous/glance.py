"""The second look: for texts that a shell will run and that could not be read, or that other programs hand to one.

It is crude on purpose. The text is cut at whatever could part two commands, quotes and backslashes are taken away, and
every word that is the name of a program that removes is taken for that program. What only prints or searches is left
alone, so that talking about a removal is not one.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from odin.policy.command.feeding import split_loose_words
from odin.policy.command.folder import follow_cd
from odin.policy.command.ruinous.targets import Harm
from odin.policy.command.ruinous.values import ExpansionContext
from odin.policy.command.shapes import ShellWord, split_names
from odin.policy.command.survey import ExtractedCommand
from odin.policy.command.wrappers import SHELLS, is_assignment

SuspectJudge = Callable[[ExtractedCommand, ExpansionContext], Harm]

TEXT_PROGRAMS = split_names(
    "echo printf grep egrep fgrep zgrep rg ag ack git gh glab hg svn man info tldr whatis apropos which whereis type "
    "help say logger wall notify-send test [ [[ expr cat less more head tail wc file stat basename dirname ls # : true "
    "false export case diff cmp history jq yq apt apt-get dpkg brew dnf yum pacman pip pip3 cargo go claude codex "
    "docker podman kubectl adb nerdctl crictl"
)
"""Programs for which the words of a command are text, or that act on another file system than this one."""

_PWD_SUBSTITUTION = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`|\$\{PWD\}")
_FIELD_SEPARATOR = re.compile(r"\$\{?IFS\}?")
_BRACED_VARIABLE = re.compile(r"\$\{(\w+)\}")
_ALL_BUT = re.compile(r"!\([^()]*\)")
_BRACES = re.compile(r"(?<![\w${,])(\{)(?!\})|(?<!\{)(\})(?![\w,])")
_CHOICES = re.compile(r"(?<![\w${/.-])\{([^{}\s]*,[^{}\s]*)\}(?![\w/])")
_SEGMENT_CUT = re.compile(r"&&|\|\||[;|&\n()`]")
_OPENING_WORDS = split_names("{ } then do else ! time -p -- if while until elif exec command builtin sudo")
_FED_PROGRAMS = SHELLS | split_names("xargs parallel at batch")
_MAX_TEXT = 40_000
_MAX_SEGMENTS = 5_000
_MAX_JUDGED = 300
_TOO_LONG_HARM = "it is too long to be looked through; a script in a file can be"
"""For what names more suspects than are judged: anything could hide behind the last of them."""


def is_too_long(text: str) -> bool:
    """Whether a text is more than is looked through, so that anything could hide in the rest."""
    return len(text) > _MAX_TEXT or len(_SEGMENT_CUT.findall(text)) > _MAX_SEGMENTS


def scan_shell_text(text: str, context: ExpansionContext, judge: SuspectJudge, suspects: Callable[[str], bool]) -> Harm:
    """Why this text must not run, or "". `suspects` tells which names are worth judging."""
    folder: str | None = ""
    before: Sequence[ShellWord] = ()
    judged: set[ExtractedCommand] = set()
    for words, last in _split_segments(text):
        name = _name_of(words)
        given = words
        if name == "xargs" and before:
            given = [*words, *before[1:]]
        if name not in TEXT_PROGRAMS or last in _FED_PROGRAMS:
            for part in _find_suspects(given, folder, suspects):
                if len(judged) > _MAX_JUDGED:
                    return _TOO_LONG_HARM
                why = judge(part, context) if part not in judged else ""
                judged.add(part)
                if why:
                    return why
        folder = follow_cd(folder, words)
        before = words
    return ""


def _split_segments(text: str) -> Iterator[tuple[Sequence[ShellWord], str]]:
    """The words between two cuts, each with the name that follows the cut when that is a pipe."""
    short = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT // 2]}\n{text[-_MAX_TEXT // 2 :]}"
    plain = _FIELD_SEPARATOR.sub(" ", _PWD_SUBSTITUTION.sub("$PWD", short)).replace("\\\n", " ")
    plain = _CHOICES.sub(lambda found: f" {found[1].replace(',', ' ')} ", plain)
    plain = _BRACES.sub(lambda found: f" {found[0]} ", _ALL_BUT.sub("*", _BRACED_VARIABLE.sub(r"$\1", plain)))
    at = 0
    found: list[tuple[Sequence[ShellWord], bool]] = []
    for cut in _SEGMENT_CUT.finditer(plain):
        found.append((_split_words(plain[at : cut.start()]), cut[0] == "|"))
        at = cut.end()
        if len(found) > _MAX_SEGMENTS:
            break
    found.append((_split_words(plain[at:]), False))
    for index, (words, piped) in enumerate(found):
        if words:
            yield words, _name_of(found[index + 1][0]) if piped and index + 1 < len(found) else ""


def _split_words(text: str) -> Sequence[ShellWord]:
    words = split_loose_words(text)
    start = 0
    while start < len(words) and (words[start].text in _OPENING_WORDS or is_assignment(words[start])):
        start += 1
    return words[start:]


def _name_of(words: Sequence[ShellWord]) -> str:
    return words[0].text.rsplit("/", 1)[-1] if words else ""


def _find_suspects(
    words: Sequence[ShellWord], folder: str | None, suspects: Callable[[str], bool]
) -> Iterator[ExtractedCommand]:
    for index, word in enumerate(words[:60]):
        if suspects(word.text.rsplit("/", 1)[-1].casefold()):
            yield ExtractedCommand(tuple(words[index:]), True, folder)
