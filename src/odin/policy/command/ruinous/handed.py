"""Texts that a program hands to a shell: editors, terminals, schedulers, archivers and their like."""

import re
from collections.abc import Iterator

from odin.policy.command.shapes import named
from odin.policy.command.survey import Part

_WHOLE = named(
    "tmux screen at batch npx npm pnpm yarn bunx bun alias watchexec nodemon concurrently capsh nix-shell nix make "
    "gmake just entr tcsh kitty xterm gnome-terminal konsole wezterm alacritty zellij systemd-cat cronic ssh"
)
_AFTER_MARK: dict[str, str] = {
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
_FILTERING = named("filter-branch filter-repo bisect rebase")


def handed(part: Part) -> Iterator[str]:
    """The texts among the words of a command that it would give to a shell."""
    name = part.name.casefold()
    if name in ("at", "batch", "make", "gmake", "crontab", "source", "."):
        yield from part.fed
    if name == "git" and any(text in _FILTERING for text in part.texts[1:]):
        yield from (text for text in part.texts[1:] if " " in text)
    mark = _AFTER_MARK.get(name)
    for text in part.texts[1:]:
        if " " not in text:
            continue
        if name in _WHOLE:
            yield text.partition("=")[2] if name == "alias" else text
        elif mark is not None:
            for found in re.finditer(mark, text):
                yield next((group for group in found.groups() if group), "")
