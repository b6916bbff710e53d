"""Processes of the fork server keep their exit codes apart, also when the system uses a pid again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S

ROOT = Path(__file__).parents[1]

_USE_A_PID_TWICE = """
import os, pty
from pathlib import Path
from tests.fork_server import ForkedProcess

def start(*args):
    return ForkedProcess(args, Path.cwd(), os.environ, pty.openpty()[1], piped=False)

first = start("--version")
first_code = first.wait(60)
Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
second = start("--no-such-option")
print(second.pid == first.pid, first_code, second.wait(60))
"""


@pytest.mark.slow
def test_a_pid_that_is_used_again_has_the_exit_code_of_its_last_process(workspace: Path) -> None:
    unshare = shutil.which("unshare")
    namespace = [unshare or "unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if unshare is None or subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespaces for users here")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*namespace, sys.executable, "-c", _USE_A_PID_TWICE]
    done = subprocess.run(command, cwd=workspace, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.stdout == "True 0 2\n", done.stderr
