"""When Odin is killed, all processes that it had started end: commands, spawned commands, hooks and their sandbox."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from odin.testing.script import SeenRequest
from tests.waiting import LIMIT_S, wait_until

from ..sandbox.processes import is_alive

ROOT = Path(__file__).parent.parent.parent
TREE = "sleep {0} & (sleep {0} & setsid sleep {0} & wait) & trap '' TERM HUP; sleep {0}; wait"
"""Four processes: a child, a grandchild, one in its own process session, and a shell that ignores signals."""


def list_parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    return found


def find_descendants(pid: int) -> set[int]:
    known = list_parents()
    found = {pid}
    while more := {child for child, parent in known.items() if parent in found} - found:
        found |= more
    return found - {pid}


def count_matching(pids: set[int], words: str) -> int:
    count = 0
    for pid in pids:
        try:
            count += words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
    return count


def find_processes(words: str) -> set[int]:
    return {pid for pid in list_parents() if count_matching({pid}, words)}


@pytest.mark.parametrize("sandbox", [pytest.param("off", marks=pytest.mark.slow), "auto"])
@pytest.mark.parametrize("kind", ["command", "spawn", "hook", "sub-agent", "own"])
@pytest.mark.parametrize("whole_group", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_started_process_survives_a_killed_odin(
    kind: str, sandbox: str, whole_group: bool, workspace: Path, home: Path
) -> None:
    mark = f"7{os.getpid()}.{len(kind)}{len(sandbox)}{int(whole_group)}"
    tree = TREE.format(mark)
    config: dict[str, object] = {"sandbox": {"backend": sandbox}}
    if kind == "hook":
        config["hooks"] = {"on_before_llm_call": [{"command": tree, "timeout": 600}]}
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "odinconfig.json").write_text(json.dumps(config))
    scripts = {
        "command": [call("ExecuteCommand", {"command": tree})],
        "spawn": [call("Spawn", {"command": tree}), say("It runs.")],
        "sub-agent": [
            call("AgentTool", {"description": "help", "prompt": "help"}),
            call("ExecuteCommand", {"command": tree}),
        ],
    }
    left = list(scripts.get(kind, []))

    def model(seen: SeenRequest) -> Turn:
        return left.pop(0) if left and seen.tool_names else say("Done.")

    with ScriptedServer(model) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.busy_session", kind, tree if kind == "own" else "go"],
            cwd=workspace,
            env={
                **os.environ,
                **server.env("anthropic"),
                "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
            },
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until(lambda: len(find_processes(f"sleep {mark}")) >= 4 or process.poll() is not None)
            assert process.poll() is None
            started = find_descendants(process.pid) | find_processes(f"sleep {mark}")
            assert len(started) >= 5
        finally:
            (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)
            process.wait(LIMIT_S)
        wait_until(lambda: not any(is_alive(pid) for pid in started))
        assert find_processes(f"sleep {mark}") == set()
