"""What is refused whatever anyone says: commands that would take the machine, a disk, a home or the project with them.

No mode, flag or rule allows these. The list is not a wall against malice; it stops the accident that cannot be undone.
"""

import os
import re
from collections.abc import Callable

from odin.policy.command.grammar import Word, named
from odin.policy.paths import contains
from odin.policy.shell import Part, Survey

_TOP_FOLDERS = named(
    "bin boot dev etc home lib lib32 lib64 media mnt opt proc root run sbin srv sys usr var "
    "Applications Library System Users Volumes private"
)
_DISKS = r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|dm-|md)\w*"
_HOMES = ("home", "Users")
_EVERYTHING = ("/", "/*", "*", ".*", "$HOME", "${HOME}", "$PWD", "${PWD}", "$(pwd)", "`pwd`")
_ENDERS = ("shutdown", "reboot", "poweroff", "halt", "diskpart")
_UNREAD_REMOVAL = (
    r"\brm\s+(?:-\S+\s+)*-[a-zA-Z]{0,20}[rR][a-zA-Z]{0,20}\s+(?:-\S+\s+)*"
    r"['\"]?(?:/|~|\$HOME|\$\{HOME\})['\"]?/?\*?(?:\s|$|[;&|)'\"])"
)
"""The crude second look for text that could not be read: a recursive removal of / or HOME."""
_FORK_BOMB = r"([\w:.]{1,32})\s*\(\s*\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1"


def critical(command: str, seen: Survey, root: str) -> str:
    """Why this command may never run, or ""."""
    if "(" in command and re.search(_FORK_BOMB, command):
        return "it is a fork bomb"
    if any(re.match(_DISKS, redirect.target.text) for redirect in seen.writes):
        return "it overwrites a disk"
    for part in seen.parts:
        check = _CRITICAL.get(part.name) or (_mkfs if part.name.startswith("mkfs") else None)
        reason = check(part, root) if check else ""
        if reason:
            return reason
    if not seen.sure and re.search(_UNREAD_REMOVAL, command):
        return "it looks like the removal of everything, and it cannot be read with certainty"
    return ""


def _flags(part: Part) -> set[str]:
    letters: set[str] = set()
    for text in part.texts[1:]:
        if text == "--":
            break
        if text.startswith("--"):
            letters.add(text.split("=", 1)[0])
        elif text.startswith("-"):
            letters.update(text[1:])
    return letters


def _operands(part: Part) -> list[Word]:
    return [word for word in part.words[1:] if not word.text.startswith("-")]


def _remove(part: Part, root: str) -> str:
    recursive = _flags(part) & {"r", "R", "--recursive"}
    if recursive and any(_vital(word, root) for word in _operands(part)):
        return "it removes a whole tree: a home, the project, or more"
    if "--no-preserve-root" in _flags(part):
        return "it removes the root of the file system"
    return ""


def _vital(word: Word, root: str) -> bool:
    """Whether this names the file system, a home, the project itself or what lies above it, or might do so."""
    text = word.text.rstrip("/").removesuffix("/*").removesuffix("/.*") or "/"
    if text in _EVERYTHING or re.fullmatch(r"~[\w.-]*", text):
        return True
    if re.fullmatch(r"\$\w+|\$\{\w+\}", text) and word.text != text:
        return True  # with an empty variable, "$DIR"/* means /*
    if not text.startswith("/"):
        return re.fullmatch(r"(\.\./)*\.\.?", os.path.normpath(text)) is not None
    names = [name for name in os.path.normpath(text).split("/") if name]
    if not names or (len(names) == 1 and names[0] in _TOP_FOLDERS) or (len(names) == 2 and names[0] in _HOMES):
        return True
    return contains("/" + "/".join(names), root)


def _find_delete(part: Part, root: str) -> str:
    texts = part.texts
    deletes = "-delete" in texts or any(text.rsplit("/", 1)[-1] == "rm" for text in texts)
    starts: list[Word] = []
    for word in part.words[1:]:
        if word.text.startswith(("-", "(", "!")):
            break
        starts.append(word)
    dangerous = any(_vital(word, root) and word.text not in (".", "./") for word in starts)
    return "it removes a whole tree: a home, the project, or more" if deletes and dangerous else ""


def _tree_mode(part: Part, root: str) -> str:
    recursive = _flags(part) & {"R", "--recursive"}
    targets = _operands(part)[1:]
    vital = any(_vital(word, root) and not word.text.startswith((".", "*")) for word in targets)
    return "it changes the rights of a whole system" if recursive and vital else ""


def _disk_dump(part: Part, root: str) -> str:
    onto_disk = any(text.startswith("of=") and re.match(_DISKS, text[3:]) for text in part.texts)
    return "it overwrites a disk" if onto_disk else ""


def _disk_operand(part: Part, root: str) -> str:
    return "it overwrites a disk" if any(re.match(_DISKS, text) for text in part.texts[1:]) else ""


def _kill(part: Part, root: str) -> str:
    return "it ends every process of the user" if "-1" in part.texts[2:] else ""


def _mkfs(part: Part, root: str) -> str:
    return "it formats a disk"


def _system_control(part: Part, root: str) -> str:
    return _end(part, root) if set(part.texts[1:]) & {"poweroff", "reboot", "halt", "kexec", "emergency"} else ""


def _end(part: Part, root: str) -> str:
    return "it stops or reformats the machine"


def _drive(part: Part, root: str) -> str:
    return _mkfs(part, root) if any(text.endswith(":") for text in part.texts[1:]) else ""


def _windows(part: Part, root: str) -> str:
    switches = {text.casefold() for text in part.texts[1:]}
    return "it removes a whole tree" if switches & {"/s", "/f"} else ""


_CRITICAL: dict[str, Callable[[Part, str], str]] = {
    "rm": _remove,
    "find": _find_delete,
    "chmod": _tree_mode,
    "chown": _tree_mode,
    "chgrp": _tree_mode,
    "dd": _disk_dump,
    "tee": _disk_operand,
    "cp": _disk_operand,
    "mv": _disk_operand,
    "wipefs": _disk_operand,
    "shred": _disk_operand,
    "kill": _kill,
    "format": _drive,
    "del": _windows,
    "rmdir": _windows,
    "rd": _windows,
    "systemctl": _system_control,
    **dict.fromkeys(_ENDERS, _end),
}
