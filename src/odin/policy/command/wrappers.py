"""Programs that run other programs: which of their words are the command they run."""

import re
from collections.abc import Sequence

from msgspec import Struct

from odin.policy.command.shapes import ShellWord, split_names

SHELLS = split_names("sh bash dash zsh ksh mksh ash fish csh tcsh rbash rksh yash osh")

OPAQUE_BUILTINS = split_names("source . alias enable hash complete compgen bind mapfile readarray fc coproc")
"""They change what later commands mean, or run what cannot be seen here."""


class Wrapper(Struct, frozen=True):
    """Which short options take a value, which long ones do, and how many operands come before the command."""

    short_valued: str = ""
    long_valued: str = ""
    operands: int = 0
    folder_option: str = ""


WRAPPERS: dict[str, Wrapper] = {
    "sudo": Wrapper("ugpCrtThDRUacA", "user group prompt close-from role type host chdir chroot other-user", 0, "D"),
    "doas": Wrapper("uCa"),
    "pkexec": Wrapper("", "user"),
    "run0": Wrapper("ug", "user group chdir unit property setenv"),
    "env": Wrapper("uCa", "unset chdir argv0", 0, "C"),
    "nice": Wrapper("n", "adjustment"),
    "ionice": Wrapper("cnpPu", "class classdata pid"),
    "chrt": Wrapper("TPD", "", 1),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "command": Wrapper(),
    "builtin": Wrapper(),
    "exec": Wrapper("a"),
    "time": Wrapper("fo", "format output"),
    "stdbuf": Wrapper("ioe", "input output error"),
    "unbuffer": Wrapper(),
    "timeout": Wrapper("ks", "kill-after signal", 1),
    "gtimeout": Wrapper("ks", "kill-after signal", 1),
    "xargs": Wrapper(
        "adEeIiLlnPs", "arg-file delimiter replace max-lines max-args max-procs max-chars process-slot-var"
    ),
    "parallel": Wrapper("jNnLIaPS", "jobs max-args arg-file replace sshlogin"),
    "flock": Wrapper("wE", "timeout wait conflict-exit-code", 1),
    "chroot": Wrapper("", "userspec groups", 1),
    "taskset": Wrapper("", "", 1),
    "numactl": Wrapper("iNmCpl", "interleave cpunodebind membind physcpubind preferred"),
    "strace": Wrapper("abeEIoOpPsSuUX", "output attach trace"),
    "ltrace": Wrapper("aAeDFlnopsuwx", "output"),
    "gdb": Wrapper(),
    "valgrind": Wrapper(),
    "perf": Wrapper(),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "unshare": Wrapper("SGRw", "setuid setgid root wd"),
    "nsenter": Wrapper("tSGrw", "target setuid setgid root wd"),
    "setpriv": Wrapper("", "reuid regid groups inh-caps ambient-caps bounding-set securebits"),
    "prlimit": Wrapper("p", "pid"),
    "systemd-run": Wrapper("pEut", "property setenv unit description slice uid gid working-directory"),
    "systemd-inhibit": Wrapper("", "what who why mode"),
    "dbus-run-session": Wrapper("", "config-file dbus-daemon"),
    "caffeinate": Wrapper("tw"),
    "proot": Wrapper("rbwq"),
    "fakeroot": Wrapper("lsib"),
    "firejail": Wrapper(),
    "bwrap": Wrapper("", "bind ro-bind dev-bind chdir setenv unsetenv uid gid"),
    "xvfb-run": Wrapper("ens", "server-num server-args error-file auth-file"),
    "hyperfine": Wrapper("wrmMLPS", "warmup runs prepare setup"),
    "entr": Wrapper(),
    "rlwrap": Wrapper(),
    "script": Wrapper("EIOTBo", "echo log-in log-out log-io log-timing output-limit"),
    "coproc": Wrapper(),
    "su": Wrapper("sgGw", "shell group supp-group whitelist-environment"),
    "runuser": Wrapper("sgGuw", "shell group user"),
    "doit": Wrapper(),
    **dict.fromkeys(
        split_names(
            "chronic ts proxychains proxychains4 torsocks tsocks dbus-launch catchsegv linux32 linux64 eatmydata "
            "dumb-init tini coreutils winpty softlimit"
        ),
        Wrapper(),
    ),
    **dict.fromkeys(split_names("faketime setarch gosu su-exec pidproxy"), Wrapper("", "", 1)),
}

TEXT_RUNNERS = {"eval": "", "watch": "nd"}
"""They put their words together to one text, and a shell reads that."""

SSH_VALUED = "BbcDEeFIiJLlmOoPpQRSWw"

_LOOKUP_VARIABLES = re.compile(
    r"PATH|IFS|ENV|BASH_\w+|BASHOPTS|SHELLOPTS|PROMPT_COMMAND|PS[0-4]|LD_\w+|DYLD_\w+|HOME|\w*PAGER|\w*EDITOR|VISUAL"
    r"|LESSOPEN|LESSCLOSE|GIT_(?:EXTERNAL_DIFF|SSH|SSH_COMMAND|CONFIG\w*|EXEC_PATH|ASKPASS|PROXY_COMMAND|DIR|TEMPLATE_DIR)"
)
"""Variables that decide which programs others run."""

_SAFE_VALUES = ("", "true", ":", "cat", "less", "more", "false")

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")


def is_assignment(word: ShellWord) -> bool:
    return "=" in word.text and _ASSIGNMENT.match(word.text) is not None


def can_change_programs(name: str, value: str | None) -> bool:
    """Whether giving this variable this value may make other programs run than those that are named."""
    if _LOOKUP_VARIABLES.fullmatch(name) is None:
        return False
    return name.startswith(("PATH", "LD_")) or value not in _SAFE_VALUES


def skip_options(args: Sequence[ShellWord], valued: str, long: str = "") -> Sequence[ShellWord]:
    """What follows the options, where some of them take the next word as their value."""
    names = long.split()
    index = 0
    while index < len(args):
        text = args[index].text
        if text == "--":
            return args[index + 1 :]
        if not text.startswith("-") or text == "-":
            break
        if text.startswith("--"):
            index += 2 if any(name.startswith(text[2:]) for name in names) else 1
        else:
            index += 2 if text[-1] in valued and not set(text[1:-1]) & set(valued) else 1
    return args[index:]


def find_option_value(args: Sequence[ShellWord], short: str, long: str) -> ShellWord | None:
    """The value of one option, written in any of the usual ways."""
    for index, word in enumerate(args):
        text = word.text
        if text in (f"--{long}", f"-{short}"):
            return args[index + 1] if index + 1 < len(args) else None
        for start in (f"--{long}=", f"-{short}"):
            if short and text.startswith(start) and not (start == f"-{short}" and text.startswith("--")):
                return ShellWord(text[len(start) :], word.expands, word.glob, word.quoted)
        if short and re.match(rf"-\w*{short}$", text) and not text.startswith("--"):
            return args[index + 1] if index + 1 < len(args) else None
    return None
