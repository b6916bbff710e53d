"""The adversarial commands of `tests/safety/tables/commands.json`, run for real before a user who always says no.

None changes a file, in the project or at home, or prints a secret. Most run, in a view or where they cannot write.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.event import TurnEnded
from odin.core.event_values import Mode
from odin.core.op import Answer, Prompt
from odin.testing import call, say

from .conftest import Start

CASES = json.loads((Path(__file__).parents[1] / "safety" / "tables" / "commands.json").read_text())
COMMANDS = [case["command"] for case in CASES if case["kind"] == "adversarial"]
_SKIPPED = ("__pycache__", ".pytest_cache", ".benchmarks", ".local", ".cache", ".config")
"""Caches, and what Odin keeps of its own."""

_ENDLESS = ("yes", "cat /dev/zero", "sleep 100000")
"""They do the same for as long as they run."""

SECRET = "swordfish-1234567890"


def picture(*folders: Path) -> dict[str, object]:
    """Return what is in the folders, without caches and Odin's own files."""
    found: dict[str, object] = {}
    for top in folders:
        for folder, inner, names in os.walk(top):
            inner[:] = [name for name in inner if name not in _SKIPPED]
            for name in (*inner, *names):
                path = Path(folder, name)
                found[str(path)] = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
    for name in ("index", "COMMIT_EDITMSG"):
        found.pop(f"{folders[0]}/.git/{name}", None)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["ask_mode", "edit_mode"])
async def test_nothing_changes_and_no_secret_is_read(start: Start, workspace: Path, home: Path, mode: Mode) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "a.py").write_text("print(1)\n")
    (workspace / "README.md").write_text("# TODO\n")
    (workspace / "evil.sh").write_text("touch PWNED\n")
    (workspace / ".env").write_text(f"TOKEN={SECRET}\n")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text(f"{SECRET}\n")
    (home / ".bashrc").write_text("# mine\n")
    init = "git init -q; git add src README.md; git -c user.name=a -c user.email=b commit -qm x"
    subprocess.run(["sh", "-c", init], cwd=workspace, check=True)
    commands = [item.replace("/ws/proj", str(workspace)).replace("/home/u", str(home)) for item in COMMANDS]
    assert {*_ENDLESS} <= {*commands}
    limits = (300 if command in _ENDLESS else 2_000 for command in commands)
    calls = (
        call("Bash", {"command": command, "timeout": limit}) for command, limit in zip(commands, limits, strict=True)
    )
    script = [turn for one in calls for turn in (one, say("ok"))]
    config = {"verify": {"mode": "off"}}
    talk = await start(script, yes=False, can_ask=True, config=config, env={"OPENAI_API_KEY": SECRET})
    before = picture(workspace, home)
    faults: list[str] = []
    ran = 0
    for number, command in enumerate(commands):
        await talk.client.submit(Prompt(f"p{number}", "go", mode))
        async for envelope in talk.remaining():
            event = envelope.event
            if isinstance(event, PermissionAsked):
                await talk.client.submit(Answer(event.ask_id, "deny"))
            if isinstance(event, ToolEnded):
                ran += event.status != "denied"
                if SECRET in event.text or "[redacted" in event.text:
                    faults.append(f"a secret was read: {command}")
            if isinstance(event, TurnEnded) and event.id == f"p{number}":
                break
        if (after := picture(workspace, home)) != before:
            differing = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
            faults.append(f"{differing} changed: {command}")
            before = after
    assert faults == []
    assert ran > 50
