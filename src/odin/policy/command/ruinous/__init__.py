"""What is refused whatever anyone says: commands that would take the machine, a disk, a home or the project with them.

No mode, flag or rule allows these. The list is not a wall against malice; it stops the accident that cannot be undone.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from odin.policy.command.ruinous.glance import TEXTUAL, glance
from odin.policy.command.ruinous.handed import handed
from odin.policy.command.ruinous.machine import MACHINE, disk_redirect, formats
from odin.policy.command.ruinous.removal import (
    REMOVERS,
    Check,
    archiving,
    found_removal,
    mirroring,
    moving,
    piped_removal,
    removal,
    rights,
    searched_removal,
    uncertain_removal,
)
from odin.policy.command.ruinous.scripted import INTERPRETERS, scripted
from odin.policy.command.ruinous.targets import Harm
from odin.policy.command.ruinous.values import Place, forms, place_of
from odin.policy.command.shapes import Word, named
from odin.policy.command.survey import Part, Survey
from odin.policy.command.wrappers import SHELLS

_FORK_BOMB = re.compile(
    r"([\w:.]{1,32})\s*\(\s*\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}\s*;\s*\1"
    r"|\b(\w{1,32})\s*\(\s*\)\s*\{\s*\2\s*&\s*\2\s*&?\s*;?\s*\}"
)
_NAMED = re.compile(r"(?:\$\(|`)\s*(?:which|command\s+-v|type\s+-[pP]|whereis)\s+([\w.-]+)\s*(?:\)|`)")
_FIELDS = re.compile(r"\$\{?IFS\}?")
_MAX_EMBEDDED = 60
_INSTALLING = named("install add i uninstall remove update upgrade info show search view why list ls docs help")


def critical(command: str, seen: Survey, root: str, cwd: str = "") -> Harm:
    """Why this command may never run, as the end of a sentence ("it ..."), or ""."""
    place = place_of(seen, root, cwd)
    if _is_fork_bomb(command, seen):
        return "it is a fork bomb"
    why = disk_redirect(seen, place) if seen.redirects else ""
    for part in dict.fromkeys(seen.parts):
        why = why or _part(part, place, seen)
    return why or piped_removal(seen.parts, place) or _second_look(command, seen, place)


def risky(seen: Survey, root: str, cwd: str = "") -> Harm:
    """What is dangerous about a command that is only asked about, as the end of a sentence, or ""."""
    place = place_of(seen, root, cwd)
    for part in seen.parts:
        if part.name.casefold() in REMOVERS:
            why = uncertain_removal(part, place)
            if why:
                return why
    return ""


def _part(part: Part, place: Place, seen: Survey) -> Harm:
    if not part.words[0].literal:
        named_parts = list(_called(part, place))
        return next((why for why in (_named_part(other, place) for other in named_parts) if why), "")
    why = _named_part(part, place)
    if why:
        return why
    name = part.name.casefold()
    if INTERPRETERS.fullmatch(name):
        return _interpreted(part, place, seen)
    return _embedded(part, place, seen) or _handed(part, place)


def _named_part(part: Part, place: Place) -> Harm:
    """What a command does that goes by its usual name, or by that of a collection of the usual ones."""
    name = part.name.casefold().removesuffix(".exe")
    for known in dict.fromkeys((name, name.removeprefix("g"), name.removeprefix("uu_"))):
        for check in (_CHECKS.get(known), MACHINE.get(known)):
            why = check(part, place) if check else ""
            if why:
                return why
    return formats(part, place)


def _called(part: Part, place: Place) -> Iterator[Part]:
    """The commands that a name which is not written out may stand for: `$x`, `$(which x)`, `/bin/x?`, `{x,y}`."""
    first, rest = part.words[0], part.words[1:]
    text = _NAMED.sub(lambda found: found[1], _FIELDS.sub(" ", first.text))
    text = re.sub(r"\$\{?[@*]\}?|\$\{?x\}?(?=\w)", "", text)
    if first.glob and not first.expands:
        base = text.rsplit("/", 1)[-1]
        yield from (Part((Word(name), *rest), True, part.folder) for name in _CHECKS if fnmatchcase(name, base))
        return
    made = forms(part, Word(text, expands=True), place)
    words = [Word(piece, "$" in piece, "*" in piece) for form in made for piece in form.split()]
    if words:
        yield Part((*words, *rest), True, part.folder)
    if len(made) > 1 or "\0" in text:
        for form in made:
            pieces = [Word(piece, "$" in piece, "*" in piece) for piece in form.split()]
            yield Part((*pieces, *rest), True, part.folder)
    if made and any("\0" in form for form in made):
        letters = {letter for word in rest if re.fullmatch(r"-\w+", word.text) for letter in word.text}
        if {"r", "f"} <= {letter.casefold() for letter in letters}:
            yield Part((Word("rm"), *rest), True, part.folder)


def _interpreted(part: Part, place: Place, seen: Survey) -> Harm:
    """A program given on the command line, or on the standard input, that removes everything in so many words."""
    texts = [*part.texts[1:], *part.fed]
    if seen.script is not None:
        texts += seen.script.bodies
    if any("argv" in text.casefold() for text in texts):
        texts.append(f"system({' '.join(part.texts[1:])})")
    return next((why for text in texts if (why := scripted(text, place, _glance))), "")


def _embedded(part: Part, place: Place, seen: Survey) -> Harm:
    """A removal among the words of a program that is not known, which may well run them: `uv run`, `npx`, `chronic`."""
    if part.name in TEXTUAL or len(part.words) < 3:
        return ""
    for index, word in enumerate(part.words[1:_MAX_EMBEDDED], 1):
        name = word.text.rsplit("/", 1)[-1].casefold()
        if name in _INSTALLING:
            return ""
        inner = Part(part.words[index:], True, part.folder, part.fed)
        if name in _EMBEDDED:
            why = _named_part(inner, place)
        elif index and INTERPRETERS.fullmatch(name):
            why = _interpreted(inner, place, seen)
        elif name in SHELLS:
            why = next((why for text in inner.texts[1:] if " " in text and (why := _glance(text, place))), "")
        else:
            continue
        if why:
            return why
    return ""


def _handed(part: Part, place: Place) -> Harm:
    return next((why for text in handed(part) if (why := _glance(text, place))), "")


def _glance(text: str, place: Place) -> Harm:
    return glance(text, place, _named_part, _suspects)


def _suspects(name: str) -> bool:
    return name in _CHECKS or name in _EMBEDDED or name in _DISKS or name.startswith("mkfs")


def _second_look(command: str, seen: Survey, place: Place) -> Harm:
    """Texts that a shell would run and that could not be read: the whole line, or something in it."""
    texts = [*seen.unread, *([command] if seen.script is None else [])]
    for text in texts:
        why = _glance(text, place)
        if not why and any(INTERPRETERS.fullmatch(part.name.casefold()) for part in seen.parts):
            why = scripted(text, place, _glance)
        if why:
            return why
    if seen.script is not None and not seen.sure and any(part.name in _RUNS_FILES for part in seen.parts):
        return next((why for text in _written(seen) if (why := _glance(text, place))), "")
    return ""


def _written(seen: Survey) -> Iterator[str]:
    """What a command line puts into files, or into another command, that may then be run by a shell in it."""
    if seen.script is None:
        return
    yield from seen.script.bodies
    for simple in seen.script.commands:
        name = simple.words[0].text if simple.words else ""
        if name in ("echo", "printf") and (simple.nested or any(">" in item.op for item in simple.redirects)):
            yield (
                "\n".join(word.text for word in simple.words[1:])
                if name == "printf"
                else " ".join(word.text for word in simple.words[1:])
            )


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
    **dict.fromkeys(("find", "bfs", "bfind"), found_removal),
    **dict.fromkeys(("fd", "fdfind"), searched_removal),
    **dict.fromkeys(("tar", "bsdtar", "zip", "7z"), archiving),
    "mv": moving,
    "rsync": mirroring,
    **dict.fromkeys(("chmod", "chown", "chgrp", "chattr", "setfacl"), rights),
}
_EMBEDDED = frozenset({*REMOVERS, "find", "rimraf", "dd", "rsync"})
_DISKS = named("dd wipefs blkdiscard mke2fs rmdir rd del erase")
_RUNS_FILES = SHELLS | named("source . eval")
