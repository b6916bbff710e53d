"""Commands that tell about the machine and its processes, never about their environment."""

import os
import re

from odin.policy.command.harmless.options import Known, Taken, anything, held, names, nothing
from odin.policy.command.harmless.place import Place
from odin.policy.command.shapes import named

_PRINTABLE = named("PATH HOME SHELL USER LOGNAME LANG PWD TERM VIRTUAL_ENV EDITOR TZ HOSTNAME CI")
_TERMINAL = frozenset(("cols", "lines", "colors", "longname"))


def _date_format(taken: Taken, place: Place) -> bool:
    return all(word.startswith("+") for word in taken.operands)


def _processes(taken: Taken, place: Place) -> bool:
    """BSD style letters are operands; an `e` among them would show what is in the environment."""
    plain = all(re.fullmatch(r"[auxlwjf]+|\d+", word) for word in taken.operands)
    users = all(value == "x" or _is_user(value) for value in taken.values("u", "U", "g", "G", "t", "user"))
    return plain and users and not any("env" in value for value in taken.values("o", "format", "sort"))


def _is_user(name: str) -> bool:
    """`ps -auxe` means the user `xe`; when there is none, ps takes the letters for its BSD style after all."""
    from pwd import getpwnam

    try:
        return name.isdigit() or bool(getpwnam(name))
    except (KeyError, ValueError):
        return False


def _terminal(taken: Taken, place: Place) -> bool:
    return len(taken.operands) == 1 and taken.operands[0] in _TERMINAL


def _variables(taken: Taken, place: Place) -> bool:
    return bool(taken.operands) and all(word in _PRINTABLE for word in taken.operands)


def _setting(taken: Taken, place: Place) -> bool:
    operands = taken.operands
    return len(operands) <= 2 and all(re.fullmatch(r"\w+", word) or place.holds(word) for word in operands)


def _local_daemon(taken: Taken, place: Place) -> bool:
    local = os.environ.get("DOCKER_HOST", "unix:").startswith("unix:")
    return local and taken.operands[:1] in (["ps"], ["images"]) and len(taken.operands) == 1


SYSTEM: dict[str, Known] = {
    "date": Known(_date_format, "uRI?d:r@", "utc universal iso-8601? rfc-email date= rfc-3339= reference@ debug"),
    "cal": Known(anything, "13yjmw"),
    "whoami": Known(nothing),
    "logname": Known(nothing),
    "users": Known(nothing),
    "who": Known(nothing, "abdHlmqrstTu", "all boot count heading"),
    "groups": Known(names),
    "id": Known(names, "ugGnrzZ", "user group groups name real zero"),
    "tty": Known(nothing, "s", "silent quiet"),
    "arch": Known(nothing),
    "uname": Known(
        nothing,
        "asnrvmpio",
        "all kernel-name nodename kernel-release kernel-version machine processor hardware-platform operating-system",
    ),
    "hostname": Known(nothing, "sI", "short all-ip-addresses"),
    "hostid": Known(nothing),
    "nproc": Known(nothing, "", "all ignore="),
    "uptime": Known(nothing, "ps", "pretty since"),
    "free": Known(nothing, "bkmghtwvl", "bytes kibi mebi gibi human mega giga total wide lohi si"),
    "lscpu": Known(nothing, "aJy", "all json"),
    "lsb_release": Known(nothing, "aidrcs", "all id description release codename short"),
    "sw_vers": Known(nothing),
    "ps": Known(
        _processes,
        "efAaxlFjHLTwp:o:u:U:C:t:g:G:",
        "forest sort= pid= ppid= user= format= no-headers headers cols= columns= width= no-heading",
    ),
    "pgrep": Known(
        anything,
        "alfcnoxiu:U:P:g:d:v",
        "list-name list-full full count newest oldest exact ignore-case euid= uid= parent= pgroup= delimiter=",
    ),
    "pidof": Known(names, "sxo:"),
    "lsof": Known(held, "i?nPp:tu:c:a", ""),
    "ss": Known(
        anything, "tulnpaexmis460HOwZ", "tcp udp listening numeric processes all summary unix ipv4 ipv6 no-header"
    ),
    "netstat": Known(nothing, "tulnparsieW46", "tcp udp listening numeric programs all route statistics interfaces"),
    "tput": Known(_terminal),
    "getconf": Known(_setting, "a"),
    "locale": Known(names, "amck", "all-locales charmaps category-name keyword-name"),
    "printenv": Known(_variables),
    "docker": Known(
        _local_daemon,
        "aqlsn:f:",
        "all quiet latest size last= filter= format= no-trunc digests",
    ),
}
