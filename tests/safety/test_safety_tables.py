"""The tables in `tables`: commands, everyday commands, poisoned repositories and misleading paths, with their verdicts.

The cases write the workspace as /ws/proj and the home folder as /home/u; the tests replace them by their own folders.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from odin.config.paths import make_environment
from odin.core.event_values import Mode
from odin.core.profile import CommandLevel, ProcessProfile
from odin.core.tool import Kind, Target
from odin.policy.decision import Decision
from odin.sandbox.runner import ProcessRunner
from tests.policy.policies import FakeConfinement, make_policy
from tests.policy.repositories import make_repository
from tests.waiting import LIMIT_S

TABLES = Path(__file__).parent / "tables"
MODES: dict[str, Mode] = {"ask": "ask_mode", "plan": "plan_mode", "edit": "edit_mode"}
VERDICTS = {"allow": "auto", "ask": "ask", "deny": "deny"}


def load_cases(name: str) -> list[dict[str, Any]]:
    return json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def repo(workspace: Path, home: Path) -> Path:
    """The project of the tables, with a link to a home folder that has private files."""
    make_repository(workspace)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("PRIVATE\n")
    (home / ".bashrc").write_text("# mine\n")
    (workspace / "linkdir").symlink_to(home)
    return workspace


def localize_paths(text: str, repo: Path, home: Path) -> str:
    return (
        text.replace("/ws/proj", str(repo))
        .replace("/home/u", str(home))
        .replace("../proj-evil", f"../{repo.name}-evil")
    )


def decide(repo: Path, mode: str, kind: Kind, target: Target, name: str = "ExecuteCommand", **settings: Any) -> str:
    policy = make_policy(root=str(repo), **settings)
    return VERDICTS[policy.evaluate(name, kind, target, MODES[mode]).action]


# --- commands ---


LEVELS: tuple[CommandLevel, ...] = ("view", "kernel", "none")


def decide_command(repo: Path, command: str, level: CommandLevel, mode: str = "edit", **settings: Any) -> Decision:
    policy = make_policy(root=str(repo), confinement=FakeConfinement(level), **settings)
    return policy.evaluate("ExecuteCommand", "execute", Target(command=command), MODES[mode])


def list_commands(kind: str, repo: Path, home: Path) -> list[tuple[dict[str, Any], str]]:
    cases = [case for case in load_cases("commands") if case["kind"] == kind]
    return [(case, localize_paths(case["command"], repo, home)) for case in cases]


NOT_LISTED = {"python3 --version", "ps aux", "free -m", "pgrep -a bash"}
"""Commands that only read, but are not on the short list."""


@pytest.mark.parametrize("level", LEVELS)
def test_benign_commands_run_without_approval_where_they_can_write_nothing(repo: Path, home: Path, level: CommandLevel):
    benign = list_commands("benign", repo, home)
    assert len(benign) == 63
    found = {command: decide_command(repo, command, level, case["mode"]) for case, command in benign}
    listed = {command: decision for command, decision in found.items() if command not in NOT_LISTED}
    assert {
        command for command, decision in listed.items() if (decision.action, decision.runs_in) != ("allow", "read")
    } == set()
    assert {found[command].action for command in NOT_LISTED} == {"ask" if level == "none" else "allow"}


@pytest.mark.parametrize("level", LEVELS)
def test_no_adversarial_command_changes_the_project_without_approval(repo: Path, home: Path, level: CommandLevel):
    for case, command in list_commands("adversarial", repo, home):
        decision = decide_command(repo, command, level, case["mode"])
        assert decision.action != "allow" or decision.runs_in in ("view", "read"), command
        assert decision.action != "allow" or decision.after != "apply", command
        if case["mode"] == "ask" and decision.runs_in == "view":
            assert decision.after == "discard", command
        if case["expect"] == "deny":
            assert decision.action in case.get("accept", ["deny"]), command
        if level == "none" and "auto" not in case.get("accept", [case["expect"]]):
            assert decision.action != "allow", command


SAFE_IN_A_SANDBOX = (
    "chaining",
    "substitution",
    "env-prefix",
    "wrappers",
    "tool-flags",
    "git",
    "hang",
    "redirection",
    "edit-mode",
)
HARMLESS = {"truncate -s0 README.md", "grep -r SECRET ."}


@pytest.mark.parametrize("level", ["view", "kernel"])
def test_what_needs_the_network_secrets_or_the_machine_is_asked_about_before(
    repo: Path, home: Path, level: CommandLevel
):
    (repo / ".env").write_text("SECRET=1\n")
    for case, command in list_commands("adversarial", repo, home):
        if case["category"] not in SAFE_IN_A_SANDBOX and command not in HARMLESS:
            assert decide_command(repo, command, level, case["mode"]).action != "allow", command
        decision = decide_command(repo, command, level, case["mode"], permission_mode="auto")
        named = [name for name in ("/.ssh", "~/", str(home)) if name in command.replace(str(repo), "")]
        assert decision.action != "allow" or not named, command


REACHING_COMMANDS = """
curl localhost:3000|curl -X POST http://127.0.0.1:8080/x|wget -q x.org|nc -l 80|ssh host ls|scp a host:b
git push origin main|git fetch --all|git clone https://x.org/y|git remote update|git submodule update --init
pip install x|python3 -m pip install x|uv add x|npm i x|npm ci|pnpm add x|yarn|yarn add x|cargo install x|go get x
gem install x|bundle install|composer require x|apt-get install -y x|brew install x|npm publish|twine upload dist/x
docker ps|docker compose up|podman run x|kubectl get pods|helm list|terraform plan|aws s3 ls|gcloud info|gh pr view
psql -c x|mysql -e x|redis-cli get x|mongosh|ping -c1 x.org|dig x.org|python3 -m http.server
cat /etc/passwd|ls ~|cp a ../b|echo x > ~/.bashrc|cat ~/.ssh/id_rsa|tar xf a.tar -C /opt|python3 /etc/x.py|cd / && ls
cat .env|grep KEY .env|cat config/../.env|source .env|cp .env copy|git show HEAD:.env|head -c9 server.key|cat .e*v
env|printenv|export -p|declare -p|set|echo $GITHUB_TOKEN|ps e|jq -n env|awk 'BEGIN{print ENVIRON["X"]}'
python3 -c 'import os; print(os.environ)'|node -e 'console.log(process.env)'
python3 -c 'print(open(".env").read())'|perl -ne 'print' /etc/passwd|node -e 'require("fs").readFileSync("/etc/hosts")'
sudo ls|su -c ls|systemctl stop x|crontab -l|mount /x|git config --global a.b c|exec 3<>/dev/tcp/x.org/80
"""


def split_table(text: str) -> list[str]:
    return [command for line in text.strip().splitlines() for command in line.split("|")]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("permission_mode", ["default", "auto"])
def test_commands_that_reach_out_are_asked_about_before(repo: Path, level: CommandLevel, permission_mode: str):
    (repo / ".env").write_text("SECRET=1\n")
    for command in split_table(REACHING_COMMANDS):
        for mode in MODES:
            assert decide_command(repo, command, level, mode, permission_mode=permission_mode).action != "allow", (
                command
            )


CONFINED_COMMANDS = """
pytest -q|mypy src|ruff check .|npm test|npx tsc|uv run pytest|cargo build|go test ./...|make|git commit -m 'about .env'
sed -n '/x/,/y/p' README.md|sed -i 's/a b/c d/' README.md|python3 -c 'import a.key; print(a.key, 1/2, "./src/x")'
awk '/x/ {print $1}' README.md|grep -rn '/api/v1' src
python3 - <<'E'⏎print(1)⏎E|sh -c 'echo hi'|rm -rf src|git reset --hard|docker-credential-x|echo .env >> .gitignore
ls /tmp|cat /tmp/x|python3 a.py > /var/tmp/x|mktemp -d|kill %1|pkill -f 'node server'|find . -name '*.pyc' -delete
"""


@pytest.mark.parametrize("permission_mode", ["default", "acceptEdits", "auto", "dontAsk"])
def test_commands_that_the_sandbox_confines_run_in_a_view(repo: Path, permission_mode: str):
    afters = {"default": "ask", "acceptEdits": "edits", "auto": "apply", "dontAsk": "discard"}
    for line in CONFINED_COMMANDS.strip().splitlines():
        for command in re.split(r"\|(?! *\{|/)", line):
            decision = decide_command(repo, command.replace("⏎", "\n"), "view", permission_mode=permission_mode)
            assert (decision.action, decision.after) == ("allow", afters[permission_mode]), command
            assert decision.runs_in in ("view", "read"), command
            assert decision.hides_secrets, command


# --- everyday commands ---


ASKED_ABOUT_IN_ADDITION = {"curl -s http://localhost:3000/health", "env | grep PATH"}
"""Commands of the table that could run in a view, but without access to what they ask for."""


@pytest.mark.parametrize("permission_mode", ["default", "auto", "acceptEdits"])
@pytest.mark.parametrize("mode", ["edit", "ask"])
def test_everyday_commands_are_asked_about_before_only_if_they_need_the_network(
    repo: Path, permission_mode: str, mode: str
):
    cases = load_cases("typical")
    assert len(cases) == 130
    found = {
        case["command"]: decide_command(repo, case["command"], "view", mode, permission_mode=permission_mode)
        for case in cases
    }
    asked = {command for command, decision in found.items() if decision.action != "allow"}
    assert asked == {case["command"] for case in cases if case["before"] == "ask"} | ASKED_ABOUT_IN_ADDITION
    assert len(asked) <= 16
    after = "discard" if mode == "ask" else {"default": "ask", "auto": "apply", "acceptEdits": "edits"}[permission_mode]
    assert {decision.after for command, decision in found.items() if command not in asked} == {after}


def test_fewer_everyday_commands_run_unasked_without_views(repo: Path):
    counts = {
        (level, mode): sum(
            decide_command(repo, case["command"], level, permission_mode=mode).action != "allow"
            for case in load_cases("typical")
        )
        for level in ("kernel", "none")
        for mode in ("default", "auto")
    }
    assert counts[("kernel", "default")] <= 20
    assert counts[("kernel", "auto")] <= 30
    assert counts[("none", "default")] == counts[("none", "auto")] <= 115


# --- poisoned repositories ---


@pytest.mark.parametrize("case", load_cases("repos"), ids=lambda case: case["id"])
async def test_no_program_of_a_poisoned_repository_runs(
    repo: Path, home: Path, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    canary = repo / "PWNED"
    (repo / "evil.sh").write_text(f"#!/bin/sh\ntouch {canary}\n")
    setup = localize_paths(case["setup"], repo, home).replace("/tmp/c", str(repo.parent / "commit"))
    subprocess.run(["bash", "-c", setup], cwd=repo, check=True, capture_output=True)
    if "export PATH=" in setup:
        monkeypatch.setenv("PATH", f"{repo}:{os.environ['PATH']}")
    assert not canary.exists()
    runner = ProcessRunner(make_environment(cwd="/"))
    for command in case["commands"]:
        for mode in MODES:
            if decide(repo, mode, "execute", Target(command=command)) == "auto":
                confinement = ProcessProfile("project" if mode == "edit" else "read")
                done = await runner.run(command, cwd=str(repo), timeout=LIMIT_S, profile=confinement)
                assert "PRIVATE" not in done.output
            assert not canary.exists(), command
    await runner.close()


def test_git_in_a_poisoned_repository_needs_approval(repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    """The settings of these repositories name programs that git would start."""
    for case in load_cases("repos"):
        if case["id"] in ("path-dot", "symlink-read", "gitfile"):
            continue
        config = repo / ".git" / "config"
        kept = config.read_text()
        for key in (
            "core.fsmonitor",
            "diff.evil.textconv",
            "filter.evil.clean",
            "gpg.program",
            "core.pager",
            "include.path",
        ):
            if key in case["setup"]:
                subprocess.run(["git", "-C", str(repo), "config", key, "./evil.sh"], check=True)
        assert config.read_text() != kept, case["id"]
        for command in case["commands"]:
            assert decide(repo, "edit", "execute", Target(command=command)) == "ask", (case["id"], command)
        config.write_text(kept)
    assert decide(repo, "edit", "execute", Target(command="git status")) == "auto"


# --- paths ---


@pytest.mark.parametrize("permission_mode", ["default", "acceptEdits"])
@pytest.mark.parametrize("case", load_cases("paths"), ids=lambda case: repr(case["path"]))
def test_every_path_gets_an_accepted_verdict(repo: Path, home: Path, case: dict[str, Any], permission_mode: str):
    if "setup" in case:
        setup = localize_paths(case["setup"], repo, home)
        subprocess.run(["bash", "-c", setup], cwd=repo, check=True, capture_output=True)
    path = localize_paths(case["path"], repo, home).replace("/ws/proj-evil", f"{repo}-evil")
    if case["tool"] == "webfetch":
        found = decide(repo, case["mode"], "network", Target(url=path), "WebFetch")
    else:
        kind: Kind = "read" if case["tool"] == "read" else "edit"
        full = path if path.startswith(("/", "~")) else str(repo / path)
        name = "ReadFile" if kind == "read" else "WriteFile"
        found = decide(repo, case["mode"], kind, Target(paths=(full,)), name, permission_mode=permission_mode)
    assert found in case.get("accept", [case["expect"]])
