"""What is refused whatever anyone says: commands that would take the machine, a disk, a home or the project with them.

No mode, flag or rule allows these. The list is not a wall against malice; it stops the accident that cannot be undone.
"""

import re
from itertools import pairwise

from odin.policy.command.ruinous.machine import MACHINE, disk_redirect, formats
from odin.policy.command.ruinous.removal import (
    REMOVERS,
    Check,
    found_removal,
    mirroring,
    moving,
    piped_removal,
    removal,
    rights,
    uncertain_removal,
)
from odin.policy.command.ruinous.targets import Harm, Place, place_of
from odin.policy.command.shapes import named
from odin.policy.command.survey import Part, Survey
from odin.policy.command.wrappers import SHELLS

_UNREAD_REMOVAL = re.compile(
    r"\brm\s+(?:-\S+\s+)*-[a-zA-Z]{0,20}[rR][a-zA-Z]{0,20}\s+(?:-\S+\s+)*"
    r"['\"]?(?:/|~|\$HOME|\$\{HOME\})['\"]?/?\*?(?:\s|$|[;&|)'\"])"
)
"""The crude second look for text that could not be read: a recursive removal of / or HOME."""
_CALLS = re.compile(r"system|exec|popen|subprocess|spawn|qx|`|%x")
_RMTREE = re.compile(r"(?:rmtree|rm_rf|rm_r|rmSync|rmdirSync|removeSync|remove_dir_all)\W{1,4}(?:/|~|\.)?['\"]\s*[),]")
_FORK_BOMB = re.compile(r"([\w:.]{1,32})\s*\(\s*\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1")
_UNSEEN = SHELLS | named("eval su runuser script source . xargs parallel")
_INTERPRETERS = re.compile(r"(?:python|pypy|perl|ruby|node|nodejs|php|lua|awk|gawk|mawk|deno|bun)[\d.]*")


def critical(command: str, seen: Survey, root: str, cwd: str = "") -> Harm:
    """Why this command may never run, as the end of a sentence ("it ..."), or ""."""
    place = place_of(seen, root, cwd)
    if _is_fork_bomb(command, seen):
        return "it is a fork bomb"
    why = disk_redirect(seen, place) if seen.redirects else ""
    for part in seen.parts:
        why = why or _part(part, place)
    return why or piped_removal(seen.parts, place) or _unread(command, seen)


def risky(seen: Survey, root: str, cwd: str = "") -> Harm:
    """What is dangerous about a command that is only asked about, as the end of a sentence, or ""."""
    place = place_of(seen, root, cwd)
    for part in seen.parts:
        if part.name.casefold() in REMOVERS:
            why = uncertain_removal(part, place)
            if why:
                return why
    return ""


def _part(part: Part, place: Place) -> Harm:
    name = part.name.casefold().removesuffix(".exe")
    for check in (_CHECKS.get(name), MACHINE.get(name)):
        why = check(part, place) if check else ""
        if why:
            return why
    if _INTERPRETERS.fullmatch(name):
        return _interpreted(part)
    return formats(part, place)


def _interpreted(part: Part) -> Harm:
    """A program given on the command line that removes everything, in so many words."""
    for text in part.texts[1:]:
        if (_UNREAD_REMOVAL.search(text) and _CALLS.search(text)) or _RMTREE.search(text):
            return "it looks like the removal of everything"
    return ""


def _unread(command: str, seen: Survey) -> Harm:
    if seen.sure or (seen.script is not None and not any(part.name in _UNSEEN for part in seen.parts)):
        return ""
    if _UNREAD_REMOVAL.search(command):
        return "it looks like the removal of everything, and it cannot be read with certainty"
    return ""


def _is_fork_bomb(command: str, seen: Survey) -> bool:
    if "(" in command and _FORK_BOMB.search(command):
        return True
    if not seen.functions or "&" not in command or seen.script is None:
        return False
    commands = seen.script.commands
    return any(
        simple.after == "|"
        and simple.nested
        and simple.words
        and before.words
        and simple.words[0].text == before.words[0].text
        and simple.words[0].text in seen.functions
        for before, simple in pairwise(commands)
    )


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(REMOVERS, removal),
    "find": found_removal,
    "mv": moving,
    "rsync": mirroring,
    **dict.fromkeys(("chmod", "chown", "chgrp", "chattr", "setfacl"), rights),
}
