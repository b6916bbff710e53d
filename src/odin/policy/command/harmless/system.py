"""Commands that tell about the machine and its processes, never about their environment."""

import os
import re

from odin.policy.command.harmless.options import Known, Taken, anything, held, names, nothing
from odin.policy.command.harmless.place import Place
from odin.policy.command.shapes import named

_PRINTABLE = named("PATH HOME SHELL USER LOGNAME LANG PWD TERM VIRTUAL_ENV EDITOR TZ HOSTNAME CI")
_TERMINAL = named(
    "cols lines colors longname bold dim sgr0 rev blink smul rmul smso rmso sitm ritm setaf setab op el el1 ed clear "
    "civis cnorm"
)
_MAX_SECONDS = 60
_SOCKETS = re.compile(
    r"state|established|listening|connected|synchronized|bucket|big|all|closed|close-wait|time-wait|syn-sent|syn-recv"
    r"|fin-wait-[12]|last-ack|closing|sport|dport|src|dst|eq|ne|neq|lt|le|leq|gt|ge|geq|and|or|not|[=!<>()]{1,2}"
    r"|:?[0-9]{1,5}|[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?(:[0-9]{1,5})?"
)
_DAEMON = (
    *(["ps"], ["images"], ["version"], ["info"], ["compose", "version"]),
    *([kind, verb] for kind in ("container", "image", "volume", "network", "context") for verb in ("ls", "list")),
)


def _date_format(taken: Taken, place: Place) -> bool:
    return all(word.startswith("+") for word in taken.operands)


def _processes(taken: Taken, place: Place) -> bool:
    """BSD style letters are operands; an `e` among them would show what is in the environment."""
    operands, formats = taken.operands, taken.values("o", "format", "sort")
    if len(operands) == 2 and re.fullmatch(r"[auxlwjf]*o", operands[0]):
        operands, formats = [], [*formats, operands[1]]
    plain = all(re.fullmatch(r"[auxlwjf]+|\d+", word) for word in operands)
    users = all(value == "x" or _is_user(value) for value in taken.values("u", "U", "g", "G", "t", "user"))
    return plain and users and not any("env" in value for value in formats)


def _is_user(name: str) -> bool:
    """`ps -auxe` means the user `xe`; when there is none, ps takes the letters for its BSD style after all."""
    from pwd import getpwnam

    try:
        return name.isdigit() or bool(getpwnam(name))
    except (KeyError, ValueError):
        return False


def _terminal(taken: Taken, place: Place) -> bool:
    return taken.operands[:1] != [] and taken.operands[0] in _TERMINAL and all(map(str.isdigit, taken.operands[1:]))


def _samples(taken: Taken, place: Place) -> bool:
    """An interval needs a number of times, or it never ends."""
    if len(taken.operands) not in (0, 2) or not all(re.fullmatch(r"[0-9]{1,2}", word) for word in taken.operands):
        return False
    return not taken.operands or int(taken.operands[0]) * int(taken.operands[1]) <= _MAX_SECONDS


def _sockets(taken: Taken, place: Place) -> bool:
    """Ports and addresses in numbers: for a name, other machines would be asked."""
    return all(_SOCKETS.fullmatch(word) for word in taken.operands)


def _open_files(taken: Taken, place: Place) -> bool:
    """No `@`, which begins the name of a machine that would be looked up, and no `+`, which begins an option."""
    if taken.has("i") and not taken.has("n"):
        return False  # the names of all machines at the other end would be looked up
    named_machine = any("@" in word for word in (*taken.operands, *taken.values("i")))
    return not named_machine and not any(word.startswith("+") for word in taken.operands) and held(taken, place)


def _connections(taken: Taken, place: Place) -> bool:
    """In numbers: names are asked of other machines."""
    return not taken.operands and taken.has("n", "numeric")


def _kernel(taken: Taken, place: Place) -> bool:
    return all(re.fullmatch(r"[a-z][\w.-]*", word) for word in taken.operands)


def _account(taken: Taken, place: Place) -> bool:
    """Not `hosts`: that asks other machines."""
    return taken.operands[:1] in (["passwd"], ["group"], ["services"], ["protocols"]) and names(taken, place)


def _units(taken: Taken, place: Place) -> bool:
    verb = taken.operands[:1]
    return verb in (
        ["status"],
        ["is-active"],
        ["is-enabled"],
        ["is-failed"],
        ["list-units"],
        ["list-timers"],
    ) and names(taken, place)


def _packages(taken: Taken, place: Place) -> bool:
    return taken.has("l", "s", "L", "S", "W", "list", "status", "listfiles", "show") and names(taken, place)


def _variables(taken: Taken, place: Place) -> bool:
    return bool(taken.operands) and all(word in _PRINTABLE for word in taken.operands)


def _setting(taken: Taken, place: Place) -> bool:
    operands = taken.operands
    return len(operands) <= 2 and all(re.fullmatch(r"\w+", word) or place.holds(word) for word in operands)


def _local_daemon(taken: Taken, place: Place) -> bool:
    local = os.environ.get("DOCKER_HOST", "unix:").startswith("unix:")
    return local and taken.operands in _DAEMON


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
    "lsof": Known(_open_files, "i?nPp:tu:c:as?UlRw", ""),
    "fuser": Known(held, "vum", "verbose user"),
    "pstree": Known(names, "aAcglhnpsStuU"),
    "pwdx": Known(names),
    "vmstat": Known(_samples, "adfmnstwS:", "active disk stats timestamp wide unit="),
    "iostat": Known(_samples, "cdhkmtxyz"),
    "mpstat": Known(_samples, "AuP:"),
    "w": Known(names, "hsfiou", "no-header short from"),
    "last": Known(names, "n:axFiw", "limit= fulltimes", number=True),
    "lsblk": Known(nothing, "abdefilmno:pSt", "all bytes fs json list output= paths noheadings tree?"),
    "lsmem": Known(nothing, "abnSo:", "all bytes json summary?"),
    "lsmod": Known(nothing),
    "lspci": Known(nothing, "vnkmtD"),
    "lsusb": Known(nothing, "vt"),
    "mount": Known(nothing, "l"),
    "findmnt": Known(nothing, "abDlnro:J", "all bytes df json list output= noheadings raw"),
    "ifconfig": Known(nothing, "a"),
    "sysctl": Known(_kernel, "anNe", "all names values"),
    "getent": Known(_account),
    "hostnamectl": Known(nothing),
    "timedatectl": Known(nothing),
    "systemctl": Known(_units, "aln:t:", "all no-pager plain no-legend lines= type= state= user full failed quiet"),
    **dict.fromkeys(("dpkg", "dpkg-query"), Known(_packages, "lsLSWf:", "list status listfiles show showformat=")),
    "stty": Known(lambda taken, place: taken.operands in ([], ["size"]), "a", "all"),
    "clear": Known(nothing),
    "ss": Known(
        _sockets, "tulnpaexmis460HOwZ", "tcp udp listening numeric processes all summary unix ipv4 ipv6 no-header"
    ),
    "netstat": Known(
        _connections, "tulnparsieW46", "tcp udp listening numeric programs all route statistics interfaces"
    ),
    "tput": Known(_terminal, "T:", values=r"[\w+-]+"),
    "getconf": Known(_setting, "a"),
    "locale": Known(names, "amck", "all-locales charmaps category-name keyword-name"),
    "printenv": Known(_variables),
    "docker": Known(
        _local_daemon,
        "aqlsn:f:",
        "all quiet latest size last= filter= format= no-trunc digests",
    ),
}
