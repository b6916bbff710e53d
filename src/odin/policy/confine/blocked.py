"""What a sandbox kept a command from, told from what the command printed: a guess that errs on the quiet side."""

import os
import re
from pathlib import Path

from odin.policy.confine.layout import SandboxLayout
from odin.policy.paths import contains

_MAX_SCANNED_CHARS = 20_000
"""Characters at the end of the output that are looked at."""

_NOT_EXECUTABLE = 126
"""The shell's code for a file that it may not run."""

_NETWORK = re.compile(
    r"network is unreachable|network unreachable|\bENETUNREACH\b|could not resolve|temporary failure in name resolution"
    r"|name or service not known|\bEAI_AGAIN\b|getaddrinfo (?:ENOTFOUND|failed)|failed to resolve|no such host"
    r"|unable to resolve host|failed to lookup address|NameResolutionError|cannot resolve host",
    re.IGNORECASE,
)
_CONNECT_DENIED = re.compile(r"connect(?:ion)?\b.*(?:permission denied|\bEACCES\b)|dial tcp.*permission denied", re.I)
_DOCKER = re.compile(r"cannot connect to the docker daemon|docker\.sock|podman\.sock", re.IGNORECASE)
_READ_ONLY = re.compile(r"read-only file system|\bEROFS\b", re.IGNORECASE)
_BUSY = re.compile(r"device or resource busy|\bEBUSY\b", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|\bEACCES\b", re.IGNORECASE)
_REFUSED = re.compile(r"connection refused|\bECONNREFUSED\b|couldn't connect|failed to connect", re.IGNORECASE)
_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?:[\s\w(),\"]*port)?[:\s]+(\d{2,5})\b")
_PATH_BEFORE = re.compile(
    r"""(?:['"‘`]([^'"’`\n]+)['"’`]|([^\s:'"]+)): (?=read-only file|permission denied)""", re.IGNORECASE
)
_ERROR_WORD = re.compile(r"E[A-Z]+|\[?[Ee]rrno|\d+\]?|[A-Za-z]*Error")
_QUOTED = re.compile(r"""['"‘`]([^'"’`\n]*[/.\w][^'"’`\n]*)['"’`]""")
_BARE = re.compile(r"""(?:^|[\s(=])((?:\.{0,2}/|\.)[^\s:'"]+)""")


def describe_denial(output: str, code: int, cwd: str, plan: SandboxLayout, *, network: bool) -> str:
    """What it was kept from, to follow "the sandbox kept it from", or ""."""
    for line in output[-_MAX_SCANNED_CHARS:].splitlines():
        found = _describe_file_denial(line, code, cwd, plan) or ("" if network else _describe_network_denial(line))
        if found:
            return found
    return ""


def _describe_network_denial(line: str) -> str:
    if _DOCKER.search(line):
        return "reaching the container daemon"
    if _NETWORK.search(line) or _CONNECT_DENIED.search(line):
        return "reaching the network"
    port = _LOCAL.search(line) if _REFUSED.search(line) else None
    return f"reaching port {port[1]} of this machine" if port and _is_port_open(int(port[1])) else ""


def _describe_file_denial(line: str, code: int, cwd: str, plan: SandboxLayout) -> str:
    if _READ_ONLY.search(line):
        path = _extract_path(line, cwd)
        return f"writing {path}" if path else "writing outside the project and the temporary folders"
    if _BUSY.search(line):
        held = (*plan.protected, *plan.pinned)
        named = (_join_path(cwd, name) for name in _QUOTED.findall(line) or _BARE.findall(line))
        return next((f"changing {path}" for path in named if any(contains(path, guard) for guard in held)), "")
    if _DENIED.search(line) and code != _NOT_EXECUTABLE:
        return _describe_denied_path(_extract_path(line, cwd), plan)
    return ""


def _describe_denied_path(path: str, plan: SandboxLayout) -> str:
    """A denial is the sandbox's doing when Odin itself could have done it."""
    if not path or path.startswith(("/proc", "/sys", "/dev")):
        return ""
    real = os.path.realpath(path)
    if any(contains(place, real) for place in plan.hidden):
        return f"reading {path}"
    kept = any(contains(place, real) for place in plan.persistent)
    if any(contains(place, real) for place in (*plan.writable, *(() if kept else plan.temporary))):
        return ""
    there = real if os.path.exists(real) else os.path.dirname(real)  # noqa: PTH110, PTH120
    can_read = not os.path.exists(real) or os.access(real, os.R_OK)  # noqa: PTH110
    return f"writing {path}" if can_read and os.access(there, os.W_OK) else ""


def _extract_path(line: str, cwd: str) -> str:
    """The path a complaint is about: what stands right before it, or what is quoted, or what looks like a path."""
    before = [quoted or bare for quoted, bare in _PATH_BEFORE.findall(line)]
    names = [name for name in before if not _ERROR_WORD.fullmatch(name)] or _QUOTED.findall(line) or _BARE.findall(line)
    return _join_path(cwd, names[-1]) if names else ""


def _join_path(cwd: str, name: str) -> str:
    return os.path.normpath(os.path.join(cwd, name.rstrip(".,;)")))  # noqa: PTH118


def _is_port_open(port: int) -> bool:
    """Whether something on this machine, outside the sandbox, waits for connections there."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
