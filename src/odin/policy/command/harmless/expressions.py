"""Commands whose words are an expression: find, test, expr, echo. Their options are told apart here, word by word."""

import re
from collections.abc import Callable, Sequence

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
    while rest and rest[-1] in ("-P", "-O1", "-O2", "-O3"):
        rest.pop()
    while rest and not rest[-1].startswith(("-", "(", "!")):
        if not place.holds(rest.pop()):
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

_FILE_TESTS = named("-d -e -f -r -w -x -s -L -h -b -c -p -S -g -u -k -O -G -N -a")
_FILE_PAIRS = named("-nt -ot -ef")
_NUMBERS = named("-eq -ne -lt -le -gt -ge")


def test(words: Sequence[str], place: Place) -> bool:
    """One test of a file, of a text, or of two whole numbers. What names a variable could run something."""
    rest = list(words)
    while rest and rest[0] == "!":
        rest.pop(0)
    match rest:
        case [text]:
            return not text.startswith("-")
        case [operator, path] if operator in _FILE_TESTS:
            return place.holds(path)
        case ["-n" | "-z", _]:
            return True
        case [first, operator, second] if operator in _NUMBERS:
            return all(re.fullmatch(r"-?\d{1,18}", number) for number in (first, second))
        case [first, operator, second] if operator in _FILE_PAIRS:
            return place.holds(first) and place.holds(second)
        case [_, "=" | "==" | "!=", _]:
            return True
        case _:
            return False


def bracket(words: Sequence[str], place: Place) -> bool:
    return bool(words) and words[-1] == "]" and test(words[:-1], place)


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


def leave(words: Sequence[str], place: Place) -> bool:
    return len(words) <= 1 and all(re.fullmatch(r"\d{1,3}", word) for word in words)


EXPRESSIONS: dict[str, Callable[[Sequence[str], Place], bool]] = {
    "find": find,
    "test": test,
    "[": bracket,
    "echo": echo,
    "expr": expr,
    "command": command,
    "type": type_,
    "ulimit": limits,
    "exit": leave,
}
