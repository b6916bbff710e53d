"""Which prefix rules would allow anything, because their program runs what its arguments say.

`Bash(python3:*)`, `Bash(sed:*)` and `Bash(timeout:*)` look like rules for one program, but allow every other. A rule is
narrow enough if its own words say what runs: `Bash(python3 build.py:*)`, `Bash(timeout 60 make:*)`. Programs that run
what the project defines (`make`, `npm run`, `pytest`) are, too: their escape options are not covered (see `programs`).
"""

import re
from collections.abc import Sequence

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
