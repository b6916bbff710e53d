"""Try the newest versions of the programs that judge Odin's MCP, and say what changed.

    referees.py          run every scenario with them; exits with 1 if a version or a scenario is new, or a test fails
    referees.py --write  pin the newest versions

`make wires` does this after it has compared the SDKs. The programs are installed in a temporary folder.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.mcp_client.referees.install import (  # noqa: E402
    PINNED,
    NotInstalled,
    Referees,
    find_newest,
    install,
    read_pinned,
)

JUDGED = "tests/mcp_client/referees"


def list_scenarios(referees: Referees) -> set[str]:
    """Return the scenarios of the suite, each with the revisions it is for."""
    listed = referees.run_conformance("list", timeout=60).stdout
    return set(re.findall(r"^\s+- (\S+ \[.*\])", listed, re.MULTILINE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="pin the newest versions")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            newest = find_newest(read_pinned())
            now, before = install(Path(folder), newest), install(Path(ROOT, ".pytest_cache/d/mcp"))
        except NotInstalled as error:
            print(f"The referees of MCP could not be installed: {error}")
            return 2
        if args.write:
            PINNED.write_bytes(msgspec.json.format(msgspec.json.encode(newest), indent=2) + b"\n")
            print(f"Pinned the newest versions in {PINNED.relative_to(ROOT)}.")
            return 0
        both = {**read_pinned().npm, **read_pinned().pip}, {**newest.npm, **newest.pip}
        lines = [f"{name}: {old} → {both[1][name]}" for name, old in both[0].items() if old != both[1][name]]
        old, new = list_scenarios(before), list_scenarios(now)
        lines += [f"+ scenario {name}" for name in sorted(new - old)] + [
            f"- scenario {name}" for name in sorted(old - new)
        ]
        print("\n".join(lines) if lines else "The referees of MCP are the same.")
        env = {**os.environ, "ODIN_SOAK": "1", "ODIN_REFEREES": str(now.folder)}
        command = [sys.executable, "-m", "pytest", JUDGED]
        failed = bool(lines) and subprocess.run(command, check=False, cwd=ROOT, env=env).returncode != 0
        if lines:
            print("Change what fails, or list it with the reason. Then run: .venv/bin/python bin/referees.py --write")
        return 1 if lines or failed else 0


if __name__ == "__main__":
    sys.exit(main())
