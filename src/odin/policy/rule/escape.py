"""Options by which a command does something else than its first words say: write a file, or start another program.

A rule such as `Bash(git log:*)` was given for looking at the log. It does not cover `git log --output=FILE`.
"""

import re
from collections.abc import Sequence

_ESCAPE_LONG_OPTIONS: dict[str, str] = {
    "git": "output output-directory exec upload-pack receive-pack open-files-in-pager ext-diff textconv config "
    "config-env template extcmd exec-path",
    "sort": "output compress-program files0-from",
    "rg": "pre hostname-bin",
    "fd": "exec exec-batch",
    "tar": "to-command checkpoint-action use-compress-program rsh-command info-script new-volume-script",
    "rsync": "rsh rsync-path",
    "curl": "output remote-name config upload-file",
    "wget": "output-document output-file use-askpass execute",
    "go": "exec toolexec overlay",
    "cargo": "config",
    "make": "eval",
    "npm": "script-shell prefix globalconfig userconfig node-options",
    "man": "pager html",
    "less": "log-file",
}
"""Long options by program. Any beginning of one counts, since most programs take it for the whole."""

_ESCAPE_SHORT_OPTIONS: dict[str, str] = {
    "git grep": "O",
    "git rebase": "x",
    "git difftool": "x",
    "git clone": "cu",
    "git format-patch": "o",
    "sort": "oT",
    "fd": "xX",
    "tar": "IF",
    "rsync": "e",
    "curl": "oOKT",
    "wget": "Oo",
    "zip": "T",
    "tree": "o",
    "man": "PH",
    "less": "oO",
    "tcpdump": "zw",
}
"""Short options by program, and for git by its command; also inside a bundle."""

_FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")


_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|node|nodejs|php|lua|[gmn]?awk|deno|bun|osascript|tclsh)[\d.]*")


def contains_code(words: Sequence[str]) -> bool:
    """Whether some word of a command is itself a program, or is run by an option."""
    name = words[0].rsplit("/", 1)[-1]
    return _INTERPRETERS.fullmatch(name) is not None or bool(find_escape_option(words, words[1:]))


def find_escape_option(words: Sequence[str], rest: Sequence[str]) -> str:
    """The first word of the rest that makes the command do something else, or ""."""
    return next(
        (text for text in rest if text.startswith("-") and len(text) > 1 and _is_escape_option(words, text)), ""
    )


def _is_escape_option(words: Sequence[str], text: str) -> bool:
    name = words[0].rsplit("/", 1)[-1]
    if name == "find":
        return text in _FIND_ACTIONS
    if text.startswith("--") or name == "go":
        given = text.lstrip("-").split("=", 1)[0]
        return len(given) > 1 and any(known.startswith(given) for known in _ESCAPE_LONG_OPTIONS.get(name, "").split())
    if name == "git" and words[1].startswith("-"):
        return text.startswith("-c")
    letters = _ESCAPE_SHORT_OPTIONS.get(name, "") or _ESCAPE_SHORT_OPTIONS.get(" ".join(words[:2]), "")
    return any(letter in text[1:] for letter in letters)
