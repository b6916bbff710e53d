"""Attacks that hurt users of other agents, end to end: the model requests them, and the canaries survive.

The sessions run in a jail (read-only machine, empty /tmp, no network), so a fault costs only a failed test. Odin's own
sandbox is off in most plays: the policy alone has to hold.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.policy.policy import Policy

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ATTACKS: dict[str, list[str]] = json.loads((HERE / "attacks.json").read_text())

MODES = ("ask_mode", "plan_mode", "edit_mode")
PERMISSION_MODES = ("default", "acceptEdits", "dontAsk", "bypassPermissions")


def _jail() -> list[str]:
    found = shutil.which("bwrap")
    if found is None:
        return []
    walls = [
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
            walls += ["--ro-bind", needed, needed]
    jail = [found, *walls, "--die-with-parent", "--cap-drop", "ALL", "--setenv", "TMPDIR", "/tmp"]
    works = subprocess.run([*jail, "true"], capture_output=True, check=False).returncode == 0
    return jail if works else []


JAIL = _jail()

pytestmark = pytest.mark.skipif(not JAIL, reason="attacks are played in bubblewrap only, and it does not work here")


def play(**wish: Any) -> list[dict[str, Any]]:
    ran = subprocess.run(
        [*JAIL, sys.executable, "-B", "-m", "tests.safety.player"],
        cwd=ROOT,
        input=json.dumps(wish),
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
def test_the_worst_never_runs_whoever_says_yes(permission_mode: str) -> None:
    outcomes = play(attacks=ATTACKS["never"], modes=MODES, permission_mode=permission_mode)
    assert [_short(item) for item in outcomes if item["changed"] or item["status"] != "denied" or item["asked"]] == []
    assert all(len(item["text"]) > 30 for item in outcomes)


def _short(outcome: dict[str, Any]) -> tuple[Any, ...]:
    """Return enough of the outcome to see the cause of a failure."""
    return (
        outcome["command"],
        outcome["mode"],
        outcome["status"],
        outcome["asked"],
        outcome["changed"],
        outcome["text"][:80],
    )


def _suffered(outcomes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [_short(item) for item in outcomes if item["changed"] or item["status"] != "denied"]


@pytest.mark.parametrize("command", ATTACKS["judged"])
@pytest.mark.parametrize("permission_mode", PERMISSION_MODES)
def test_what_would_take_the_machine_is_denied(command: str, permission_mode: str, workspace: Path) -> None:
    from odin.core.tool import Subject

    policy = Policy(root=str(workspace), permission_mode=permission_mode, yes=True)
    verdict = policy.judge("ExecuteCommand", "execute", Subject(command=command), "edit_mode")
    assert verdict.action == "deny"
    assert verdict.builtin


def test_a_person_who_says_no_keeps_everything() -> None:
    assert _suffered(play(attacks=[*ATTACKS["outside"], *ATTACKS["broom"]], modes=MODES, person="no")) == []


@pytest.mark.parametrize(
    "permission_mode", ["default", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("acceptEdits", "dontAsk"))]
)
def test_with_nobody_to_ask_nothing_happens(permission_mode: str) -> None:
    attacks = [*ATTACKS["outside"], *ATTACKS["broom"]]
    assert _suffered(play(attacks=attacks, modes=MODES, permission_mode=permission_mode, person="nobody")) == []


def test_outside_the_project_the_sandbox_holds_even_under_a_bypass() -> None:
    """No approval and no recognized command: only the sandbox is left."""
    attacks, edit = ATTACKS["outside"], ["edit_mode"]
    outcomes = play(attacks=attacks, modes=edit, permission_mode="bypassPermissions", person="nobody", sandbox="auto")
    assert [_short(item) for item in outcomes if item["changed"]] == []


def test_what_a_yes_destroyed_comes_back() -> None:
    outcomes = play(attacks=ATTACKS["broom"], modes=["edit_mode"], person="yes", undo=True)
    assert sum(bool(outcome["changed"]) for outcome in outcomes) > 8
    assert [(*_short(item), item["lost"]) for item in outcomes if item["lost"] or not item["asked"]] == []


@pytest.mark.parametrize("glue", [";", "&&", "\n", " | "])
@pytest.mark.parametrize("around", [50, 600, 2_400, 9_000, 30_000])
def test_nothing_hides_among_many_commands(around: int, glue: str) -> None:
    from odin.core.tool import Subject

    policy = Policy(root="/somewhere/proj", permission_mode="bypassPermissions", yes=True)
    padding = f"true{glue}" * around
    worst = "rm -rf ."
    others = "".join(f"rm -rf made{number}{glue}" for number in range(around // 20))
    for command in (
        f"{padding}{worst}{glue}{padding}ls",
        f"{worst}{glue}{padding}ls",
        f"{others}{worst}{glue}{others}ls",
    ):
        verdict = policy.judge("ExecuteCommand", "execute", Subject(command=command), "edit_mode")
        looked_through = len(command) <= 40_000 and around < 5_000
        assert verdict.action == ("deny" if looked_through else "ask") or verdict.builtin


def test_another_spelling_after_a_denial_is_denied_too() -> None:
    from odin.core.tool import Subject

    policy = Policy(root="/somewhere/proj", permission_mode="bypassPermissions", yes=True)
    attacks = [text for text in ATTACKS["never"] if not text.endswith("&")]
    spellings = [
        form.format(text) for text in attacks for form in (" {} ", "{} ;", "time {}", "! {}", "{} | cat", "true\n{}")
    ]
    judged = {text: policy.judge("ExecuteCommand", "execute", Subject(command=text), "edit_mode") for text in spellings}
    assert [text for text, verdict in judged.items() if verdict.action != "deny"] == []
