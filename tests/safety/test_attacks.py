"""Destructive commands that hurt users of other agents, end to end: the model requests them, and no file is lost.

The sessions run in a jail (read-only machine, empty /tmp, no network), so a bug costs only a failed test. Odin's own
sandbox is off in most runs: the policy alone must protect the files.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.policy.policies import make_policy

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ATTACKS: dict[str, list[str]] = json.loads((HERE / "attacks.json").read_text())

MODES = ("ask_mode", "plan_mode", "edit_mode")
PERMISSION_MODES = ("default", "acceptEdits", "dontAsk", "bypassPermissions")


def _build_jail() -> list[str]:
    found = shutil.which("bwrap")
    if found is None:
        return []
    options = [
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
        "--unshare-net",
        "--unshare-pid",
        "--unshare-ipc",
    ]
    for needed in (str(ROOT), sys.base_prefix, sys.prefix):
        if needed.startswith("/tmp/"):
            options += ["--ro-bind", needed, needed]
    jail = [found, *options, "--die-with-parent", "--cap-drop", "ALL", "--setenv", "TMPDIR", "/tmp"]
    works = subprocess.run([*jail, "true"], capture_output=True, check=False).returncode == 0
    return jail if works else []


JAIL = _build_jail()

pytestmark = pytest.mark.skipif(not JAIL, reason="attacks are played in bubblewrap only, and it does not work here")


def run_attacks(**plan: Any) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [*JAIL, sys.executable, "-B", "-m", "tests.safety.attack_runner"],
        cwd=ROOT,
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    "permission_mode",
    [PERMISSION_MODES[-1], *(pytest.param(mode, marks=pytest.mark.slow) for mode in PERMISSION_MODES[:-1])],
)
def test_destructive_commands_are_denied_without_asking_in_every_mode(permission_mode: str) -> None:
    outcomes = run_attacks(attacks=ATTACKS["never"], modes=MODES, permission_mode=permission_mode)
    assert [
        _summarize(item) for item in outcomes if item["changed"] or item["status"] != "denied" or item["asked"]
    ] == []
    assert all(len(item["text"]) > 30 for item in outcomes)


def _summarize(outcome: dict[str, Any]) -> tuple[Any, ...]:
    """Return enough of the outcome to see the cause of a failure."""
    return (
        outcome["command"],
        outcome["mode"],
        outcome["status"],
        outcome["asked"],
        outcome["changed"],
        outcome["text"][:80],
    )


def _list_damage(outcomes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [_summarize(item) for item in outcomes if item["changed"] or item["status"] != "denied"]


@pytest.mark.parametrize("command", ATTACKS["judged"])
@pytest.mark.parametrize("permission_mode", PERMISSION_MODES)
def test_commands_that_would_take_over_the_machine_are_denied(
    command: str, permission_mode: str, workspace: Path
) -> None:
    from odin.core.tool import Target

    policy = make_policy(root=str(workspace), permission_mode=permission_mode, yes=True)
    decision = policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")
    assert decision.action == "deny"
    assert decision.builtin


def test_no_file_changes_when_the_user_denies_every_request() -> None:
    assert _list_damage(run_attacks(attacks=[*ATTACKS["outside"], *ATTACKS["broom"]], modes=MODES, person="no")) == []


@pytest.mark.parametrize(
    "permission_mode", ["default", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("acceptEdits", "dontAsk"))]
)
def test_no_file_changes_when_no_user_can_be_asked(permission_mode: str) -> None:
    attacks = [*ATTACKS["outside"], *ATTACKS["broom"]]
    assert (
        _list_damage(run_attacks(attacks=attacks, modes=MODES, permission_mode=permission_mode, person="nobody")) == []
    )


def test_sandbox_protects_files_outside_the_project_under_bypass_permissions() -> None:
    """Nothing asks, and the policy denies none of these commands: only the sandbox protects."""
    attacks, edit = ATTACKS["outside"], ["edit_mode"]
    outcomes = run_attacks(
        attacks=attacks, modes=edit, permission_mode="bypassPermissions", person="nobody", sandbox="auto"
    )
    assert [_summarize(item) for item in outcomes if item["changed"]] == []


def test_rewind_restores_files_that_an_approved_command_destroyed() -> None:
    outcomes = run_attacks(attacks=ATTACKS["broom"], modes=["edit_mode"], person="yes", undo=True)
    assert sum(bool(outcome["changed"]) for outcome in outcomes) > 8
    assert [(*_summarize(item), item["lost"]) for item in outcomes if item["lost"] or not item["asked"]] == []


@pytest.mark.parametrize("glue", [";", "&&", "\n", " | "])
@pytest.mark.parametrize("around", [50, 600, 2_400, 9_000, 30_000])
def test_a_destructive_command_is_found_among_thousands_of_others(around: int, glue: str) -> None:
    from odin.core.tool import Target

    policy = make_policy(root="/somewhere/proj", permission_mode="bypassPermissions", yes=True)
    padding = f"true{glue}" * around
    worst = "rm -rf ."
    others = "".join(f"rm -rf made{number}{glue}" for number in range(around // 20))
    actions = [
        policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode").action
        for command in (
            f"{padding}{worst}{glue}{padding}ls",
            f"{worst}{glue}{padding}ls",
            f"{others}{worst}{glue}{others}ls",
        )
    ]
    assert actions == ["deny"] * 3


def test_other_spellings_of_a_denied_command_are_denied_too() -> None:
    from odin.core.tool import Target

    policy = make_policy(root="/somewhere/proj", permission_mode="bypassPermissions", yes=True)
    attacks = [text for text in ATTACKS["never"] if not text.endswith("&")]
    spellings = [
        form.format(text) for text in attacks for form in (" {} ", "{} ;", "time {}", "! {}", "{} | cat", "true\n{}")
    ]
    resolved_paths = {
        text: policy.evaluate("ExecuteCommand", "execute", Target(command=text), "edit_mode") for text in spellings
    }
    assert [text for text, decision in resolved_paths.items() if decision.action != "deny"] == []
