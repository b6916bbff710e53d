"""Entry points of command analysis; other packages use only these.

`analyze_command` finds every command a text would run, for rules, requests and destructive commands. A text that cannot
be parsed still yields the commands that were recognized, with `is_complete` False. `is_plainly_read_only` is the
opposite question: True only for commands of the short list, written out plainly.

`find_outside_word` treats every word as a path, whether or not the program does. It cannot see the values of inherited
variables or the paths in a program's own code; the sandbox decides about those.

The parsers are imported with the first command, to keep start-up fast.
"""

import os
from collections.abc import Iterator, Sequence

from odin.core.lazy_pattern import compile_lazily
from odin.core.path_names import contains
from odin.policy import paths
from odin.policy.command_scope import CommandScope
from odin.policy.commands.globs import expand_glob
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
def is_step_read_only(simple: SimpleCommand, scope: CommandScope, strict: bool = False) -> bool:
    """True if one command is on the short list and stays inside the project and the temporary folders.

    `strict`: no sandbox keeps it from doing more.
    """
    from odin.policy.commands.short_list import is_call_read_only

    return is_call_read_only(simple, scope, strict=strict)


_HOMES = ("~", "$HOME", "${HOME}", "$OLDPWD", "${OLDPWD}")
_PATH_SEPARATORS = compile_lazily(r"[/=:]")
_GLUE = compile_lazily(r"[=:,{}]")
_GLUED_PATH = compile_lazily(r"/|~|\.\.(?:/|$)")
_BUNDLE = compile_lazily(r"-[^-ILDWFECOo\W]\w{1,6}(?=/|~|\.\.)")
"""Bundled options followed by a path: `-xvf/etc/x`. Not options like `-I`, which take the rest of the word."""

_ADDRESS = compile_lazily(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def find_outside_word(analysis: CommandAnalysis, scope: CommandScope, *, temporary: bool = True) -> str:
    """Return the first word that names a path outside the project, or "". Program names do not count.

    Temporary files count as inside, unless `temporary` is False.
    """
    for word, folder in dict.fromkeys(find_path_words(analysis, scope)):
        place = scope.enter(folder)
        if _leads_outside(word.text, place, temporary):
            return word.text
        match = (
            next((name for name in expand_glob(word.text, folder) if _leads_outside(name, place, temporary)), "")
            if word.glob
            else ""
        )
        if match:
            return match
        if word.expands and ".." in _PATH_SEPARATORS.split(word.text):
            return word.text
    return next((value for _, value in analysis.assigned if value and _leads_outside(value, scope, temporary)), "")


def _leads_outside(text: str, scope: CommandScope, temporary: bool) -> bool:
    roots = scope.folders
    if not temporary or not is_outside_word(text, scope.cwd, *roots):
        return is_outside_word(text, scope.cwd, *roots)
    outside = [form for form in find_path_forms(text) if _is_outside_path(form, scope.cwd, roots)]
    return not all(scope.is_temporary(paths.resolve_path(form, scope.cwd) or "/") for form in outside)


def find_path_words(analysis: CommandAnalysis, scope: CommandScope) -> Iterator[tuple[ShellWord, str]]:
    """Yield each word that may be a path, with the folder it is relative to: after `cd` where its effect is certain."""
    from odin.policy.commands.short_list import read_call

    steps = locate_steps(analysis.script, scope) if analysis.script else None
    found = [(simple.words, folder) for simple, folder in steps or ()]
    if steps:
        for simple, folder in steps:
            yield from ((item.target, folder) for item in simple.redirects if not item.op.startswith("<<"))
        found += [(part.words, scope.cwd) for part in analysis.commands if part.is_inner]
    else:
        yield from ((redirect.target, scope.cwd) for redirect in analysis.redirects)
        found = [(part.words, scope.cwd) for part in analysis.commands]
    for words, folder in found:
        call = read_call(words)
        name = words[0].text if words else ""
        if call is not None:
            globs = {word.text for word in words if word.glob}
            yield from ((ShellWord(path, glob=path in globs), folder) for path in call.paths)
        elif _CODE_PROGRAMS.fullmatch(name):
            pieces = (piece for word in words[1:] for piece in _split_code(word))
            yield from ((piece, folder) for piece in pieces if not _is_pattern(piece.text))
        elif name.rsplit("/", 1)[-1] in _TEXT_PROGRAMS:
            yield from ((word, folder) for word in words[1:] if not _is_pattern(word.text))
        else:
            yield from ((word, folder) for word in (words if "=" in name else words[1:]))


_TEXT_PROGRAMS = split_names("grep egrep fgrep zgrep rg ag ack jq yq tr cut echo printf git gh find")
"""Programs that are given patterns, which may look like absolute paths."""

_CODE_PROGRAMS = compile_lazily(
    r"(?:\S*/)?(?:g?sed|[gmn]?awk|perl|python|pypy|ruby|node|nodejs|php|lua|deno|bun)[\d.]*"
)
_PLAIN_WORD = compile_lazily(r"[~\w./+@=:,*?$-]*")
_CODE_PATH = compile_lazily(r"(?<=['\"])[/~](?=['\"])|(?<![\w.)\]/-])(?:~?/|\.)[\w.+@/-]+")


def _split_code(word: ShellWord) -> list[ShellWord]:
    """Return the paths in a word with code, which start with a slash or a dot; any other word as it is."""
    if _PLAIN_WORD.fullmatch(word.text):
        return [word]
    return [ShellWord(text) for text in _CODE_PATH.findall(word.text)]


def _is_pattern(text: str) -> bool:
    """True for a text with blanks, and for `/x/y` if there is no `/x`: it is hardly a file."""
    top = text[1:].partition("/")[0] if text.startswith("/") else ""
    return any(map(str.isspace, text)) or (bool(top) and not os.path.lexists(f"/{top}"))


@look_up_once
def is_outside_word(word: str, cwd: str, *roots: str) -> bool:
    """True if a word, or a value joined to an option or name in it, is a path outside these roots."""
    return any(_is_outside_path(form, cwd, roots) for form in find_path_forms(word))


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


def _is_outside_path(text: str, cwd: str, roots: Sequence[str]) -> bool:
    if not text or text.startswith("-") or paths.is_stream(text):
        return False
    return text.startswith(_HOMES) or not any(paths.is_inside(text, root, cwd) for root in roots)


_MAX_FOLDERS = 6


@look_up_once
def locate_steps(script: ShellScript, scope: CommandScope, homes: tuple[str, ...] = ()) -> list[CommandStep] | None:
    """Return the commands of a plain script with every folder each may run in, or None if that is not certain.

    After `cd x &&` the next command runs in x. After `cd x;` it runs in x, or in the old folder if `cd` failed. They
    may enter the roots and the folders `homes`.
    """
    start, top = paths.resolve_path(scope.cwd, "/"), paths.resolve_path(scope.root, "/")
    if not script.plain or not script.commands or start is None or top is None:
        return None
    tops = (top, *scope.folders[1:])
    if not any(contains(root, start) for root in tops):
        return None
    if scope.environment.get("CDPATH") and any(
        simple.words and simple.words[0].text == "cd" for simple in script.commands
    ):
        return None
    upward = not _is_aliased(start, scope.environment.get("PWD"))
    steps: list[CommandStep] = []
    current, visited = {start}, {start}
    chained = True
    commands = script.commands
    for index, simple in enumerate(commands):
        if simple.operator not in ("", "&&", "|"):
            if simple.operator not in (";", "\n", "||"):
                return None
            current, chained = set(visited), simple.operator != "||"
        steps.extend((simple, folder) for folder in sorted(current))
        if simple.words and simple.words[0].text == "cd":
            piped = simple.operator == "|" or (index + 1 < len(commands) and commands[index + 1].operator == "|")
            targets = {_follow_cd(simple, folder, (*tops, *homes), upward=upward) for folder in current}
            if piped or None in targets or len(visited) > _MAX_FOLDERS:
                return None
            reached = {folder for folder in targets if folder is not None}
            visited |= reached
            current = reached if chained else current | reached
    return steps


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


def is_plainly_read_only(command: str, scope: CommandScope, *, strict: bool = False) -> bool:
    """True if every command of a text is on the short list. `strict`: no sandbox keeps it from doing more."""
    from odin.policy.commands.parser import parse_command

    try:
        script = parse_command(command)
    except Unparseable:
        return False
    steps = locate_steps(script, scope)
    return bool(steps) and all(is_step_read_only(simple, scope.enter(folder), strict) for simple, folder in steps or ())


def find_critical_harm(command: str, analysis: CommandAnalysis, scope: CommandScope) -> str:
    """Return why this command must never run, as a clause, or ""."""
    from odin.policy.commands.hard_stop import find_harm

    return find_harm(command, analysis, scope)


def find_removal_risk(analysis: CommandAnalysis, scope: CommandScope) -> str:
    """Return the risk of a removal whose target is not literal, as a clause, or ""."""
    from odin.policy.commands.hard_stop import find_risk

    return find_risk(analysis, scope)


def find_danger(analysis: CommandAnalysis, scope: CommandScope) -> str:
    """Return what a command may destroy with the user's approval (files, or changes in git), as a clause, or ""."""
    from odin.policy.commands.hard_stop import find_discard_harm

    return find_removal_risk(analysis, scope) or find_discard_harm(analysis)
