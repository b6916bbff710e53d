"""The commands that run without a question, with the options that are known to change nothing.

A list of what is allowed, never of what is forbidden: an option that is not here, or is written in a shortened form, is
not known and therefore asked about. There is one file per family; `judge` puts them together, and is loaded with the
first command.

Where the words of a command lead: the first that names something outside the project.

Words are judged as paths whether they are meant as such or not, since a program may take any of them for one. So are
the values that variables are given in the text. What other variables and a program's own code reach cannot be seen
here; such commands are asked about for other reasons.

What a command would run: every simple command in it, whatever it is wrapped in. The door of `policy/command`.

`survey` finds them for the rules that forbid, and says when it cannot be sure that it found all (`Survey.reason`, the
end of a sentence: "it ...", "a shell ..."). A text that cannot be read still yields the parts that were recognised,
with `sure` False and no `script`. `read_only` is the opposite question and answers yes only to what is plain, known and
harmless. What lies between the two is asked.

`Part.folder` and `Simple.folder` say where a command would run ("" the starting folder, None unknown), supposing that
each `cd` before it succeeds; it is for finding harm, not for proving that there is none. `Unclear.reason` says why a
text could not be read.

The readers behind the door are loaded with the first command: a prompt that runs none does without them.
"""

import os
import re
from collections.abc import Iterable, Iterator

from odin.core.path_names import contains
from odin.policy import paths
from odin.policy.commands.syntax import CommandAnalysis, CommandStep, ShellScript, ShellWord, SimpleCommand, Unparseable


def is_step_read_only(simple: SimpleCommand, cwd: str, root: str) -> bool:
    """Whether one command only looks, and only at what lies inside the root."""
    from odin.policy.commands.readonly.check import is_command_read_only

    return is_command_read_only(simple, cwd, root)


_HOMES = ("~", "$HOME", "${HOME}", "$OLDPWD", "${OLDPWD}")
_PATH_SEPARATORS = re.compile(r"[/=:]")
_GLUE = re.compile(r"[=:,{}]")
_GLUED_PATH = re.compile(r"/|~|\.\.(?:/|$)")
_BUNDLE = re.compile(r"-[^-ILDWFECOo\W]\w{1,6}(?=/|~|\.\.)")
"""Options in one word with a path behind the last: `-xvf/etc/x`. What `-Isrc/x` begins with takes all of the rest."""

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def find_outside_word(analysis: CommandAnalysis, cwd: str, root: str) -> str:
    """The first word that leads out of the project, or "". The names of programs do not count."""
    for word, there in dict.fromkeys(_find_words(analysis, cwd, root)):
        if is_outside_word(word.text, there, root):
            return word.text
        found = _find_outside_match(word.text, there, root) if word.glob else ""
        if found:
            return found
        if word.expands and ".." in _PATH_SEPARATORS.split(word.text):
            return word.text
    return next((value for _, value in analysis.assigned if value and is_outside_word(value, cwd, root)), "")


def _find_words(analysis: CommandAnalysis, cwd: str, root: str) -> Iterator[tuple[ShellWord, str]]:
    """Each word with the folder it would be read from, which `cd` may have changed when that is certain.

    A command that is known to stay inside is passed over: its words may be patterns and texts that look like paths.
    """
    placed = locate_steps(analysis.script, cwd, root) if analysis.script else None
    for simple, there in placed or ():
        if not is_step_read_only(simple, there, root):
            yield from _words_of(simple, there)
    if placed:
        yield from _attach_folder((part.words[1:] for part in analysis.commands if part.is_inner), cwd)
        return
    yield from _attach_folder(([redirect.target] for redirect in analysis.redirects), cwd)
    yield from _attach_folder((part.words[1:] for part in analysis.commands), cwd)


def _words_of(simple: SimpleCommand, there: str) -> Iterator[tuple[ShellWord, str]]:
    assigned = "=" in simple.words[0].text if simple.words else False
    yield from ((word, there) for word in (simple.words if assigned else simple.words[1:]))
    yield from ((redirect.target, there) for redirect in simple.redirects if not redirect.op.startswith("<<"))


def _attach_folder(groups: Iterable[Iterable[ShellWord]], there: str) -> Iterator[tuple[ShellWord, str]]:
    return ((word, there) for words in groups for word in words)


def is_outside_word(word: str, cwd: str, root: str) -> bool:
    """Whether a word, or the value glued to an option or a name in it, is a path that leads out of the project."""
    return any(_is_outside_path(form, cwd, root) for form in _path_forms_of(word))


def _path_forms_of(word: str) -> Iterator[str]:
    yield word
    if word.startswith("-") and len(word) > 2:
        yield word[2:]
        bundle = _BUNDLE.match(word)
        if bundle is not None:
            yield word[bundle.end() :]
    if _ADDRESS.match(word):
        if word.casefold().startswith("file://"):
            yield word[len("file://") :]
    elif not any(char.isspace() for char in word):
        yield from (piece for piece in _GLUE.split(word)[1:] if _GLUED_PATH.search(piece))
    elif "=" in word:
        yield word.split("=", 1)[1]


def _is_outside_path(text: str, cwd: str, root: str) -> bool:
    if not text or text.startswith("-") or paths.is_stream(text):
        return False
    return text.startswith(_HOMES) or not paths.is_inside(text, root, cwd)


def _find_outside_match(pattern: str, cwd: str, root: str) -> str:
    """A link that leads out, among what the pattern stands for. Of very many names, only the pattern is judged."""
    from odin.policy.commands.readonly.options import TooManyMatches, find_matches

    try:
        return next((name for name in find_matches(pattern, cwd) if not paths.is_inside(name, root, cwd)), "")
    except TooManyMatches:
        return ""


_MAX_FOLDERS = 6


def locate_steps(script: ShellScript, cwd: str, root: str) -> list[CommandStep] | None:
    """The commands of a plain script with every folder each may run in; None when that is not certain.

    After `cd x &&` the next command runs there. After `cd x;` it runs there, or where it was when `cd` has failed.
    """
    here, top = paths.resolve_path(cwd, "/"), paths.resolve_path(root, "/")
    if not script.plain or not script.commands or here is None or top is None or not contains(top, here):
        return None
    if os.environ.get("CDPATH") and any(simple.words and simple.words[0].text == "cd" for simple in script.commands):
        return None
    upward = not _is_aliased(here)
    placed: list[CommandStep] = []
    now, ever = {here}, {here}
    chained = True
    commands = script.commands
    for index, simple in enumerate(commands):
        if simple.operator not in ("", "&&", "|"):
            if simple.operator not in (";", "\n", "||"):
                return None
            now, chained = set(ever), simple.operator != "||"
        placed.extend((simple, folder) for folder in sorted(now))
        if simple.words and simple.words[0].text == "cd":
            piped = simple.operator == "|" or (index + 1 < len(commands) and commands[index + 1].operator == "|")
            there = {_follow_cd(simple, folder, top, upward=upward) for folder in now}
            if piped or None in there or len(ever) > _MAX_FOLDERS:
                return None
            reached = {folder for folder in there if folder is not None}
            ever |= reached
            now = reached if chained else now | reached
    return placed


def _is_aliased(here: str) -> bool:
    """Whether the shell would know this folder by another name, from which `..` leads elsewhere."""
    name = os.environ.get("PWD", "")
    return name.startswith("/") and name != here and paths.resolve_path(name, "/") == here


def _follow_cd(simple: SimpleCommand, cwd: str, root: str, *, upward: bool) -> str | None:
    """Where `cd` leads. Not through links: from there, the shell and the system disagree about what `..` means."""
    words = simple.words
    if len(words) != 2 or not words[1].literal or words[1].text.startswith("-") or not words[1].text:
        return None
    if ".." in words[1].text and not upward:
        return None
    there = os.path.normpath(f"{cwd}/{words[1].text}" if not words[1].text.startswith("/") else words[1].text)
    if paths.resolve_path(words[1].text, cwd) != there or not contains(root, there):
        return None
    return there if paths.is_folder(there) else None


def analyze_command(command: str) -> CommandAnalysis:
    """Every command that this text would run, as far as can be told without running it."""
    from odin.policy.commands.extractor import extract_commands

    return extract_commands(command)


def split_commands(command: str) -> list[list[str]] | None:
    """The words of every command in the text; None when it is not certain that these are all."""
    seen = analyze_command(command)
    return [list(part.texts) for part in seen.commands] if seen.is_complete else None


def is_read_only(command: str, cwd: str, root: str) -> bool:
    """Whether the command provably only looks at what lies inside the root."""
    from odin.policy.commands.parser import parse_command

    try:
        script = parse_command(command)
    except Unparseable:
        return False
    placed = locate_steps(script, cwd, root)
    return bool(placed) and all(is_step_read_only(simple, there, root) for simple, there in placed or ())


def find_critical_harm(command: str, analysis: CommandAnalysis, root: str, cwd: str = "") -> str:
    """Why this command may never run, as the end of a sentence, or ""."""
    from odin.policy.commands.destructive import check

    return check.find_harm(command, analysis, root, cwd)


def is_too_long_to_scan(command: str, analysis: CommandAnalysis) -> bool:
    """Whether a command could not be read and is too long to be looked through as well."""
    if analysis.is_complete:
        return False
    from odin.policy.commands.destructive.embedded_code import is_too_long

    return is_too_long(command)


def find_removal_risk(analysis: CommandAnalysis, root: str, cwd: str = "") -> str:
    """What may be removed that is not written out, as the end of a sentence, or ""."""
    from odin.policy.commands.destructive import check

    return check.find_risk(analysis, root, cwd)


def find_danger(analysis: CommandAnalysis, root: str, cwd: str = "") -> str:
    """What is dangerous about a command that is only asked about: what it may remove, or what git throws away."""
    from odin.policy.commands.destructive.removal import find_discard_harm

    return find_removal_risk(analysis, root, cwd) or find_discard_harm(analysis)
