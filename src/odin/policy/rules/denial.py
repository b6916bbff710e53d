"""Whether a command may do what a deny rule forbids, although nothing in its text matches the rule.

What cannot be resolved without running the command counts as a possible match: an unknown program of every rule, an
unknown word of every rule for its program. Such a command needs approval, and where Odin does not ask it is denied.

A script that a shell is told to run is read and checked like the command itself.
"""

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from odin.policy.command_scope import CommandScope
from odin.policy.commands.analysis import analyze_command, is_step_read_only
from odin.policy.commands.destructive.embedded_code import SHELL_LINE, TEXT_PROGRAMS, find_delegated_texts
from odin.policy.commands.git_config import may_be_alias
from odin.policy.commands.programs import INTERPRETERS, PASS_THROUGH, SHELLS, WRAPPERS
from odin.policy.commands.readonly.check import READ_ONLY_COMMANDS
from odin.policy.commands.readonly.options import TooManyMatches, find_matches
from odin.policy.commands.syntax import (
    CommandAnalysis,
    ExtractedCommand,
    ShellFile,
    ShellWord,
    SimpleCommand,
    quote_short,
    split_names,
)
from odin.policy.policy_call import PolicyCall, find_path_forms
from odin.policy.rules.pattern import GIT_VALUED_OPTIONS, CommandPattern, matches_path_loosely
from odin.policy.rules.possible_match import VariableValues, WordForms, WordPiece, expand_forms, may_match
from odin.policy.rules.rule import Rule

_MAX_SCRIPT_CHARS = 100_000
_MAX_DEPTH = 3
_INSTALLING = split_names("install add i uninstall remove update upgrade info show search view why list ls docs help")
_COPYING = split_names("cp ln mv install rsync link")
_LOOKUP = re.compile(r"(?:which|command\s+-v|type\s+-p)\s+([\w.-]+)")
_STARTS_PROGRAMS = re.compile(
    r"\b(?:system|e?syscmd|popen\w*|subprocess|spawn\w*|exec\w*|fork|child_process|posix_spawn|pty|eval|compile|__import__|importlib"
    r"|getattr|ctypes|builtins|globals|check_output|check_call|shell_exec|passthru|proc_open|runpy|getline)\b|`|%x|\bqx\b|\|&"
    rf"|Sys\.command|{SHELL_LINE}",
    re.MULTILINE,
)
"""Words in code of other languages that can start a program."""


class PossibleDenial(Struct, frozen=True):
    """The rule that may apply, and what could not be resolved, as a clause."""

    rule: Rule
    doubt: str


def find_possible_denial(call: PolicyCall, rules: Sequence[Rule]) -> PossibleDenial | None:
    """Return the first rule that a command may match and why that is not certain, or None."""
    if call.analysis is None or not rules:
        return None
    about_commands = [rule for rule in rules if not rule.bare and is_about_commands(rule, call)]
    about_files = [
        rule for rule in rules if not rule.bare and not rule.everything and rule.tool in ("Read", "EditTool")
    ]
    doubt = next(iter(call.analysis.doubts), "")
    for rule in (*about_commands, *about_files) if doubt else ():
        return PossibleDenial(rule, doubt)
    if about_commands:
        check = _CommandCheck(call.scope, about_commands)
        found = check.check_analysis(call.analysis)
        if found is not None:
            return found
    return _PathCheck(call, call.analysis, about_files).check_analysis() if about_files else None


def is_about_commands(rule: Rule, call: PolicyCall) -> bool:
    return rule.is_about_tool(call) or rule.tool == "ExecuteCommand"


class _CommandCheck:
    """Checks the commands of a text, and of the scripts it runs, against rules for commands."""

    def __init__(self, scope: CommandScope, rules: Sequence[Rule], depth: int = 0) -> None:
        self._scope = scope
        self._rules = rules
        self._depth = depth

    def check_analysis(self, analysis: CommandAnalysis) -> PossibleDenial | None:
        values = VariableValues(analysis, self._scope)
        for part in analysis.commands:
            found = self._check_part(part, expand_forms(part, values), analysis)
            if found is not None:
                return found
        for file in analysis.script_files:
            found = self._check_script_file(file, analysis)
            if found is not None:
                return found
        return None

    # --- one command ---

    def _check_part(
        self, part: ExtractedCommand, forms: Sequence[WordForms], analysis: CommandAnalysis
    ) -> PossibleDenial | None:
        if not all(not form or form[0].is_exact for form in forms[0]):
            return PossibleDenial(self._rules[0], f"the program {quote_short(part.words[0].text)} is not known")
        for rule in self._rules:
            doubt = _find_doubt(rule.command, part, forms) or _find_code_doubt(rule.command, part, analysis)
            doubt = doubt or self._find_alias(rule.command, part, analysis)
            if doubt:
                return PossibleDenial(rule, doubt)
        name = part.words[0].text
        if "/" in name and part.words[0].literal and part.name not in SHELLS:
            # Check a program given by its path: a link to another program, or a script that names a denied command.
            path = self._locate(name, part.folder)
            if path is None:
                return None
            target = os.path.basename(os.path.realpath(path))  # noqa: PTH119
            renamed = ((WordPiece(target),),) if target != os.path.basename(path) else None  # noqa: PTH119
            text = _read_script(path, *_read_stamp(path))
            for rule in self._rules:
                if (
                    renamed is not None
                    and rule.command.words
                    and may_match(CommandPattern(rule.command.words[:1]), [renamed])
                ):
                    return PossibleDenial(rule, f"{name} is a link to {target}")
                if text and rule.command.is_mentioned_in(text):
                    return PossibleDenial(rule, f"the script {name} names that command")
            return None
        return None

    def _find_alias(self, pattern: CommandPattern, part: ExtractedCommand, analysis: CommandAnalysis) -> str:
        """Return a doubt if a git subcommand is an alias that may stand for a denied one."""
        if part.name != "git" or len(pattern.words) < 2 or pattern.words[0].rsplit("/", 1)[-1] != "git":
            return ""
        verb = _find_git_verb(part)
        folder = self._locate("", part.folder) or self._scope.cwd
        set_here = any("alias." in text for other in analysis.commands for text in other.texts)
        if not verb or not (set_here or may_be_alias(verb, folder.rstrip("/"), self._scope.environment)):
            return ""
        return f"git {verb} may be an alias"

    # --- scripts ---

    def _locate(self, path: str, folder: str | None) -> str | None:
        if folder is None or folder.startswith("~"):
            return None
        return os.path.join(self._scope.cwd, folder, path)  # noqa: PTH118 (an absolute part replaces those before it)

    def _check_script_file(self, file: ShellFile, analysis: CommandAnalysis) -> PossibleDenial | None:
        rule = self._rules[0]
        path = self._locate(file.path, file.folder)
        text = _read_script(path, *_read_stamp(path)) if path is not None else None
        if path is None or text is None or self._depth >= _MAX_DEPTH:
            return PossibleDenial(rule, f"the script {file.path} cannot be read")
        if self._may_change(path, file, analysis):
            return PossibleDenial(rule, f"the script {file.path} may be changed before it runs")
        mentioned = next((rule for rule in self._rules if rule.command.is_mentioned_in(text)), None)
        if mentioned is not None:
            return PossibleDenial(mentioned, f"the script {file.path} names that command")
        if _is_activation(path):
            return None
        inner = analyze_command(text)
        if inner.doubts:
            return PossibleDenial(rule, f"the script {file.path} cannot be fully analyzed: {inner.doubts[0]}")
        found = _CommandCheck(self._scope, self._rules, self._depth + 1).check_analysis(inner)
        return PossibleDenial(found.rule, f"in the script {file.path}, {found.doubt}") if found is not None else None

    def _may_change(self, path: str, file: ShellFile, analysis: CommandAnalysis) -> bool:
        """True if the command may change a script before it runs it."""
        for redirect in analysis.writes:
            target = self._locate(redirect.target.text, file.folder)
            if not redirect.target.literal or target is None or os.path.realpath(target) == os.path.realpath(path):
                return True
        return not all(
            part.name in WRAPPERS or is_step_read_only(SimpleCommand(part.words), self._scope)
            for part in analysis.commands[: file.position - 1]
        )


def _find_doubt(pattern: CommandPattern, part: ExtractedCommand, forms: Sequence[WordForms]) -> str:
    """Return why a command may match the pattern, as a clause, or ""."""
    if not pattern.words:
        return ""
    if may_match(pattern, forms):
        unknown = next((word.text for word in part.words if not word.literal), "")
        if unknown:
            return f"{quote_short(unknown)} is only known when it runs"
        if part.is_open or part.placeholder:
            return f"some words of {part.name} are only known when it runs"
        return f"{quote_short(' '.join(part.texts))} may mean the same"
    program = pattern.words[0].rsplit("/", 1)[-1]
    if part.name in _COPYING and any(program in _find_names(word) for word in part.words[1:]):
        return f"it makes another name for {program}"
    # There is doubt if an unknown program is given the words of the pattern, which it may run (`uv run`, `npx`).
    name = part.name
    if name in TEXT_PROGRAMS or name in READ_ONLY_COMMANDS or name in SHELLS or name in WRAPPERS:
        return ""
    if name not in PASS_THROUGH and any(map(pattern.is_mentioned_in, part.stdin_texts)):
        return f"{name} may run what its input names"
    for index, word in enumerate(part.words[1:], 1):
        if word.text in _INSTALLING:
            return ""
        if " " in word.text and pattern.is_mentioned_in(word.text):
            return f"{name} may run {quote_short(word.text)}"
        if word.literal and not word.text.startswith("-") and may_match(pattern, forms[index:]):
            return f"{name} may run the words after it"
    return ""


def _find_git_verb(part: ExtractedCommand) -> str:
    texts = list(part.texts[1:])
    while texts and texts[0].startswith("-"):
        texts = texts[2 if texts[0] in GIT_VALUED_OPTIONS else 1 :]
    return texts[0] if texts and re.fullmatch(r"[a-z][\w-]*", texts[0]) else ""


def _find_names(word: ShellWord) -> set[str]:
    return {word.text.rsplit("/", 1)[-1], *_LOOKUP.findall(word.text)}


def _find_code_doubt(pattern: CommandPattern, part: ExtractedCommand, analysis: CommandAnalysis) -> str:
    """Return a doubt about code that an interpreter is given, or text that a program passes to a shell."""
    if any(pattern.is_mentioned_in(text) for text in find_delegated_texts(part)):
        return f"{part.name} is given that command as text"
    if INTERPRETERS.fullmatch(part.name) is None:
        return ""
    for text in _find_code(part, analysis):
        if pattern.is_mentioned_in(text):
            return f"the code for {part.name} names that command"
        if _STARTS_PROGRAMS.search(text):
            return f"the code for {part.name} can start any program"
    return ""


def _find_code(part: ExtractedCommand, analysis: CommandAnalysis) -> Iterator[str]:
    texts = part.texts[1:]
    for index, text in enumerate(texts[:-1]):
        if re.fullmatch(r"-[A-Za-z]*[ceErRp]|--eval|--print|--command|--run", text):
            yield texts[index + 1]
    if "awk" in part.name:
        yield from texts
    yield from part.stdin_texts
    if analysis.script is not None:
        yield from analysis.script.bodies


def _is_activation(path: str) -> bool:
    """True for the activation script of a virtual environment, which only sets variables."""
    folder, _, name = path.rpartition("/")
    return name.startswith("activate") and os.path.isfile(f"{folder}/../pyvenv.cfg")  # noqa: PTH113


def _read_stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return (0, 0)
    return (status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=64)
def _read_script(path: str, modified: int, changed: int) -> str | None:
    """Return the text of a script for a shell, or None. The times are part of the key of the cache."""
    try:
        if not Path(path).is_file():
            return None
        with Path(path).open("rb") as file:
            data = file.read(_MAX_SCRIPT_CHARS + 1)
    except (OSError, ValueError):
        return None
    if len(data) > _MAX_SCRIPT_CHARS or b"\0" in data:
        return None
    return data.decode("utf-8", "replace")


# --- rules for files ---

_NO_FILES = split_names(
    "echo printf test [ [[ expr true false : export declare typeset local readonly read set unset shift sleep exit "
    "return cd pushd popd date kill basename dirname seq tr mkdir touch rmdir which type command pwd let wait jobs"
)
"""Programs that do not open the files that their words name."""

_GIT_READERS = split_names("show diff log cat-file grep blame annotate archive apply hash-object stash whatchanged add")
_TEXT_OPTIONS = split_names("-m --message --body --title -t --notes --description --subject --comment")


class _PathCheck:
    """Checks the words of a command that may name files against rules for files."""

    def __init__(self, call: PolicyCall, analysis: CommandAnalysis, rules: Sequence[Rule]) -> None:
        self._call = call
        self._analysis = analysis
        self._rules = rules
        self._values = VariableValues(analysis, call.scope)

    def check_analysis(self) -> PossibleDenial | None:
        for part in self._analysis.commands:
            if part.name in _NO_FILES or (part.name == "git" and _find_git_verb(part) not in _GIT_READERS):
                continue
            if part.is_open or part.placeholder or (part.is_inner and any("{}" in text for text in part.texts)):
                return self._make_doubt(f"the files that {part.name} is given are only known when it runs")
            words = part.words[0 if not part.words[0].literal else 1 :]
            before = ShellWord("")
            for word in words:
                found = None if before.text in _TEXT_OPTIONS else self._check_word(word, part.folder)
                if found is not None:
                    return found
                before = word
        targets = ((redirect.target, "") for redirect in self._analysis.redirects)
        return next((found for word, folder in targets if (found := self._check_word(word, folder))), None)

    def _make_doubt(self, reason: str) -> PossibleDenial:
        return PossibleDenial(self._rules[0], reason)

    def _check_word(self, word: ShellWord, folder: str | None) -> PossibleDenial | None:
        """Check a word that the shell changes, or that is relative to a folder the command changed to."""
        if word.literal and folder == "":
            return None
        pieces = [piece for form in self._values.find_forms(word) for piece in form]
        if not all(piece.is_exact or piece.is_glob for piece in pieces):
            return self._make_doubt(f"{quote_short(word.text)} is only known when it runs")
        try:
            texts = [text for piece in pieces for text in self._find_texts(piece)]
        except TooManyMatches:
            return self._make_doubt(f"{quote_short(word.text)} may be any file")
        for rule in self._rules:
            if any(self._may_name(rule, text, folder) for text in texts if not text.startswith("-")):
                return PossibleDenial(rule, f"{quote_short(word.text)} may name such a file")
        return None

    def _find_texts(self, piece: WordPiece) -> Sequence[str]:
        """Return a piece and, if it is a glob, the names it matches. Raises TooManyMatches."""
        if not piece.is_glob:
            return (piece.text,)
        root = self._call.root
        inside = piece.text.removeprefix(f"{root}/")
        start = "" if inside == piece.text else f"{root}/"
        return (piece.text, *(start + name for name in find_matches(inside, root if start else self._call.cwd)))

    def _may_name(self, rule: Rule, text: str, folder: str | None) -> bool:
        """True if a text may be the path of a denied file. In an unknown folder, its name decides."""
        call = self._call
        if folder is None and not text.startswith("/"):
            return "/" in rule.pattern or matches_path_loosely(rule.pattern, f"{call.root}/{text}", call.scope)
        start = call.scope.environment.expand_home(folder or "")
        forms = find_path_forms(text, os.path.join(call.cwd, start))  # noqa: PTH118
        return any(matches_path_loosely(rule.pattern, form, call.scope) for form in forms)
