"""Commands whose words are an expression: find, test, expr, echo. Their options are told apart here, word by word."""

import re
from collections.abc import Callable, Sequence

from odin.policy.command.harmless.options import GlobMatch
from odin.policy.command.harmless.place import ReadScope
from odin.policy.command.shapes import split_names

# --- find ---

_FIND_ALONE = split_names(
    "-not ! -o -or -a -and ( ) , -empty -print -print0 -prune -true -false -ls -quit -depth -xdev -mount -daystart "
    "-readable -writable -executable -nouser -nogroup -noleaf -ignore_readdir_race"
)
_FIND_VALUED = split_names(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -maxdepth -mindepth -size -mtime "
    "-mmin -atime -amin -ctime -cmin -perm -user -group -uid -gid -links -inum -regextype -lname -ilname -fstype -used "
    "-newermt -newerat -newerct -printf"
)
_FIND_PATHS = split_names("-newer -anewer -cnewer -samefile")


def check_find(words: Sequence[str], scope: ReadScope) -> bool:
    """Starting points, then tests and actions that only print. Links are not followed: -L and -follow are not known."""
    rest = list(reversed(words))
    while rest and rest[-1] in ("-P", "-H", "-O1", "-O2", "-O3"):
        rest.pop()
    while rest and not rest[-1].startswith(("-", "(", "!")):
        start = rest.pop()
        if not (
            scope.allows_name(start)
            if isinstance(start, GlobMatch) and start[-1:] != "/" and "-H" not in words
            else scope.allows_path(start)
        ):
            return False
    while rest:
        word = rest.pop()
        if word in _FIND_ALONE:
            continue
        if not rest or word not in _FIND_VALUED | _FIND_PATHS:
            return False
        value = rest.pop()
        if word in _FIND_PATHS and not scope.allows_path(value):
            return False
    return True


# --- test ---

_FILE_TESTS = split_names("-d -e -f -r -w -x -s -b -c -p -S -g -u -k -O -G -N -a")
_LINK_TESTS = split_names("-L -h")
_FILE_PAIRS = split_names("-nt -ot -ef")
_NUMBER_TESTS = split_names("-eq -ne -lt -le -gt -ge")


def check_test(words: Sequence[str], scope: ReadScope) -> bool:
    """Tests of files, texts and whole numbers. What names a variable could run something."""
    for joint in ("-a", "-o"):
        if joint in words[1:]:
            at = list(words).index(joint, 1)
            return (
                at > 1 and len(words) > at + 2 and check_test(words[:at], scope) and check_test(words[at + 1 :], scope)
            )
    rest = list(words)
    while rest and rest[0] == "!":
        rest.pop(0)
    match rest:
        case [text]:
            return not text.startswith("-")
        case [operator, path] if operator in _FILE_TESTS:
            return scope.allows_path(path)
        case [operator, path] if operator in _LINK_TESTS:
            return scope.allows_name(path)
        case ["-t", number]:
            return number in ("0", "1", "2")
        case ["-n" | "-z", _]:
            return True
        case [first, operator, second] if operator in _NUMBER_TESTS:
            return all(re.fullmatch(r"-?\d{1,18}", number) for number in (first, second))
        case [first, operator, second] if operator in _FILE_PAIRS:
            return scope.allows_path(first) and scope.allows_path(second)
        case [_, "=" | "==" | "!=" | "<" | ">", _]:
            return True
        case _:
            return False


def check_bracket(words: Sequence[str], scope: ReadScope) -> bool:
    return bool(words) and words[-1] == "]" and check_test(words[:-1], scope)


def check_double_bracket(words: Sequence[str], scope: ReadScope) -> bool:
    return bool(words) and words[-1] == "]]" and check_test(words[:-1], scope)


# --- the shell's own ---


def check_echo(words: Sequence[str], scope: ReadScope) -> bool:
    return True


def check_expr(words: Sequence[str], scope: ReadScope) -> bool:
    return bool(words) and not words[0].startswith("--")


def check_command(words: Sequence[str], scope: ReadScope) -> bool:
    """`command -v` only asks what a name means; without it the words are a command."""
    return len(words) > 1 and words[0] in ("-v", "-V") and all(re.fullmatch(r"[\w.+-]+", word) for word in words[1:])


def check_type(words: Sequence[str], scope: ReadScope) -> bool:
    asked = words[1:] if words and re.fullmatch(r"-[aftpP]+", words[0]) else words
    return bool(asked) and all(re.fullmatch(r"[\w.+][\w.+-]*", word) for word in asked)


def check_ulimit(words: Sequence[str], scope: ReadScope) -> bool:
    return all(re.fullmatch(r"-[HS]?[acdflmnstuv]", word) for word in words)


_IP_OPTIONS = split_names("-4 -6 -br -brief -c -color -j -json -o -oneline -s -stats -d -details -p -pretty")
"""Its options are words, which may be shortened: -b would read commands from a file."""


def check_ip(words: Sequence[str], scope: ReadScope) -> bool:
    rest = [word for word in words if word not in _IP_OPTIONS]
    known = rest[:1] != [] and rest[0] in ("a", "addr", "address", "l", "link", "r", "route", "neigh")
    return known and (not rest[1:] or rest[1:] in (["show"], ["list"], ["ls"]))


def check_tar(words: Sequence[str], scope: ReadScope) -> bool:
    """What is in an archive. A colon in its name would mean another machine."""
    flags, archive, members = words[:1], words[1:2], words[2:]
    if not flags or not archive or not re.fullmatch(r"-?[tvzjJ]*t[tvzjJ]*f", flags[0]):
        return False
    named_well = not isinstance(archive[0], GlobMatch) and ":" not in archive[0] and archive[0] != "-"
    return named_well and scope.allows_content(archive[0]) and not any(word.startswith("-") for word in members)


def check_help(words: Sequence[str], scope: ReadScope) -> bool:
    return all(re.fullmatch(r"-[dms]|[\w.:\[]+", word) for word in words)


def check_status_builtin(words: Sequence[str], scope: ReadScope) -> bool:
    """What the shell knows about itself: its jobs, its times, its folders."""
    return not words or list(words) in (["-l"], ["-p"], ["-v"])


def check_exit(words: Sequence[str], scope: ReadScope) -> bool:
    return len(words) <= 1 and all(re.fullmatch(r"\d{1,3}", word) for word in words)


EXPRESSION_CHECKS: dict[str, Callable[[Sequence[str], ReadScope], bool]] = {
    "find": check_find,
    "test": check_test,
    "[": check_bracket,
    "[[": check_double_bracket,
    "echo": check_echo,
    "expr": check_expr,
    "command": check_command,
    "type": check_type,
    "ulimit": check_ulimit,
    "exit": check_exit,
    "ip": check_ip,
    "tar": check_tar,
    "help": check_help,
    "jobs": check_status_builtin,
    "times": check_status_builtin,
    "dirs": check_status_builtin,
}
