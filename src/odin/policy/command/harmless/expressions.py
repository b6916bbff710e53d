"""Commands whose words are an expression: find, test, expr, echo. Their options are told apart here, word by word."""

import re
from collections.abc import Callable, Sequence

from odin.policy.command.harmless.options import Globbed
from odin.policy.command.harmless.place import Place
from odin.policy.command.shapes import named

# --- find ---

_FIND_ALONE = named(
    "-not ! -o -or -a -and ( ) , -empty -print -print0 -prune -true -false -ls -quit -depth -xdev -mount -daystart "
    "-readable -writable -executable -nouser -nogroup -noleaf -ignore_readdir_race"
)
_FIND_VALUED = named(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -maxdepth -mindepth -size -mtime "
    "-mmin -atime -amin -ctime -cmin -perm -user -group -uid -gid -links -inum -regextype -lname -ilname -fstype -used "
    "-newermt -newerat -newerct -printf"
)
_FIND_PATHS = named("-newer -anewer -cnewer -samefile")


def find(words: Sequence[str], place: Place) -> bool:
    """Starting points, then tests and actions that only print. Links are not followed: -L and -follow are not known."""
    rest = list(reversed(words))
    while rest and rest[-1] in ("-P", "-H", "-O1", "-O2", "-O3"):
        rest.pop()
    while rest and not rest[-1].startswith(("-", "(", "!")):
        start = rest.pop()
        if not (
            place.lies(start)
            if isinstance(start, Globbed) and start[-1:] != "/" and "-H" not in words
            else place.holds(start)
        ):
            return False
    while rest:
        word = rest.pop()
        if word in _FIND_ALONE:
            continue
        if not rest or word not in _FIND_VALUED | _FIND_PATHS:
            return False
        value = rest.pop()
        if word in _FIND_PATHS and not place.holds(value):
            return False
    return True


# --- test ---

_FILE_TESTS = named("-d -e -f -r -w -x -s -b -c -p -S -g -u -k -O -G -N -a")
_LINK_TESTS = named("-L -h")
_FILE_PAIRS = named("-nt -ot -ef")
_NUMBERS = named("-eq -ne -lt -le -gt -ge")


def test(words: Sequence[str], place: Place) -> bool:
    """Tests of files, texts and whole numbers. What names a variable could run something."""
    for joint in ("-a", "-o"):
        if joint in words[1:]:
            at = list(words).index(joint, 1)
            return at > 1 and len(words) > at + 2 and test(words[:at], place) and test(words[at + 1 :], place)
    rest = list(words)
    while rest and rest[0] == "!":
        rest.pop(0)
    match rest:
        case [text]:
            return not text.startswith("-")
        case [operator, path] if operator in _FILE_TESTS:
            return place.holds(path)
        case [operator, path] if operator in _LINK_TESTS:
            return place.lies(path)
        case ["-t", number]:
            return number in ("0", "1", "2")
        case ["-n" | "-z", _]:
            return True
        case [first, operator, second] if operator in _NUMBERS:
            return all(re.fullmatch(r"-?\d{1,18}", number) for number in (first, second))
        case [first, operator, second] if operator in _FILE_PAIRS:
            return place.holds(first) and place.holds(second)
        case [_, "=" | "==" | "!=" | "<" | ">", _]:
            return True
        case _:
            return False


def bracket(words: Sequence[str], place: Place) -> bool:
    return bool(words) and words[-1] == "]" and test(words[:-1], place)


def brackets(words: Sequence[str], place: Place) -> bool:
    return bool(words) and words[-1] == "]]" and test(words[:-1], place)


# --- the shell's own ---


def echo(words: Sequence[str], place: Place) -> bool:
    return True


def expr(words: Sequence[str], place: Place) -> bool:
    return bool(words) and not words[0].startswith("--")


def command(words: Sequence[str], place: Place) -> bool:
    """`command -v` only asks what a name means; without it the words are a command."""
    return len(words) > 1 and words[0] in ("-v", "-V") and all(re.fullmatch(r"[\w.+-]+", word) for word in words[1:])


def type_(words: Sequence[str], place: Place) -> bool:
    asked = words[1:] if words and re.fullmatch(r"-[aftpP]+", words[0]) else words
    return bool(asked) and all(re.fullmatch(r"[\w.+][\w.+-]*", word) for word in asked)


def limits(words: Sequence[str], place: Place) -> bool:
    return all(re.fullmatch(r"-[HS]?[acdflmnstuv]", word) for word in words)


_IP = named("-4 -6 -br -brief -c -color -j -json -o -oneline -s -stats -d -details -p -pretty")
"""Its options are words, which may be shortened: -b would read commands from a file."""


def ip(words: Sequence[str], place: Place) -> bool:
    rest = [word for word in words if word not in _IP]
    known = rest[:1] != [] and rest[0] in ("a", "addr", "address", "l", "link", "r", "route", "neigh")
    return known and (not rest[1:] or rest[1:] in (["show"], ["list"], ["ls"]))


def tar(words: Sequence[str], place: Place) -> bool:
    """What is in an archive. A colon in its name would mean another machine."""
    flags, archive, members = words[:1], words[1:2], words[2:]
    if not flags or not archive or not re.fullmatch(r"-?[tvzjJ]*t[tvzjJ]*f", flags[0]):
        return False
    named_well = not isinstance(archive[0], Globbed) and ":" not in archive[0] and archive[0] != "-"
    return named_well and place.shows(archive[0]) and not any(word.startswith("-") for word in members)


def help_(words: Sequence[str], place: Place) -> bool:
    return all(re.fullmatch(r"-[dms]|[\w.:\[]+", word) for word in words)


def told(words: Sequence[str], place: Place) -> bool:
    """What the shell knows about itself: its jobs, its times, its folders."""
    return not words or list(words) in (["-l"], ["-p"], ["-v"])


def leave(words: Sequence[str], place: Place) -> bool:
    return len(words) <= 1 and all(re.fullmatch(r"\d{1,3}", word) for word in words)


EXPRESSIONS: dict[str, Callable[[Sequence[str], Place], bool]] = {
    "find": find,
    "test": test,
    "[": bracket,
    "[[": brackets,
    "echo": echo,
    "expr": expr,
    "command": command,
    "type": type_,
    "ulimit": limits,
    "exit": leave,
    "ip": ip,
    "tar": tar,
    "help": help_,
    "jobs": told,
    "times": told,
    "dirs": told,
}
