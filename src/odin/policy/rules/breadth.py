"""Which programs run what their arguments say: a prefix rule for one would allow anything.

`Bash(python3:*)`, `Bash(sed:*)` and `Bash(timeout:*)` look like rules for one program, but allow every other. A rule is
narrow enough if its own words say what runs: `Bash(python3 build.py:*)`, `Bash(timeout 60 make:*)`. Programs that run
what the project defines (`make`, `npm run`, `pytest`) are, too: their escape options are not covered (see `programs`).
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from odin.policy.commands.programs import (
    FREE_RUNS,
    INTERPRETERS,
    NAMED_RUNS,
    SHELLS,
    WRAPPERS,
    find_running_command,
    is_assignment,
    skip_options,
)
from odin.policy.commands.syntax import ShellWord, split_names
from odin.policy.rules.pattern import has_wildcard

_PLAIN_OPTIONS = re.compile(r"-[ABOsuvqwby]+|--(?:yes|quiet|silent|frozen|locked|offline|no-sync|no-install|[\w-]+=.*)")
"""Options of interpreters, and of commands that run others, that contain no code and take no further word."""

_CODE_MODULES = split_names("timeit code pdb ipdb IPython")


def find_open_program(words: Sequence[str]) -> str:
    """Return the program that runs what follows the words of a rule; "" if the words say what runs."""
    while words:
        program, *rest = words
        name = program.rsplit("/", 1)[-1]
        if _is_unnamed(program):
            return program
        running = find_running_command(words)
        free, named = FREE_RUNS.get(name), NAMED_RUNS.get(name)
        if free is not None and (not free or not rest or running in free.split()):
            return f"{name} {running}".strip()
        inner: Sequence[str]
        if name in WRAPPERS:
            wrapper = WRAPPERS[name]
            given = skip_options([ShellWord(text) for text in rest], wrapper.short_valued, wrapper.long_valued)
            inner = [word.text for word in given[wrapper.operands :]]
            while inner and is_assignment(ShellWord(inner[0])):
                inner = inner[1:]
        elif running or named == "":
            inner = rest[rest.index(running) + 1 :] if running else rest
            while inner and _PLAIN_OPTIONS.fullmatch(inner[0]):
                inner = inner[1:]
            if inner and inner[0].startswith("-"):
                return name
        elif name in SHELLS or INTERPRETERS.fullmatch(name):
            return "" if _has_script(rest, is_tool=named is not None) else name
        else:
            return ""
        if not inner:
            return name
        words = inner
    return ""


def _is_unnamed(word: str) -> bool:
    """True if a word may be any name. `scripts/*` may only be a file of one folder."""
    return has_wildcard(word) and "/" not in re.split(r"[*?]", word, maxsplit=1)[0]


def _has_script(words: Sequence[str], *, is_tool: bool) -> bool:
    """True if the words after an interpreter name a script, a module, or a command of its own if it `is_tool`."""
    for at, text in enumerate(words):
        if text in ("--test", "--check"):
            return True
        if text == "-m" and not is_tool:
            module = words[at + 1] if at + 1 < len(words) else "*"
            return not has_wildcard(module) and module not in _CODE_MODULES
        if not _PLAIN_OPTIONS.fullmatch(text):
            return not text.startswith("-") and not _is_unnamed(text)
    return False


_CONSOLES = split_names("sqlite3 psql mysql mariadb")
_INQUIRIES = (("--version",), ("-V",), ("-v",), ("--help",), ("-h",))
_CODE_OPTION = re.compile(r"-\w{0,3}[BREcepr]|--(?:eval|print|exec|run)")
_SED_OPTION = re.compile(r"-(?=.)[nErsuz]*(?:e|i\S*)?|--(?:quiet|silent|regexp-extended|in-place(?:=.*)?|expression)")
_SED_SCRIPT = re.compile(
    r"(?:[\s;{}!,~+\d$dDpPqQgGhHxnNl=]|/(?:\\.|[^/\\])*/|[sy](.)(?:(?:\\.|(?!\1)[^\\])*\1){2}[gpiI\d]*|[aic][^\n]*"
    r"|[:btT] *\w*)*+"
)
"""A script for sed that neither runs anything nor opens a file."""


def is_given_code(texts: Sequence[str], *, has_input: bool) -> bool:
    """True if a program runs text in its own language, not a script or a module: `python3 -c`, `awk`, `ed`.

    A text of which nothing is known is given as `-`. `has_input`: a text on its standard input is known.
    """
    name, given = texts[0].rsplit("/", 1)[-1], tuple(texts[1:])
    if name in NAMED_RUNS and (find_running_command(texts) or not NAMED_RUNS[name]):
        at = next((at for at, text in enumerate(given[:4]) if INTERPRETERS.fullmatch(text)), len(given))
        if given[at + 1 :] or (has_input and given[at:]):
            return is_given_code(given[at:], has_input=has_input)
    if name in ("sed", "gsed"):
        return not _is_plain_sed(given)
    if name in ("less", "more"):
        return any(text.startswith("+") for text in given)
    if not INTERPRETERS.fullmatch(name):
        return name in _CONSOLES
    own = FREE_RUNS.get(name, "eval")
    if not given or not own or any(option == "-m" and module in _CODE_MODULES for option, module in pairwise(given)):
        return True
    if given in _INQUIRIES:
        return has_input
    if given[0] == "-m" or not given[0].startswith("-"):
        return given[0] in own.split()
    reads_input = has_input or "-" in given or all(re.fullmatch(r"-\w*", text) for text in given)
    return reads_input or any(map(_CODE_OPTION.match, given))


def _is_plain_sed(given: Sequence[str]) -> bool:
    while given and given[-1] == "-":
        given = given[:-1]
    options = [text for text in given if text.startswith("-")]
    scripts = [text for before, text in pairwise(given) if re.fullmatch(r"-\w*e|--expression", before)]
    scripts = scripts or [text for text in given if text and not text.startswith("-")][:1]
    return bool(scripts) and all(map(_SED_OPTION.fullmatch, options)) and all(map(_SED_SCRIPT.fullmatch, scripts))
