"""Texts that a program hands to a shell: editors, terminals, schedulers, archivers and their like."""

import re
from collections.abc import Iterator

from odin.policy.command.shapes import split_names
from odin.policy.command.survey import ExtractedCommand

_DELEGATING_PROGRAMS = split_names(
    "tmux screen at batch npx npm pnpm yarn bunx bun alias watchexec nodemon concurrently capsh nix-shell nix make "
    "gmake just entr tcsh kitty xterm gnome-terminal konsole wezterm alacritty zellij systemd-cat cronic ssh"
)
_DELEGATED_TEXT: dict[str, str] = {
    **dict.fromkeys(
        ("vim", "vi", "nvim", "ex", "view", "vimdiff", "ed", "less", "gdb", "lldb"), r"!+\s*(.+)|system\((.+)"
    ),
    **dict.fromkeys(("sed", "gsed"), r"(?:^|[;\n{]|\d|\$|/)\s*e\s+(.+)"),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), r"(?:exec=|command=|program=)(.+)"),
    "git": r"^(?:[\w.-]+=)?!(.+)",
    "sqlite3": r"\.(?:shell|system)\s+(.+)",
    "psql": r"\\!\s*(.+)",
    "zip": r"(.+)",
}
_GIT_RUNNERS = split_names("filter-branch filter-repo bisect rebase")


def find_delegated_texts(part: ExtractedCommand) -> Iterator[str]:
    """The texts among the words of a command that it would give to a shell."""
    name = part.name.casefold()
    if name in ("at", "batch", "make", "gmake", "crontab", "source", "."):
        yield from part.stdin_texts
    if name == "git" and any(text in _GIT_RUNNERS for text in part.texts[1:]):
        yield from (text for text in part.texts[1:] if " " in text)
    mark = _DELEGATED_TEXT.get(name)
    for text in part.texts[1:]:
        if " " not in text:
            continue
        if name in _DELEGATING_PROGRAMS:
            yield text.partition("=")[2] if name == "alias" else text
        elif mark is not None:
            for found in re.finditer(mark, text):
                yield next((group for group in found.groups() if group), "")
