"""The ecosystem's own programs that judge Odin's MCP, in the versions of versions.json, installed on first use.

`make wires` installs the newest instead, in a folder of its own.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.waiting import LIMIT_S

PINNED = Path(__file__).with_name("versions.json")


class Versions(msgspec.Struct, frozen=True):
    """Versions by package. `node` is one of npm, too: the suite wants a newer one than many systems have."""

    npm: dict[str, str]
    pip: dict[str, str]


class NotInstalled(Exception):
    """The text says why."""


class Referees(msgspec.Struct, frozen=True):
    """The folder of the installed programs."""

    folder: Path

    @property
    def node(self) -> str:
        return str(self.folder / "node_modules/.bin/node")

    @property
    def python(self) -> str:
        """The Python that has fastmcp."""
        return str(self.folder / "python/bin/python")

    def get_script(self, package: str) -> str:
        return str(self.folder / "node_modules" / package / "dist/index.js")

    def run_conformance(self, *args: str, timeout: float) -> subprocess.CompletedProcess[str]:
        command = [self.node, self.get_script("@modelcontextprotocol/conformance"), *args]
        # node looks for the packages that the suite imports from where it is
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout, cwd=self.folder)


def read_pinned() -> Versions:
    return msgspec.json.decode(PINNED.read_bytes(), type=Versions)


def find_newest(pinned: Versions) -> Versions:
    """Return the newest versions of these packages; a prerelease only of one that is pinned to a prerelease."""
    npm: dict[str, str] = {}
    for package, version in pinned.npm.items():
        found = json.loads(_run(["npm", "view", package, "dist-tags.latest", "versions", "--json"]))
        npm[package] = found["versions"][-1] if "-" in version else found["dist-tags.latest"]
    uv = _find_uv()
    pip: dict[str, str] = {}
    for package in pinned.pip:
        asked = subprocess.run(
            [uv, "pip", "compile", "-q", "--no-annotate", "--no-header", "-"],
            input=package, check=False, capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        # the newest that can be installed here, with all that it needs
        pip[package] = next(
            (line[len(package) + 2 :] for line in asked.stdout.splitlines() if line.startswith(f"{package}==")), ""
        )
    return Versions(npm, pip)


def _find_uv() -> str:
    return shutil.which("uv") or str(Path(sys.executable).with_name("uv"))


def _run(command: list[str]) -> str:
    """Return what a command prints. Raise NotInstalled if it fails."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=4 * LIMIT_S, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise NotInstalled(f"{' '.join(command[:3])}: {done.stderr[-300:]}")
    return done.stdout


def find_installed(folder: Path) -> Referees | str:
    """Return the programs in their pinned versions, or why they cannot be installed here."""
    try:
        return install(folder)
    except NotInstalled as error:
        return f"the referees of MCP cannot be installed: {error}"


def install(folder: Path, versions: Versions | None = None) -> Referees:
    """Return the programs, which are installed in a folder named by their versions. Raise NotInstalled."""
    if given := os.environ.get("ODIN_REFEREES"):
        return Referees(Path(given))
    versions = versions or read_pinned()
    name = hashlib.sha256(msgspec.json.encode(versions)).hexdigest()[:12]
    target = folder / f"referees-{name}"
    target.mkdir(parents=True, exist_ok=True)
    npm, uv = shutil.which("npm"), _find_uv()
    with (folder / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (target / "complete").exists():
            return Referees(target)
        if npm is None or not os.access(uv, os.X_OK):
            raise NotInstalled("npm or uv is not there")
        wanted = [f"{package}@{version}" for package, version in versions.npm.items()]
        pip = [f"{package}=={version}" for package, version in versions.pip.items()]
        python = target / "python"
        for command in (
            [npm, "install", "--no-audit", "--no-fund", "--prefix", str(target), *wanted],
            [uv, "venv", "-q", "--clear", "--python", f"{sys.base_prefix}/bin/python3", str(python)],
            [uv, "pip", "install", "-q", "--python", str(python / "bin/python"), *pip],
        ):
            _run(command)
        (target / "complete").touch()
    return Referees(target)
