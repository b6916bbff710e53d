"""Whether a command may do what a deny rule forbids, although nothing in its text matches the rule.

There is a doubt about a command
 - if a word that is only known when it runs could be one of the rule's command, or name such a file;
 - if a program is not known, or is given code or text of its own language: what that does is not searched for;
 - if a program that may run its words, or its input, is given those of the rule;
 - if a search opens every file below a folder.
What a shell is told to run is part of the command, and a script that it runs is checked like one. What the project
defines is not: `make`, `npm test`, `python3 tool.py`. A command in doubt needs approval, and where nobody can give it,
it is denied. A word could be another one if its literal start agrees, and a path if its end does.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from odin.policy.commands.analysis import analyze_command
from odin.policy.commands.globs import MAX_MATCHES, expand_glob
from odin.policy.commands.programs import GIT_COMMANDS, GIT_READERS, INTERPRETERS, PASS_THROUGH, SHELLS, WRAPPERS
from odin.policy.commands.short_list import read_call
from odin.policy.commands.syntax import (
    CommandAnalysis,
    ExtractedCommand,
    ShellFile,
    ShellWord,
    quote_short,
    split_names,
)
from odin.policy.policy_call import PolicyCall, find_path_forms
from odin.policy.rules.breadth import is_given_code
from odin.policy.rules.pattern import (
    CommandPattern,
    has_wildcard,
    matches_path_loosely,
    matches_word,
    separate_options,
    skip_git_options,
)
from odin.policy.rules.rule import Rule


class PossibleDenial(Struct, frozen=True):
    """The rule that may apply, and what could not be resolved, as a clause."""

    rule: Rule
    doubt: str


_NO_FILES = split_names(
    "echo printf test [ [[ expr true false : export declare typeset local readonly read set unset shift sleep exit "
    "return cd pushd popd date kill basename dirname seq tr mkdir touch rmdir which type command pwd let wait jobs"
)
"""Programs that do not open the files that their words name."""

_NO_RUNNERS = (_NO_FILES | PASS_THROUGH | SHELLS | WRAPPERS.keys()) | split_names(
    "wc file stat ls tree du cut diff cmp comm grep egrep fgrep zgrep rg ag ack jq yq git gh glab hg svn man info "
    "whereis help logger history docker podman kubectl apt apt-get pip pip3 cp mv ln rm chmod chown ps find fd id "
    "uname hostname whoami printenv md5sum sha256sum"
)
"""Programs that run no words of theirs as a command on this machine, or whose inner commands are extracted."""

_INSTALLING = split_names("install add i uninstall remove update upgrade info show search view why list ls docs help")
_COPYING = split_names("cp ln mv install rsync link")
_TEXT_OPTIONS = split_names("-m --message --body --title -t --notes --description --subject --comment")
_ABBREVIATING = split_names("npm pnpm hg svn ip")
"""Programs that accept the beginning of a subcommand."""

_EXPANSION = re.compile(r"[$`*?\[{]|(?:^|[=:])~")
_HOME = re.compile(r"^(?:~|\$HOME|\$\{HOME\})(?=/|$)")
_MAX_SCRIPT_BYTES = 100_000


def find_possible_denial(call: PolicyCall, rules: Sequence[Rule]) -> PossibleDenial | None:
    """Return the first rule that a command may match and why that is not certain, or None."""
    return next(_find_doubts(call, call.analysis, rules), None) if call.analysis is not None else None


def _find_doubts(call: PolicyCall, analysis: CommandAnalysis, rules: Sequence[Rule]) -> Iterator[PossibleDenial]:
    rules = [rule for rule in rules if not rule.bare]
    about_commands = [rule for rule in rules if rule.is_about_tool(call) or rule.tool == "ExecuteCommand"]
    about_files = [rule for rule in rules if rule.tool in ("Read", "EditTool")]
    every = [*about_commands, *(rule for rule in about_files if not rule.everything)]
    bodies = analysis.script.bodies if analysis.script is not None else ()
    for part in analysis.commands:
        words = _read_words(part, call)
        if any(map(INTERPRETERS.fullmatch, part.texts[:4])):
            part = replace(part, stdin_texts=(*part.stdin_texts, *bodies))
        doubts = [(rule, _explain_program(part, words)) for rule in every[:1]]
        doubts += ((rule, _explain_command(rule.command, part, words, call)) for rule in about_commands)
        doubts += ((rule, _explain_files(rule, part, call)) for rule in about_files)
        yield from (PossibleDenial(rule, doubt) for rule, doubt in doubts if doubt)
    for rule in every[:1]:
        yield from (PossibleDenial(rule, doubt) for doubt in analysis.doubts)
    for rule in about_files:
        for target in (redirect.target for redirect in analysis.redirects if not rule.everything):
            if _may_name(rule, target, "", call):
                yield PossibleDenial(rule, f"{quote_short(target.text)} may name such a file")
    for file in analysis.script_files if about_commands else ():
        yield from _check_script(file, analysis, call, about_commands)


def _read_word(word: ShellWord, call: PolicyCall) -> ShellWord:
    """Return a word, cut to its literal start if the rest is only known when it runs."""
    text = word.text if word.literal else _HOME.sub(lambda _: call.scope.environment.home, word.text)
    mark = None if word.literal else _EXPANSION.search(text)
    if mark is None:
        return ShellWord(text)
    return ShellWord(text[: mark.start()], expands=True, splits=word.splits or word.glob)


def _read_words(part: ExtractedCommand, call: PolicyCall) -> list[ShellWord]:
    """Return the words as far as they are known, with those that the command is given when it runs.

    The first one is the name of the program; of git, options before its command are left out.
    """
    words = [_read_word(word, call) for word in part.words]
    for at, word in enumerate(words[1:], 1):
        if part.placeholder and part.placeholder in part.texts[at]:
            words[at] = ShellWord(part.texts[at].split(part.placeholder, 1)[0], expands=True)
        elif part.name in _ABBREVIATING and not _may_be_option(word):
            words[at] = replace(word, expands=True)
    program = part.words[0]
    is_named = program.literal or not (program.splits or part.name in SHELLS or part.name in WRAPPERS)
    if is_named and "/" in program.text and not _EXPANSION.search(part.name):
        # A path in an unknown folder still names the program, and a link the program that it leads to.
        path = _locate(program.text, part.folder, call) if program.literal else None
        words[0] = ShellWord(os.path.realpath(path) if path else part.name)
    words[0] = replace(words[0], text=words[0].text.rsplit("/", 1)[-1])
    if part.name.startswith("git-"):
        words[:1] = [ShellWord("git"), ShellWord(part.name[4:])]
    elif part.name == "git":
        end = len(part.texts) - len(skip_git_options(part.texts[1:]))
        words[1:end] = words[1:end] if any(word.splits for word in words[1:end]) else ()
    return [*words, ShellWord("", expands=True, splits=True)] if part.is_open else words


def _may_be_option(word: ShellWord) -> bool:
    return word.text[:1] == "-" != word.text or (word.expands and not word.text)


def _locate(path: str, folder: str | None, call: PolicyCall) -> str | None:
    """Return the absolute path of a file that a command names, or None if its folder is not known."""
    if folder is None and not path.startswith("/"):
        return None
    return os.path.join(call.cwd, call.scope.environment.expand_home(folder or ""), path)  # noqa: PTH118


def _explain_program(part: ExtractedCommand, words: Sequence[ShellWord]) -> str:
    """Return why a command may run any program, as a clause, or ""."""
    if words[0].expands:
        return f"the program {quote_short(part.words[0].text)} is only known when it runs"
    # A word of which nothing is known may be an option.
    given = (text if word.text else "-" for word, text in zip(words[1:], (*part.texts[1:], "-"), strict=False))
    if is_given_code((part.texts[0], *given), has_input=bool(part.stdin_texts)):
        return f"what {part.name} does with its text is only known when it runs"
    verb = _find_git_verb(part)
    return f"git {verb} may be an alias" if re.fullmatch(r"[A-Za-z][\w-]*", verb) and verb not in GIT_COMMANDS else ""


def _find_git_verb(part: ExtractedCommand) -> str:
    return next(iter(skip_git_options(part.texts[1:])), "") if part.name == "git" else ""


# --- rules for commands ---


def _explain_command(
    pattern: CommandPattern, part: ExtractedCommand, words: Sequence[ShellWord], call: PolicyCall
) -> str:
    """Return why a command may match the pattern, as a clause, or ""."""
    if not pattern.words:
        return ""
    if _may_match(pattern, words):
        unknown = next((word.text for word in part.words if not word.literal), "")
        means = f"it is only known when it runs what {quote_short(unknown)} means"
        return means if unknown else f"{quote_short(' '.join(part.texts))} may be that command"
    program = pattern.words[0].rsplit("/", 1)[-1]
    if part.name in _COPYING and any(program == re.split(r"[/\s]", text.rstrip("/ )`"))[-1] for text in part.texts[1:]):
        return f"it makes another name for {program}"
    if part.name in _NO_RUNNERS:
        return ""
    path = _locate(part.texts[0], part.folder, call) if "/" in part.texts[0] and part.words[0].literal else None
    if path and pattern.is_mentioned_in(_read_script(path)):
        return f"the script {part.texts[0]} names that command"
    given = list(takewhile(lambda word: word.text not in _INSTALLING, part.words[1:]))
    if pattern.is_mentioned_in("\0".join([*part.stdin_texts, *(word.text for word in given if " " in word.text)])):
        return f"{part.name} may run its text"
    for at, word in enumerate(given, 1):
        name = ShellWord(word.text.rsplit("/", 1)[-1])
        if word.literal and matches_word(program, name.text) and _may_match(pattern, [name, *words[at + 1 :]]):
            return f"{part.name} may run {quote_short(word.text)}"
    return ""


def _may_match(pattern: CommandPattern, words: Sequence[ShellWord]) -> bool:
    """True if a command of these words may match: up to a lone `*`, each word of the pattern may be found in turn.

    Options and their values may come between them. `found` are the numbers of words that may have been found.
    """
    operands, flags = separate_options(pattern.words)
    wanted = list(takewhile(lambda word: word != "*", operands))
    options = [word for word in words[1:] if _may_be_option(word)]
    _, given = separate_options([word.text for word in options if not word.expands])
    is_whole = not pattern.is_prefix and not any(map(has_wildcard, pattern.words))
    missing = {flag for flag in flags - given if not any(len(item) > 3 and flag.startswith(item) for item in given)}
    if not wanted or (is_whole and not given <= flags) or (missing and not any(word.expands for word in options)):
        return False
    wanted[0] = wanted[0].rsplit("/", 1)[-1]
    found = {0}
    is_value = False
    for word in words:
        after = {at + 1 for at in found if at < len(wanted) and _may_be(word, wanted[at])}
        if _may_be_option(word) or is_value:
            after |= found - {0}
        if word.splits and after:
            after = set(range(min(after), len(wanted) + 1))
        found, is_value = after, _may_be_option(word)
        if len(wanted) in found and not is_whole:
            return True
    return len(wanted) in found


def _may_be(word: ShellWord, wanted: str) -> bool:
    if not word.expands:
        return matches_word(wanted, word.text)
    start, *more = re.split(r"[*?]", wanted)
    return start.startswith(word.text) or (bool(more) and word.text.startswith(start))


def _check_script(
    file: ShellFile, analysis: CommandAnalysis, call: PolicyCall, rules: Sequence[Rule]
) -> Iterator[PossibleDenial]:
    """Check the script that a shell is told to run like the command itself."""
    path = _locate(file.path, file.folder, call) or ""
    text = _read_script(path)
    before = [part for part in analysis.commands[: file.position - 1] if part.name not in _NO_FILES | WRAPPERS.keys()]
    only_reads = all(read_call(part.words) and all(word.literal for word in part.words) for part in before)
    targets = (item.target for item in analysis.writes)
    written = (_locate(target.text, file.folder, call) if target.literal else None for target in targets)
    if not text:
        yield PossibleDenial(rules[0], f"the script {file.path} cannot be read")
    elif not only_reads or any(os.path.realpath(other or path) == os.path.realpath(path) for other in written):
        yield PossibleDenial(rules[0], f"the script {file.path} may be changed before it runs")
    else:
        script = analyze_command(text)
        is_activation = Path(path).name.startswith("activate") and (Path(path).parents[1] / "pyvenv.cfg").is_file()
        doubts = () if is_activation else script.doubts  # it sets PATH for a virtual environment
        yield from (PossibleDenial(rules[0], f"{file.path} runs {other.path}") for other in script.script_files)
        for found in _find_doubts(call, replace(script, doubts=doubts, script_files=()), rules):
            yield PossibleDenial(found.rule, f"in the script {file.path}, {found.doubt}")


def _read_script(path: str) -> str:
    try:
        is_small = os.path.isfile(path) and os.path.getsize(path) <= _MAX_SCRIPT_BYTES  # noqa: PTH113, PTH202
        return Path(path).read_text("utf-8", "replace") if is_small else ""
    except (OSError, ValueError):
        return ""


# --- rules for files ---


def _explain_files(rule: Rule, part: ExtractedCommand, call: PolicyCall) -> str:
    """Return why a command may open a file that the rule names, as a clause, or ""."""
    if rule.tool == "Read" and _searches_folder(part):
        return "it opens every file below a folder (Grep leaves out denied files)"
    is_reading = part.name not in _NO_FILES and (part.name != "git" or _find_git_verb(part) in GIT_READERS)
    if rule.everything or not is_reading:
        return ""
    if part.is_open or part.placeholder or (part.is_inner and any("{}" in text for text in part.texts)):
        return f"the files that {part.name} is given are only known when it runs"
    for before, word in pairwise(part.words):
        if before.text not in _TEXT_OPTIONS and _may_name(rule, word, part.folder, call):
            return f"{quote_short(word.text)} may name such a file"
    return ""


def _searches_folder(part: ExtractedCommand) -> bool:
    if part.name in ("rg", "ag", "ack") or (part.name == "git" and "grep" in part.texts[1:]):
        return True
    return part.name in ("grep", "egrep", "fgrep", "diff") and any(
        re.match(r"-\w*[rRd]|--(dereference-)?recurs", text) for text in part.texts[1:]
    )


def _may_name(rule: Rule, word: ShellWord, folder: str | None, call: PolicyCall) -> bool:
    """True if a word that is not literal, or is relative to another folder, may be the path of a denied file."""
    if folder == "" and not word.expands:
        # The files that a glob matches are compared as words, unless there are too many.
        return word.glob and len(expand_glob(word.text, call.cwd)) >= MAX_MATCHES
    known = _read_word(word, call)
    if not known.expands:
        path = _locate(known.text, folder, call)
        forms = find_path_forms(path or f"{call.root}/{known.text}", "/")
        is_named = any(matches_path_loosely(rule.pattern, item, call.scope, rule.root) for item in forms)
        return not _may_be_option(known) and (is_named or (path is None and "/" in rule.pattern))
    is_free = word.splits and re.search(r"[$`]", word.text) is not None
    end = None if is_free else re.search(r"[/.][\w.-]*$", word.text)
    _, slash, name = (end[0].casefold() if end else "").rpartition("/")
    wanted = rule.pattern.rpartition("/")[2].casefold() or "*"
    tail = re.split(r"[*?]", wanted)[-1]
    return matches_word(wanted, name) if slash else tail.endswith(name) or (tail != wanted and name.endswith(tail))
