"""Which folder each command of a line runs in, when `cd` is among them."""

import os

from odin.policy.command.shapes import ShellScript, SimpleCommand
from odin.policy.paths import contains, is_folder, resolve_path

CommandStep = tuple[SimpleCommand, str]
"""One command and a folder it may run in. A command that may run in either of two is there twice."""

_MAX_FOLDERS = 6


def locate_steps(script: ShellScript, cwd: str, root: str) -> list[CommandStep] | None:
    """The commands of a plain script with every folder each may run in; None when that is not certain.

    After `cd x &&` the next command runs there. After `cd x;` it runs there, or where it was when `cd` has failed.
    """
    here, top = resolve_path(cwd, "/"), resolve_path(root, "/")
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
    return name.startswith("/") and name != here and resolve_path(name, "/") == here


def _follow_cd(simple: SimpleCommand, cwd: str, root: str, *, upward: bool) -> str | None:
    """Where `cd` leads. Not through links: from there, the shell and the system disagree about what `..` means."""
    words = simple.words
    if len(words) != 2 or not words[1].literal or words[1].text.startswith("-") or not words[1].text:
        return None
    if ".." in words[1].text and not upward:
        return None
    there = os.path.normpath(f"{cwd}/{words[1].text}" if not words[1].text.startswith("/") else words[1].text)
    if resolve_path(words[1].text, cwd) != there or not contains(root, there):
        return None
    return there if is_folder(there) else None
