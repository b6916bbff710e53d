"""Read-only commands about the machine and its processes, and version queries of development tools.

Environment variables of processes are never shown. A version query is not always safe: some tools first load a
file of the project that may name the program to run. If such a file exists, the query needs approval.
"""

import re
from collections.abc import Callable, Sequence

from odin.policy.command_scope import CommandScope
from odin.policy.commands.readonly.options import (
    ParsedOptions,
    ReadOnlyCommand,
    has_any_operands,
    has_inside_paths,
    has_no_operands,
    has_only_names,
)
from odin.policy.commands.syntax import split_names

_PRINTABLE_VARIABLES = split_names("PATH HOME SHELL USER LOGNAME LANG PWD TERM VIRTUAL_ENV EDITOR TZ HOSTNAME CI")
_TPUT_NAMES = split_names(
    "cols lines colors longname bold dim sgr0 rev blink smul rmul smso rmso sitm ritm setaf setab op el el1 ed clear "
    "civis cnorm"
)
_MAX_SECONDS = 60
_SOCKET_FILTER = re.compile(
    r"state|established|listening|connected|synchronized|bucket|big|all|closed|close-wait|time-wait|syn-sent|syn-recv"
    r"|fin-wait-[12]|last-ack|closing|sport|dport|src|dst|eq|ne|neq|lt|le|leq|gt|ge|geq|and|or|not|[=!<>()]{1,2}"
    r"|:?[0-9]{1,5}|[0-9]{1,3}(\.[0-9]{1,3}){3}(/[0-9]{1,2})?(:[0-9]{1,5})?"
)
_DOCKER_QUERIES = (
    *(["ps"], ["images"], ["version"], ["info"], ["compose", "version"]),
    *([kind, verb] for kind in ("container", "image", "volume", "network", "context") for verb in ("ls", "list")),
)


def _check_date(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return all(word.startswith("+") for word in parsed.operands)


def _check_ps(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """BSD-style letters are operands; an `e` among them would show environment variables."""
    operands, formats = parsed.operands, parsed.list_values("o", "format", "sort")
    if len(operands) == 2 and re.fullmatch(r"[auxlwjf]*o", operands[0]):
        operands, formats = [], [*formats, operands[1]]
    plain = all(re.fullmatch(r"[auxlwjf]+|\d+", word) for word in operands)
    users = all(value == "x" or _is_user(value) for value in parsed.list_values("u", "U", "g", "G", "t", "user"))
    return plain and users and not any("env" in value for value in formats)


def _is_user(name: str) -> bool:
    """True if a user exists. `ps -auxe` means the user `xe`; without one, ps reads the letters as BSD options."""
    from pwd import getpwnam

    try:
        return name.isdigit() or bool(getpwnam(name))
    except (KeyError, ValueError):
        return False


def _check_tput(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return (
        parsed.operands[:1] != [] and parsed.operands[0] in _TPUT_NAMES and all(map(str.isdigit, parsed.operands[1:]))
    )


def _check_sampling(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """An interval needs a count, or the command never ends."""
    if len(parsed.operands) not in (0, 2) or not all(re.fullmatch(r"[0-9]{1,2}", word) for word in parsed.operands):
        return False
    return not parsed.operands or int(parsed.operands[0]) * int(parsed.operands[1]) <= _MAX_SECONDS


def _check_ss(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Numeric ports and addresses only: resolving names contacts other machines."""
    return all(_SOCKET_FILTER.fullmatch(word) for word in parsed.operands)


def _check_lsof(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """No `@`, which starts a host name to resolve, and no `+`, which starts an option."""
    if parsed.has("i") and not parsed.has("n"):
        return False  # it would resolve the host names of all connections
    names_host = any("@" in word for word in (*parsed.operands, *parsed.list_values("i")))
    return (
        not names_host and not any(word.startswith("+") for word in parsed.operands) and has_inside_paths(parsed, scope)
    )


def _check_netstat(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Numeric only: resolving names contacts other machines."""
    return not parsed.operands and parsed.has("n", "numeric")


def _check_sysctl(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return all(re.fullmatch(r"[a-z][\w.-]*", word) for word in parsed.operands)


def _check_getent(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Not `hosts`, which contacts other machines."""
    return parsed.operands[:1] in (["passwd"], ["group"], ["services"], ["protocols"]) and has_only_names(parsed, scope)


def _check_systemctl(parsed: ParsedOptions, scope: CommandScope) -> bool:
    verb = parsed.operands[:1]
    return verb in (
        ["status"],
        ["is-active"],
        ["is-enabled"],
        ["is-failed"],
        ["list-units"],
        ["list-timers"],
    ) and has_only_names(parsed, scope)


def _check_dpkg(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return parsed.has("l", "s", "L", "S", "W", "list", "status", "listfiles", "show") and has_only_names(parsed, scope)


def _check_printenv(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return bool(parsed.operands) and all(word in _PRINTABLE_VARIABLES for word in parsed.operands)


def _check_getconf(parsed: ParsedOptions, scope: CommandScope) -> bool:
    operands = parsed.operands
    return len(operands) <= 2 and all(re.fullmatch(r"\w+", word) or scope.allows_path(word) for word in operands)


def _check_docker(parsed: ParsedOptions, scope: CommandScope) -> bool:
    local = scope.environment.variables.get("DOCKER_HOST", "unix:").startswith("unix:")
    return local and parsed.operands in _DOCKER_QUERIES


SYSTEM_COMMANDS: dict[str, ReadOnlyCommand] = {
    "date": ReadOnlyCommand(
        _check_date, "uRI?d:r@", "utc universal iso-8601? rfc-email date= rfc-3339= reference@ debug"
    ),
    "cal": ReadOnlyCommand(has_any_operands, "13yjmw"),
    "whoami": ReadOnlyCommand(has_no_operands),
    "logname": ReadOnlyCommand(has_no_operands),
    "users": ReadOnlyCommand(has_no_operands),
    "who": ReadOnlyCommand(has_no_operands, "abdHlmqrstTu", "all boot count heading"),
    "groups": ReadOnlyCommand(has_only_names),
    "id": ReadOnlyCommand(has_only_names, "ugGnrzZ", "user group groups name real zero"),
    "tty": ReadOnlyCommand(has_no_operands, "s", "silent quiet"),
    "arch": ReadOnlyCommand(has_no_operands),
    "uname": ReadOnlyCommand(
        has_no_operands,
        "asnrvmpio",
        "all kernel-name nodename kernel-release kernel-version machine processor hardware-platform operating-system",
    ),
    "hostname": ReadOnlyCommand(has_no_operands, "sI", "short all-ip-addresses"),
    "hostid": ReadOnlyCommand(has_no_operands),
    "nproc": ReadOnlyCommand(has_no_operands, "", "all ignore="),
    "uptime": ReadOnlyCommand(has_no_operands, "ps", "pretty since"),
    "free": ReadOnlyCommand(has_no_operands, "bkmghtwvl", "bytes kibi mebi gibi human mega giga total wide lohi si"),
    "lscpu": ReadOnlyCommand(has_no_operands, "aJy", "all json"),
    "lsb_release": ReadOnlyCommand(has_no_operands, "aidrcs", "all id description release codename short"),
    "sw_vers": ReadOnlyCommand(has_no_operands),
    "ps": ReadOnlyCommand(
        _check_ps,
        "efAaxlFjHLTwp:o:u:U:C:t:g:G:",
        "forest sort= pid= ppid= user= format= no-headers headers cols= columns= width= no-heading",
    ),
    "pgrep": ReadOnlyCommand(
        has_any_operands,
        "alfcnoxiu:U:P:g:d:v",
        "list-name list-full full count newest oldest exact ignore-case euid= uid= parent= pgroup= delimiter=",
    ),
    "pidof": ReadOnlyCommand(has_only_names, "sxo:"),
    "lsof": ReadOnlyCommand(_check_lsof, "i?nPp:tu:c:as?UlRwv", ""),
    "fuser": ReadOnlyCommand(has_inside_paths, "vum", "verbose user"),
    "pstree": ReadOnlyCommand(has_only_names, "aAcglhnpsStuU"),
    "pwdx": ReadOnlyCommand(has_only_names),
    "vmstat": ReadOnlyCommand(_check_sampling, "adfmnstwS:", "active disk stats timestamp wide unit="),
    "iostat": ReadOnlyCommand(_check_sampling, "cdhkmtxyz"),
    "mpstat": ReadOnlyCommand(_check_sampling, "AuP:"),
    "w": ReadOnlyCommand(has_only_names, "hsfiou", "no-header short from"),
    "last": ReadOnlyCommand(has_only_names, "n:axFiw", "limit= fulltimes", takes_number=True),
    "lsblk": ReadOnlyCommand(
        has_no_operands, "abdefilmno:pSt", "all bytes fs json list output= paths noheadings tree?"
    ),
    "lsmem": ReadOnlyCommand(has_no_operands, "abnSo:", "all bytes json summary?"),
    "lsmod": ReadOnlyCommand(has_no_operands),
    "lspci": ReadOnlyCommand(has_no_operands, "vnkmtD"),
    "lsusb": ReadOnlyCommand(has_no_operands, "vt"),
    "mount": ReadOnlyCommand(has_no_operands, "l"),
    "findmnt": ReadOnlyCommand(has_no_operands, "abDlnro:J", "all bytes df json list output= noheadings raw"),
    "ifconfig": ReadOnlyCommand(has_no_operands, "a"),
    "sysctl": ReadOnlyCommand(_check_sysctl, "anNe", "all names values"),
    "getent": ReadOnlyCommand(_check_getent),
    "hostnamectl": ReadOnlyCommand(has_no_operands),
    "timedatectl": ReadOnlyCommand(has_no_operands),
    "systemctl": ReadOnlyCommand(
        _check_systemctl, "aln:t:", "all no-pager plain no-legend lines= type= state= user full failed quiet"
    ),
    **dict.fromkeys(
        ("dpkg", "dpkg-query"), ReadOnlyCommand(_check_dpkg, "lsLSWf:", "list status listfiles show showformat=")
    ),
    "stty": ReadOnlyCommand(lambda parsed, scope: parsed.operands in ([], ["size"]), "a", "all"),
    "clear": ReadOnlyCommand(has_no_operands),
    "ss": ReadOnlyCommand(
        _check_ss, "tulnpaexmis460HOwZ", "tcp udp listening numeric processes all summary unix ipv4 ipv6 no-header"
    ),
    "netstat": ReadOnlyCommand(
        _check_netstat, "tulnparsieW46", "tcp udp listening numeric programs all route statistics interfaces"
    ),
    "tput": ReadOnlyCommand(_check_tput, "T:", value_pattern=r"[\w+-]+"),
    "getconf": ReadOnlyCommand(_check_getconf, "a"),
    "locale": ReadOnlyCommand(has_only_names, "amck", "all-locales charmaps category-name keyword-name"),
    "printenv": ReadOnlyCommand(_check_printenv),
    "docker": ReadOnlyCommand(
        _check_docker,
        "aqlsn:f:",
        "all quiet latest size last= filter= format= no-trunc digests",
    ),
}


_VERSIONED_TOOLS = split_names(
    "python python2 python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 pip pip3 uv pipx ruff "
    "mypy black node deno ruby gem perl php Rscript julia gcc g++ cc c++ clang clang++ ld make cmake ninja "
    "meson bash zsh fish git gh svn docker podman kubectl helm sqlite3 psql mysql redis-cli jq rg fd tree sed awk "
    "gawk grep find ls tar zip unzip openssl java javac kotlin swift ghc cabal stack zig nim ffmpeg "
    "convert tmux vim nvim emacs shellcheck curl wget ssh nginx lua R elixir scala bun redis-server mongod aws rsync "
    "docker-compose tsc eslint prettier"
)
_OTHER_VERSION: dict[str, Sequence[list[str]]] = {
    "node": (["-v"],),
    "ruby": (["-v"],),
    "perl": (["-v"],),
    "php": (["-v"],),
    "gcc": (["-dumpversion"], ["-dumpmachine"], ["-v"]),
    "java": (["-version"],),
    "javac": (["-version"],),
    "kotlin": (["-version"],),
    "scala": (["-version"],),
    "make": (["-v"],),
    "nginx": (["-v"],),
    "lua": (["-v"],),
    "tsc": (["-v"],),
    "eslint": (["-v"],),
    "ssh": (["-V"],),
    "openssl": (["version"],),
    "docker": (["-v"],),
    "git": (),
    "zig": (["version"],),
    "helm": (["version"],),
    "kubectl": (["version", "--client"],),
}
_CAPITAL_V_TOOLS = split_names(
    "python python2 python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 pip pip3 uv ruff mypy "
    "deno perl ghc cabal curl wget ssh rsync grep gawk rg fd jq shellcheck ld"
)
"""Programs for which -V prints the version. For others it may be anything: some shells then run their input."""

_CONFIGURED_TOOLS: dict[str, tuple[Sequence[str], Sequence[list[str]]]] = {
    "cargo": (("rust-toolchain", "rust-toolchain.toml", ".cargo"), (["--version"], ["-V"], ["version"])),
    "rustc": (("rust-toolchain", "rust-toolchain.toml"), (["--version"], ["-V"], ["-vV"])),
    "rustup": (("rust-toolchain", "rust-toolchain.toml"), (["--version"], ["toolchain", "list"])),
    "go": (
        ("go.mod", "go.work"),
        (["version"], *(["env", name] for name in ("GOPATH", "GOROOT", "GOOS", "GOARCH", "GOVERSION", "GOMODCACHE"))),
    ),
    "npm": ((".npmrc",), (["--version"], ["-v"])),
    "dotnet": (("global.json",), (["--version"],)),
    "npx": ((".npmrc",), (["--version"], ["-v"])),
}
"""Programs that load these project files, and the queries allowed if none of the files exists."""


def _check_npm(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Lists of packages. `npm run` alone lists the scripts; with a name it runs one."""
    verb = parsed.operands[:1]
    if verb in (["run"], ["root"], ["prefix"]):
        known = len(parsed.operands) == 1
    else:
        known = verb in (["ls"], ["list"], ["explain"], ["why"]) or parsed.operands[:2] == ["pkg", "get"]
    return known and not scope.has_config((".npmrc",))


def _check_pip(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return parsed.operands[:1] in (["list"], ["show"], ["freeze"], ["check"]) and has_only_names(parsed, scope)


_PIP = ReadOnlyCommand(
    _check_pip, "vqfl", "verbose quiet format= local user files not-required exclude-editable no-color"
)
_TOOL_LISTS: dict[str, ReadOnlyCommand] = {
    "npm": ReadOnlyCommand(_check_npm, "agl", "depth= all json long parseable global prod dev omit= include= link"),
    "pip": _PIP,
    "pip3": _PIP,
}


def find_tool_check(name: str) -> Callable[[Sequence[str], CommandScope], bool] | None:
    """Return the check for this program, or None if it is not known."""
    if name not in _VERSIONED_TOOLS and name not in _CONFIGURED_TOOLS:
        return None

    def check(words: Sequence[str], scope: CommandScope) -> bool:
        if name in _TOOL_LISTS and _TOOL_LISTS[name].accepts(words, scope):
            return True
        arguments = list(words)
        if name in _CONFIGURED_TOOLS:
            files, queries = _CONFIGURED_TOOLS[name]
            return arguments in queries and not scope.has_config(files)
        if arguments == ["-V"]:
            return name in _CAPITAL_V_TOOLS
        return arguments == ["--version"] or arguments in _OTHER_VERSION.get(name, ())

    return check
