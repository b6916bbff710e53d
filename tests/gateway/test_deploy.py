"""The files with which the gateway is run: a unit of systemd and a container, and the workspace."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from odin.commands.main import COMMANDS
from tests.conftest import Run, RunHere
from tests.waiting import LIMIT_S

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit(home: Path) -> None:
    program = home / ".local/bin/odin"
    program.parent.mkdir(parents=True)
    program.symlink_to("/bin/true")
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(DEPLOY / "odin-gateway.service")],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_and_the_program_agree(home: Path, run_odin: Run) -> None:
    """What cannot get better by starting again has the exit code for which systemd does not."""
    unit = (DEPLOY / "odin-gateway.service").read_text()
    code = int(re.findall(r"RestartPreventExitStatus=(\d+)", unit)[0])
    (home / ".config/odin").mkdir(parents=True)
    for settings in (
        '{"gateway": {"port": "x"}}',
        '{"gateway": {"heartbeat": {"enabled": true, "active_hours": "8"}}}',
    ):
        (home / ".config/odin/odinconfig.json").write_text(settings)
        assert run_odin("gateway").returncode == code


def test_the_container() -> None:
    """It copies files that exist, and starts a command that exists."""
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert copied and all((DEPLOY.parent / name).exists() for name in copied)
    assert [line for line in lines if line.startswith(("ENTRYPOINT", "CMD"))] == [
        'ENTRYPOINT ["odin"]',
        'CMD ["gateway"]',
    ]
    assert "gateway" in COMMANDS


def test_the_workspace(home: Path, run_here: RunHere) -> None:
    """`odin onboard` makes what is missing and changes nothing. `odin status` shows what there is."""
    assert "`odin onboard` sets it up" in run_here("status")[1]
    code, out, _ = run_here("onboard")
    workspace = home / "odin"
    assert code == 0 and f"{workspace}: made AGENTS.md" in out and f"`odin trust add {workspace}`" in out
    names = {str(path.relative_to(workspace)) for path in workspace.rglob("*")}
    assert names >= {"AGENTS.md", "HEARTBEAT.md", ".odin/SOUL.md", ".odin/USER.md", ".odin/IDENTITY.md"}
    assert names >= {"memory/MEMORY.md", ".odin/skills", "cron"} and workspace.stat().st_mode & 0o77 == 0
    (workspace / "HEARTBEAT.md").write_text("mine")
    (workspace / "AGENTS.md").unlink()
    assert f"{workspace}: made AGENTS.md.\n" in run_here("onboard")[1]
    assert (workspace / "HEARTBEAT.md").read_text() == "mine"
    out = run_here("status")[1]
    assert "Gateway: not running." in out and "onboard" not in out
