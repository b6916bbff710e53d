"""Entry points of command analysis; other packages use only these.

`analyze_command` finds every command a text would run, for deny rules and destructive commands. A text that cannot be
parsed still yields the commands that were recognized, with `is_complete` False. `is_read_only` is the opposite
question: True only for simple, known, read-only commands. Everything in between needs approval.

`find_outside_word` treats every word as a path, whether or not the program does. It cannot see the values of inherited
variables or the paths in a program's own code; such commands need approval for other reasons.

The parsers are imported with the first command, to keep start-up fast.
"""

import os
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from odin.core.lazy_pattern import compile_lazily
from odin.core.path_names import contains
from odin.policy import paths
from odin.policy.command_scope import CommandScope
from odin.policy.commands.syntax import (
    CommandAnalysis,
    CommandStep,
    ShellScript,
    ShellWord,
    SimpleCommand,
    Unparseable,
    split_names,
)
from odin.policy.paths import look_up_once


@look_up_once
def is_step_read_only(simple: SimpleCommand, scope: CommandScope) -> bool:
    """True if one command is read-only and stays inside the root."""
    from odin.policy.commands.readonly.check import is_command_read_only

    return is_command_read_only(simple, scope)


_HOMES = ("~", "$HOME", "${HOME}", "$OLDPWD", "${OLDPWD}")
_PATH_SEPARATORS = compile_lazily(r"[/=:]")
_GLUE = compile_lazily(r"[=:,{}]")
_GLUED_PATH = compile_lazily(r"/|~|\.\.(?:/|$)")
_BUNDLE = compile_lazily(r"-[^-ILDWFECOo\W]\w{1,6}(?=/|~|\.\.)")
"""Bundled options followed by a path: `-xvf/etc/x`. Not options like `-I`, which take the rest of the word."""

_ADDRESS = compile_lazily(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def find_outside_word(analysis: CommandAnalysis, scope: CommandScope) -> str:
    """Return the first word that names a path outside the project, or "". Program names do not count."""
    root = scope.root
    for word, folder in dict.fromkeys(_find_words(analysis, scope)):
        if is_outside_word(word.text, folder, root):
            return word.text
        match = _find_outside_match(word.text, folder, root) if word.glob else ""
        if match:
            return match
        if word.expands and ".." in _PATH_SEPARATORS.split(word.text):
            return word.text
    return next((value for _, value in analysis.assigned if value and is_outside_word(value, scope.cwd, root)), "")


def _find_words(analysis: CommandAnalysis, scope: CommandScope) -> Iterator[tuple[ShellWord, str]]:
    """Yield each word with the folder it is relative to, following `cd` where its effect is certain.

    Read-only commands are skipped: they stay inside, and their words may be patterns that only look like paths.
    """
    cwd = scope.cwd
    steps = locate_steps(analysis.script, scope) if analysis.script else None
    for simple, folder in steps or ():
        if not is_step_read_only(simple, scope.enter(folder)):
            yield from _list_words(simple, folder)
    if steps:
        yield from _attach_folder((part.words[1:] for part in analysis.commands if part.is_inner), cwd)
        return
    yield from _attach_folder(([redirect.target] for redirect in analysis.redirects), cwd)
    yield from _attach_folder((part.words[1:] for part in analysis.commands), cwd)


def _list_words(simple: SimpleCommand, folder: str) -> Iterator[tuple[ShellWord, str]]:
    assigned = "=" in simple.words[0].text if simple.words else False
    yield from ((word, folder) for word in (simple.words if assigned else simple.words[1:]))
    yield from ((redirect.target, folder) for redirect in simple.redirects if not redirect.op.startswith("<<"))


def _attach_folder(groups: Iterable[Iterable[ShellWord]], folder: str) -> Iterator[tuple[ShellWord, str]]:
    return ((word, folder) for words in groups for word in words)


@look_up_once
def is_outside_word(word: str, cwd: str, root: str) -> bool:
    """True if a word, or a value joined to an option or name in it, is a path outside the project."""
    return any(_is_outside_path(form, cwd, root) for form in find_path_forms(word))


def find_path_forms(word: str) -> Iterator[str]:
    """Yield a word, and the values in it that may be paths: after an option letter, `=` or `:`."""
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
    """Return the first glob match that leads outside, or "". With too many matches, only the glob itself is checked."""
    from odin.policy.commands.readonly.options import TooManyMatches, find_matches

    try:
        return next((name for name in find_matches(pattern, cwd) if not paths.is_inside(name, root, cwd)), "")
    except TooManyMatches:
        return ""


_MAX_FOLDERS = 6


@look_up_once
def locate_steps(script: ShellScript, scope: CommandScope, homes: tuple[str, ...] = ()) -> list[CommandStep] | None:
    """Return the commands of a plain script with every folder each may run in, or None if that is not certain.

    After `cd x &&` the next command runs in x. After `cd x;` it runs in x, or in the old folder if `cd` failed. They
    may enter the project and the folders `homes`.
    """
    script = script.written_out or script
    start, top = paths.resolve_path(scope.cwd, "/"), paths.resolve_path(scope.root, "/")
    if not script.plain or not script.commands or start is None or top is None or not contains(top, start):
        return None
    if scope.environment.get("CDPATH") and any(
        simple.words and simple.words[0].text == "cd" for simple in script.commands
    ):
        return None
    upward = not _is_aliased(start, scope.environment.get("PWD"))
    steps: list[CommandStep] = []
    current, visited = {start}, {start}
    chained = True
    commands = _attach_feeds(script.commands)
    for index, simple in enumerate(commands):
        if simple.operator not in ("", "&&", "|"):
            if simple.operator not in (";", "\n", "||"):
                return None
            current, chained = set(visited), simple.operator != "||"
        steps.extend((simple, folder) for folder in sorted(current))
        if simple.words and simple.words[0].text == "cd":
            piped = simple.operator == "|" or (index + 1 < len(commands) and commands[index + 1].operator == "|")
            targets = {_follow_cd(simple, folder, (top, *homes), upward=upward) for folder in current}
            if piped or None in targets or len(visited) > _MAX_FOLDERS:
                return None
            reached = {folder for folder in targets if folder is not None}
            visited |= reached
            current = reached if chained else current | reached
    return steps


def _attach_feeds(commands: Sequence[SimpleCommand]) -> list[SimpleCommand]:
    """Return the commands; each xargs knows the commands before it in its pipeline."""
    attached: list[SimpleCommand] = []
    feeds: list[SimpleCommand] = []
    for simple in commands:
        if simple.operator != "|":
            feeds = []
        is_fed = bool(feeds) and bool(simple.words) and simple.words[0].text == "xargs"
        attached.append(replace(simple, feeds=tuple(feeds)) if is_fed else simple)
        feeds.append(simple)
    return attached


def _is_aliased(folder: str, name: str) -> bool:
    """True if the shell knows this folder by a path with links (PWD), so that `..` may lead elsewhere."""
    return name.startswith("/") and name != folder and paths.resolve_path(name, "/") == folder


def _follow_cd(simple: SimpleCommand, cwd: str, roots: Sequence[str], *, upward: bool) -> str | None:
    """Return the target of `cd`, or None. Links are refused: behind them, shell and system disagree about `..`."""
    words = simple.words
    if len(words) != 2 or not words[1].literal or words[1].text.startswith("-") or not words[1].text:
        return None
    if ".." in words[1].text and not upward:
        return None
    target = os.path.normpath(f"{cwd}/{words[1].text}" if not words[1].text.startswith("/") else words[1].text)
    if paths.resolve_path(words[1].text, cwd) != target or not any(contains(root, target) for root in roots):
        return None
    return target if paths.is_folder(target) else None


def analyze_command(command: str) -> CommandAnalysis:
    """Return every command that this text would run, as far as can be known without running it."""
    from odin.policy.commands.extractor import extract_commands

    return extract_commands(command)


def is_read_only(command: str, scope: CommandScope) -> bool:
    """True if the command is provably read-only and stays inside the root."""
    from odin.policy.commands.parser import parse_command

    try:
        script = parse_command(command)
    except Unparseable:
        return False
    steps = locate_steps(script, scope)
    return bool(steps) and all(is_step_read_only(simple, scope.enter(folder)) for simple, folder in steps or ())


_FILE_COMMANDS = split_names("touch mkdir rmdir rm cp mv ln tee truncate chmod")
"""Commands that change only what their arguments name."""

_PLAIN_OPTION = compile_lazily(r"-[A-Za-su-z]+|-t|--[a-z-]+")


def find_changed_paths(command: str, scope: CommandScope) -> tuple[str, ...] | None:
    """Return the paths that a command can change, with everything below them; None if they are not certain.

    They are certain for redirected output and for simple commands such as `mkdir` and `mv`.
    """
    from odin.policy.commands.parser import parse_command

    try:
        script = parse_command(command)
    except Unparseable:
        return None
    steps = locate_steps(script, scope) if script.written_out is None else None
    found: dict[str, None] = {}
    for simple, folder in steps or ():
        words = _find_changed_words(simple, scope.enter(folder))
        for word in words if words is not None else ():
            path = paths.resolve_path(word.text, folder)
            if path is None or not word.literal:
                return None
            found[_find_first_missing(path)] = None
        if words is None:
            return None
    return tuple(found) if steps else None


def _find_changed_words(simple: SimpleCommand, scope: CommandScope) -> list[ShellWord] | None:
    """Return the words that name what one command can change, or None."""
    outputs = [item for item in simple.redirects if not item.op.startswith("<") and not item.is_read_only]
    words = [item.target for item in outputs]
    inputs = tuple(item for item in simple.redirects if item not in outputs)
    if is_step_read_only(replace(simple, redirects=inputs), scope):
        return words
    if not simple.words or simple.words[0].text not in _FILE_COMMANDS or not simple.words[0].literal:
        return None
    options = [word for word in simple.words[1:] if word.text.startswith("-")]
    if not all(_PLAIN_OPTION.fullmatch(word.text) for word in options):
        return None
    return [*words, *(word for word in simple.words[1:] if word not in options)]


def _find_first_missing(path: str) -> str:
    """Return the outermost folder above the path that does not exist, which the command may create; else the path."""
    parent = path.rpartition("/")[0]
    while parent and not os.path.lexists(parent):
        path, parent = parent, parent.rpartition("/")[0]
    return path


class AmendedCommand(Struct, frozen=True):
    """A command with words added that make its searches leave out secret files; `left_out` are their names."""

    command: str
    left_out: tuple[str, ...]


def leave_out_secrets(command: str, steps: Sequence[CommandStep], scope: CommandScope) -> AmendedCommand | None:
    """Return the command with its searches made to leave out secret files; None if there is none to leave out.

    The steps are those of `locate_steps`.
    """
    from odin.policy.commands.parser import append_words, parse_command
    from odin.policy.commands.readonly.check import find_search_exclusions

    additions: dict[int, tuple[str, ...]] = {}
    left_out: dict[str, None] = {}
    commands = parse_command(command).commands
    for simple, folder in steps:
        if is_step_read_only(simple, scope.enter(folder)):
            continue
        found = find_search_exclusions(simple, scope.enter(folder))
        for index, other in enumerate(commands):
            if found is not None and other == simple:
                additions[index] = tuple(dict.fromkeys((*additions.get(index, ()), *found.words)))
                left_out.update(dict.fromkeys(found.names))
    return AmendedCommand(append_words(command, additions), tuple(left_out)) if additions else None


def find_critical_harm(command: str, analysis: CommandAnalysis, scope: CommandScope) -> str:
    """Return why this command must never run, as a clause, or ""."""
    from odin.policy.commands.destructive import check

    return check.find_harm(command, analysis, scope)


def is_too_long_to_scan(command: str, analysis: CommandAnalysis) -> bool:
    """True if a command could not be parsed and is also too long to scan for destructive commands."""
    if analysis.is_complete:
        return False
    from odin.policy.commands.destructive.embedded_code import is_too_long

    return is_too_long(command)


def find_removal_risk(analysis: CommandAnalysis, scope: CommandScope) -> str:
    """Return the risk of a removal whose target is not literal, as a clause, or ""."""
    from odin.policy.commands.destructive import check

    return check.find_risk(analysis, scope)


def find_danger(analysis: CommandAnalysis, scope: CommandScope) -> str:
    """Return what a command may destroy with the user's approval (files, or changes in git), as a clause, or ""."""
    from odin.policy.commands.destructive.removal import find_discard_harm

    return find_removal_risk(analysis, scope) or find_discard_harm(analysis)
