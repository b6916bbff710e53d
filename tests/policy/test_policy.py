"""Verdicts of the policy: every check and layer, on real folders and links."""

import os
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.errors import UsageError
from odin.core.event_values import Mode
from odin.core.tool import Kind, Target
from odin.policy import paths
from odin.policy.decision import Decision
from odin.policy.modes import PERMISSION_MODES
from tests.policy.policies import make_policy
from tests.table import each

MODES: tuple[Mode, ...] = get_args(Mode)
BYPASSES: list[dict[str, Any]] = [{"yes": True}, {"permission_mode": "bypassPermissions"}]


@pytest.fixture
def root(workspace: Path) -> Path:
    (workspace / "src").mkdir()
    (workspace / "src" / "app.py").write_text("x\n")
    (workspace / "README.md").write_text("x\n")
    outside = workspace.parent / "project-evil"
    outside.mkdir()
    (outside / "secret").write_text("x\n")
    (workspace / "link").symlink_to(outside)
    return workspace


class Evaluator:
    """A policy with helpers for the three kinds of calls in these tests."""

    def __init__(self, root: Path, mode: Mode = "edit_mode", cwd: Path | None = None, **settings: Any) -> None:
        self.root = root
        self.mode: Mode = mode
        self.policy = make_policy(root=str(root), cwd=str(cwd or root), **settings)

    def decide(self, name: str, kind: Kind, target: Target) -> Decision:
        return self.policy.evaluate(name, kind, target, self.mode)

    def read(self, *names: str) -> str:
        return self.decide("Read", "read", Target(paths=tuple(str(self.root / name) for name in names))).action

    def edit(self, *names: str, tool: str = "EditTool") -> str:
        return self.decide(tool, "edit", Target(paths=tuple(str(self.root / name) for name in names))).action

    def run(self, command: str) -> str:
        return self.decide("ExecuteCommand", "execute", Target(command=command)).action


# --- default permission mode and paths outside ---


def test_by_default_reads_are_allowed_and_changes_need_approval(root: Path):
    evaluator = Evaluator(root)
    assert evaluator.read("README.md") == "allow"
    assert evaluator.read("no/such/file") == "allow"
    assert evaluator.run("ls -la") == "allow"
    assert evaluator.edit("README.md") == "ask"
    assert evaluator.run("make") == "ask"
    assert evaluator.decide("WebFetch", "network", Target(url="https://example.org")).action == "ask"
    assert evaluator.decide("TodoWrite", "interactive", Target()).action == "allow"
    assert evaluator.decide("LS", "read", Target()).action == "allow"


@pytest.mark.parametrize(
    "path",
    [
        "../project-evil/secret",
        "src/../../project-evil/secret",
        "link/secret",
        "link",
        "link/../project-evil/secret",
        "/etc/passwd",
        "/",
        "..",
    ],
)
def test_path_outside_the_project_needs_approval_in_any_spelling(root: Path, path: str):
    evaluator = Evaluator(root)
    assert evaluator.read(path) == "ask"
    assert evaluator.read("README.md", path) == "ask"
    assert evaluator.edit(path) in ("ask", "deny")
    assert Evaluator(root, permission_mode="acceptEdits").edit(path) in ("ask", "deny")


def test_verdict_on_a_path_outside_names_the_path_and_the_flag_to_allow_it(root: Path):
    path = str(root.parent / "project-evil" / "secret")
    decision = Evaluator(root).decide("Read", "read", Target(paths=(path,)))
    assert path in decision.reason
    assert str(root) in decision.reason
    assert f"--allowedTools 'Read({path})'" in decision.hint
    assert "--yes" in decision.hint
    assert Evaluator(root, allowed_tools=[f"Read({path})"]).read(path) == "allow"


def test_a_link_that_stays_inside_is_inside(root: Path):
    (root / "inner").symlink_to(root / "src")
    assert Evaluator(root).read("inner/app.py") == "allow"


def test_root_that_is_a_link_is_resolved(root: Path, tmp_path: Path):
    door = tmp_path / "door"
    door.symlink_to(root)
    policy = make_policy(root=str(door))
    for base in (door, root):
        assert policy.evaluate("Read", "read", Target(paths=(f"{base}/README.md",)), "edit_mode").action == "allow"


@pytest.mark.parametrize("restricted", [True, False])
def test_saved_outputs_of_the_session_are_readable_but_no_other_state(root: Path, tmp_path: Path, restricted: bool):
    """Neither the session log, which contains text hidden from the model, nor files of another session, by any path."""
    mine, other = tmp_path / "state" / "s1", tmp_path / "state" / "s2"
    for session in (mine, other):
        (session / "outputs").mkdir(parents=True)
        for name in ("main.jsonl", "history-1.md", "outputs/result-1.txt"):
            (session / name).write_text("x\n")
    (mine / "outputs" / "way").symlink_to(other)
    (mine / "outputs" / "log.txt").symlink_to(mine / "main.jsonl")
    evaluator = Evaluator(root, restrict_to_workspace=restricted, readable=[str(mine)])
    refused = "deny" if restricted else "ask"
    assert [evaluator.read(f"{mine}/{name}") for name in ("history-1.md", "outputs/result-1.txt", "outputs")] == [
        "allow"
    ] * 3
    closed = ["", "main.jsonl", "outputs/log.txt", "outputs/way/history-1.md", "../s2/history-1.md", "outputs/../.."]
    assert [evaluator.read(f"{mine}/{name}") for name in closed] == [refused] * len(closed)
    assert evaluator.edit(f"{mine}/history-1.md") == refused


@pytest.mark.parametrize("settings", [{}, *BYPASSES, {"allowed_tools": ["Read(/**)", "Bash(*)"]}])
def test_restrict_to_workspace_denies_paths_outside(root: Path, settings: dict[str, Any]):
    evaluator = Evaluator(root, restrict_to_workspace=True, **settings)
    assert evaluator.read("README.md") == "allow"
    assert evaluator.read("link/secret") == "deny"
    assert evaluator.edit("../x") == "deny"
    assert evaluator.run("cat ../project-evil/secret") == "deny"
    assert evaluator.run("make -C /etc") == "deny"
    assert evaluator.run("make --directory=/etc") == "deny"
    assert evaluator.run("make > /tmp/x") == "deny"
    assert evaluator.run("X=/etc; cat $X/hostname") == "deny"
    assert evaluator.run("X=..; ls $X") == "deny"
    assert evaluator.run('cat "$PWD/../x"') == "deny"
    assert evaluator.run("cat $OLDPWD/x") == "deny"
    assert evaluator.run("make 2>&1") != "deny"
    assert evaluator.run("X=src; cat $X/main.py") != "deny"
    assert evaluator.run("cd src && cat ../README.md") == "allow"


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "proj", "proj-evil", "projx", ""]), max_size=6)


@given(NAMES, NAMES)
def test_is_inside_compares_path_components(inner: list[str], outer: list[str]):
    root = "/nowhere/proj"
    path = "/".join([root, *inner]) if len(outer) % 2 else "/".join(["/nowhere", *outer])
    expected = Path(os.path.normpath(path)).is_relative_to(root)
    assert paths.is_inside(path, root) is expected


@given(st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=8))
def test_sibling_folder_with_the_same_prefix_is_outside(tail: str):
    tail = tail.replace("/", "_")
    assert not paths.is_inside(f"/nowhere/proj{tail}/x", "/nowhere/proj")
    assert paths.is_inside(f"/nowhere/proj/{tail}/x", "/nowhere/proj") is (tail != "..")


# --- modes ---


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
@pytest.mark.parametrize("settings", [{}, *BYPASSES, {"allowed_tools": ["Edit", "Write"]}])
def test_ask_and_plan_mode_deny_edits(root: Path, mode: Mode, settings: dict[str, Any]):
    decision = Evaluator(root, mode, **settings).decide("EditTool", "edit", Target(paths=(str(root / "README.md"),)))
    assert decision.action == "deny"
    assert mode in decision.reason
    assert "--mode edit" in decision.hint


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
def test_ask_and_plan_mode_allow_only_read_only_commands(root: Path, mode: Mode):
    evaluator = Evaluator(root, mode, allowed_tools=["Bash"], allowed_commands=["make"])
    assert evaluator.run("ls -la") == "allow"
    assert evaluator.run("make") == "ask"
    assert evaluator.run("echo hi > x") == "deny"
    assert evaluator.run("bash -c 'echo hi > x'") == "deny"
    assert Evaluator(root, mode, yes=True).run("make") == "allow"
    assert Evaluator(root, mode, yes=True).run("echo hi >> x") == "deny"
    assert evaluator.read("README.md") == "allow"


def test_accept_edits_allows_only_edits_inside_the_project(root: Path):
    evaluator = Evaluator(root, permission_mode="acceptEdits")
    assert evaluator.edit("README.md") == "allow"
    assert evaluator.edit("new/file.py", tool="WriteFile") == "allow"
    assert evaluator.edit("README.md", "../x") == "ask"
    assert evaluator.run("make") == "ask"
    assert evaluator.decide("Strange", "edit", Target()).action == "ask"


def test_dont_ask_denies_calls_that_would_need_approval(root: Path):
    evaluator = Evaluator(root, permission_mode="dontAsk", allowed_tools=["Bash(make:*)"])
    assert evaluator.read("README.md") == "allow"
    assert evaluator.edit("README.md") == "deny"
    assert evaluator.read("/etc/passwd") == "deny"
    assert evaluator.run("make test") == "allow"
    decision = evaluator.decide("ExecuteCommand", "execute", Target(command="cargo build"))
    assert decision.action == "deny"
    assert "dontAsk" in decision.reason
    assert "--allowedTools" in decision.hint


@pytest.mark.parametrize("settings", BYPASSES)
def test_bypass_allows_all_calls_except_denied_ones(root: Path, settings: dict[str, Any]):
    evaluator = Evaluator(
        root, **settings, forbidden_commands=["git push"], disallowed_tools=["WebFetch", "Read(*.pem)"]
    )
    assert evaluator.edit("README.md") == "allow"
    assert evaluator.edit("../x") == "allow"
    assert evaluator.edit(".git/config") == "allow"
    assert evaluator.run("make") == "allow"
    assert evaluator.run("git push -f") == "deny"
    assert evaluator.run("rm -rf /") == "deny"
    assert evaluator.read("key.pem") == "deny"
    assert evaluator.decide("WebFetch", "network", Target(url="https://x")).action == "deny"


@each("permission_mode", PERMISSION_MODES)
@each("mode", MODES)
@each("yes", [False, True])
def test_destructive_commands_are_denied_in_every_mode(root: Path, permission_mode: str, mode: Mode, yes: bool):
    everything: dict[str, Any] = {"allowed_tools": ["Bash(*)", "Bash(rm -rf ~)"], "allowed_commands": ["rm"]}
    evaluator = Evaluator(root, mode, permission_mode=permission_mode, yes=yes, **everything)
    for command in ("rm -rf ~", "ls && sudo rm -rf /", f"rm -rf {root}", "rm -rf *", "mkfs.ext4 /dev/sda1"):
        assert evaluator.run(command) == "deny"


def test_with_permission_mode_returns_another_policy_with_the_same_rules(root: Path):
    first = make_policy(root=str(root), forbidden_commands=["make"])
    second = first.with_permission_mode("bypassPermissions")
    target = Target(paths=(str(root / "x"),))
    assert first.evaluate("EditTool", "edit", target, "edit_mode").action == "ask"
    assert second.evaluate("EditTool", "edit", target, "edit_mode").action == "allow"
    assert second.evaluate("ExecuteCommand", "execute", Target(command="make"), "edit_mode").action == "deny"
    with pytest.raises(UsageError):
        first.with_permission_mode("nonsense")


# --- protected paths ---


@each(
    "path",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        "src/.git/x",
        ".GIT/config",
        ".git./config",
        ".git /config",
        "GIT~1/config",
        ".g\u200cit/config",
        ".odin/x",
        "odinconfig.json",
        "sub/OdinConfig.json",
        ".claude/settings.json",
        ".Cursor/MCP.json",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        ".envrc",
        ".bashrc",
        "home/.zshrc",
        ".npmrc",
        ".yarnrc.yml",
        ".pnp.cjs",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".mcp.json",
        ".cargo/config.toml",
        ".config/git/config",
        "src/../.git/config",
        ".venv/bin/python",
        "node_modules/.bin/tsc",
        "AGENTS.md",
        "src/CLAUDE.md",
        "ODIN.md",
    ],
)
def test_protected_paths_need_approval_even_in_accept_edits(root: Path, path: str):
    evaluator = Evaluator(root, permission_mode="acceptEdits", allowed_tools=["Edit", "Write", "Edit(**)"])
    decision = evaluator.decide("WriteFile", "edit", Target(paths=(str(root / path),)))
    assert decision.action == "ask"
    assert "protected" in decision.reason
    assert "--yes" in decision.hint


@pytest.mark.parametrize(
    "path", [".gitignore", ".github/x", "src/git/config", "odin/config.json", "bashrc", "digit~1x"]
)
def test_ordinary_names_are_not_protected(root: Path, path: str):
    assert Evaluator(root, permission_mode="acceptEdits").edit(path) == "allow"


def test_a_link_to_a_protected_folder_is_protected(root: Path):
    (root / ".git").mkdir()
    (root / "innocent").symlink_to(root / ".git")
    assert Evaluator(root, permission_mode="acceptEdits").edit("innocent/config") == "ask"


def test_a_project_below_a_protected_name_is_not_protected_as_a_whole(tmp_path: Path):
    project = tmp_path.resolve() / ".cargo" / "project"
    project.mkdir(parents=True)
    assert Evaluator(project, permission_mode="acceptEdits").edit("src/x.rs") == "allow"


@pytest.mark.parametrize("path", [".env", "deploy/.env.production", "id_rsa", "certs/server.key"])
def test_secret_files_need_approval_unless_a_rule_names_them(root: Path, path: str):
    decision = Evaluator(root).decide("Read", "read", Target(paths=(str(root / path),)))
    assert decision.action == "ask"
    assert "secrets" in decision.reason
    assert decision.rule == "secret files"
    assert Evaluator(root, allowed_tools=["Read", "Read(**)"]).read(path) == "ask"
    assert Evaluator(root, allowed_tools=[f"Read({path})"]).read(path) == "allow"
    assert Evaluator(root, yes=True).read(path) == "allow"


def test_editing_a_hard_linked_file_needs_approval(root: Path):
    os.link(root.parent / "project-evil" / "secret", root / "hard.txt")
    evaluator = Evaluator(root, permission_mode="acceptEdits")
    assert evaluator.edit("hard.txt") == "ask"
    assert evaluator.read("hard.txt") == "allow"


def test_built_in_denials_cannot_be_overridden(root: Path):
    os.mkfifo(root / "pipe")
    evaluator = Evaluator(root, yes=True, allowed_tools=["Read", "Read(pipe)", "Edit(./pipe)"])
    for decision in (
        evaluator.decide("Read", "read", Target(paths=(str(root / "pipe"),))),
        evaluator.decide("EditTool", "edit", Target(paths=(f"{root}/a\0b",))),
        evaluator.decide("Read", "read", Target(paths=(f"{root}/a\0b",))),
        evaluator.decide("EditTool", "edit", Target(paths=(str(root),))),
        evaluator.decide("ExecuteCommand", "execute", Target(command="shutdown now")),
    ):
        assert (decision.action, decision.builtin) == ("deny", True)
        assert decision.rule
    denied = Evaluator(root, disallowed_tools=["Bash"]).decide("ExecuteCommand", "execute", Target(command="ls"))
    assert (denied.action, denied.builtin) == ("deny", False)


def test_pipes_and_the_project_folder_are_denied(root: Path):
    os.mkfifo(root / "pipe")
    evaluator = Evaluator(root, yes=True)
    assert evaluator.read("pipe") == "deny"
    assert evaluator.edit("pipe") == "deny"
    assert evaluator.edit("") == "deny"
    assert evaluator.edit("..") == "deny"


# --- allowed and forbidden commands ---


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("make", "allow"),
        ("make test", "allow"),
        ("git commit -m 'a; b'", "allow"),
        ("git commit", "allow"),
        ("make && git commit -m x", "allow"),
        ("ls | head -1 && make", "allow"),
        ("cd src && make", "allow"),
        ("make 2>&1", "allow"),
        ("makes", "ask"),
        ("git commitx", "ask"),
        ("git -C x commit", "ask"),
        ("git", "ask"),
        ("./make", "ask"),
        ("/usr/bin/make", "ask"),
        ("make; rm x", "ask"),
        ("make && touch x", "ask"),
        ("make & touch x", "ask"),
        ("make $(touch x)", "ask"),
        ("make `touch x`", "ask"),
        ("make $TARGET", "ask"),
        ("make > log", "ask"),
        ("make *", "ask"),
        ("sudo make", "ask"),
        ("X=1 make", "ask"),
        ("make\ntouch x", "ask"),
        ("make -C /etc", "ask"),
        ("make -C../other", "ask"),
        ("make ../other", "ask"),
        ("make ~/x", "ask"),
        ("make link/secret", "ask"),
        ("make .git/hooks/x", "ask"),
        ("cd src; make", "allow"),
        ("cd link; make", "ask"),
        ("cd .. && make", "ask"),
        ("make 'x", "ask"),
    ],
)
def test_allowed_commands_match_the_first_words_of_a_command(root: Path, command: str, action: str):
    assert Evaluator(root, allowed_commands=["make", "git commit"]).run(command) == action


@each(
    "command",
    [
        "git push",
        "git push --force origin main",
        "git -C sub push",
        "git --no-pager -c a=b push",
        "/usr/bin/git push",
        "ls; git push",
        "ls && git push",
        "false || git push",
        "ls | git push",
        "ls & git push",
        "ls\ngit push",
        "echo $(git push)",
        "echo `git push`",
        "cat <(git push)",
        "bash -c 'git push'",
        "bash -lc 'ls && git push'",
        "eval git push",
        "sudo git push",
        "sudo -u me git push",
        "env X=1 git push",
        "X=1 git push",
        "echo x | xargs -n1 git push",
        "timeout 5 nice git push",
        "find . -exec git push \\;",
        "if true; then git push; fi",
        "for x in a; do git push; done",
        "(git push)",
        "{ git push; }",
        "g''it pu\\sh",
        "time git push",
        "true;" * 60 + "git push",
        "git push 'unclosed",
        "bash x.sh; git push",
        "dangerous --force --now",
        "dangerous --now --force",
        "cleaner -rf x",
        "cleaner -f -r x",
        "cleaner -xfr x",
        "nothing; cleaner x -fr",
    ],
)
@each("settings", [{}, {"yes": True}, {"allowed_tools": ["Bash(*)"], "allowed_commands": ["git"]}])
def test_forbidden_commands_are_found_in_any_nesting(root: Path, command: str, settings: dict[str, Any]):
    forbidden = ["git push", "dangerous --force", "cleaner -rf"]
    assert Evaluator(root, forbidden_commands=forbidden, **settings).run(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m 'git push'",
        "git log push",
        "echo git push",
        "dangerous",
        "cleaner -r x",
        "git status",
    ],
)
def test_similar_commands_are_not_forbidden(root: Path, command: str):
    assert (
        Evaluator(root, yes=True, forbidden_commands=["git push", "dangerous --force", "cleaner -rf"]).run(command)
        == "allow"
    )


@pytest.mark.parametrize("command", ["$x push", "bash script.sh", "curl x | sh", 'eval "$x"', "ls 'unclosed"])
def test_bypass_denies_a_command_that_may_contain_a_forbidden_one(root: Path, command: str):
    assert Evaluator(root, yes=True, forbidden_commands=["git push"]).run(command) == "deny"
    assert Evaluator(root, forbidden_commands=["git push"]).run(command) == "ask"
    assert Evaluator(root, permission_mode="dontAsk", forbidden_commands=["git push"]).run(command) == "deny"
    assert Evaluator(root, yes=True).run(command) == "allow"


def test_denial_wins_over_an_incomplete_analysis(root: Path):
    evaluator = Evaluator(root, "ask_mode", forbidden_commands=["git push"], restrict_to_workspace=True)
    assert evaluator.run("$x > out") == "deny"
    assert evaluator.run("$x /etc/passwd") == "deny"


def test_bypass_denies_a_command_that_may_match_a_deny_rule(root: Path):
    assert Evaluator(root, yes=True, disallowed_tools=["Bash(git push:*)"]).run("$x push") == "deny"
    assert Evaluator(root, yes=True, disallowed_tools=["Read(.env)"]).run("$x push") == "deny"
    assert Evaluator(root, yes=True, disallowed_tools=["WebFetch(domain:x.example)"]).run("$x push") == "allow"


def test_forbidden_wins_over_allowed(root: Path):
    evaluator = Evaluator(root, allowed_commands=["git"], forbidden_commands=["git push"])
    assert evaluator.run("git fetch") == "allow"
    assert evaluator.run("git push") == "deny"
    assert evaluator.run("git fetch && git push") == "deny"


# --- rules for tools ---


@pytest.mark.parametrize("name", ["Bash", "ExecuteCommand", "bash", "run_shell_command", "exec"])
def test_rules_accept_every_name_of_a_tool(root: Path, name: str):
    assert Evaluator(root, allowed_tools=[name]).run("make") == "allow"
    assert Evaluator(root, disallowed_tools=[name]).run("ls") == "deny"


@pytest.mark.parametrize(
    ("rule", "command", "action"),
    [
        ("Bash(npm test)", "npm test", "allow"),
        ("Bash(npm test)", "npm test --watch", "ask"),
        ("Bash(npm test)", " npm  test ", "allow"),
        ("Bash(npm test:*)", "npm test --watch", "allow"),
        ("Bash(npm test:*)", "npm test", "allow"),
        ("Bash(npm test:*)", "npm testing", "ask"),
        ("Bash(npm test *)", "npm test x", "allow"),
        ("Bash(npm test *)", "npm test", "allow"),
        ("Bash(npm run:*)", "npm run x; npm run y", "allow"),
        ("Bash(npm run:*)", "npm run x; npm install", "ask"),
        ("Bash(npm run:*)", "npm run x > out", "ask"),
        ("Bash(npm run x > out)", "npm run x > out", "allow"),
        ("Bash(a | b)", "a | b", "allow"),
        ("Bash(cat /etc/hosts)", "cat /etc/hosts", "allow"),
        ("Bash(cat /etc:*)", "cat /etc /etc/hosts", "ask"),
        ("Bash(*)", "make > x", "allow"),
        ("Bash(*)", "cat /etc/hosts", "ask"),
        ("Bash(*)", "$y", "ask"),
        ("Bash", "X=/etc/hosts; make $X", "ask"),
        ("Bash", "cat /etc/hosts", "ask"),
        ("Bash", "make > x", "allow"),
        ("Bash", "touch .git/hooks/pre-commit", "ask"),
        ("Bash", "make --file=.git/config", "ask"),
        ("Bash", "make X=.git/config", "ask"),
        ("Bash", "make .env", "ask"),
        ("Bash(make:*)", "make --file=.git/config", "ask"),
        ("Bash(make:*)", "make .env", "ask"),
        ("Bash(cat:*)", "cat .env", "ask"),
        ("Bash(cat .env)", "cat .env", "allow"),
        ("Bash(make *)", "make *", "ask"),
        ("Bash(make:*)", "make:*", "ask"),
        ("Bash(make\u202e:*)", "make\u202e x", "ask"),
        ("Bash", "echo x > odinconfig.json", "ask"),
        ("Bash", "cat .git/config", "allow"),
        ("Bash", ".venv/bin/pytest -q", "allow"),
        ("Bash", "make > node_modules/.bin/x", "ask"),
        ("Bash(timeout 60 .venv/bin/pytest:*)", "timeout 60 .venv/bin/pytest -q", "allow"),
        ("Bash", "cd src && make ../README.md", "allow"),
        ("Bash", "cd src && make ../../x", "ask"),
        ("Bash", "bash -c 'make /etc/x'", "ask"),
        ("Bash", "bash -c 'make x'", "allow"),
        ("Bash", "$x", "ask"),
        ("Bash", "make $X", "ask"),
        ("Bash", "make $(nproc)", "ask"),
        ("Bash", "make > $X", "ask"),
        ("Bash", "X=a; make $X ${X}b", "allow"),
        ("Bash", "for x in a b; do make $x; done", "allow"),
        ("Bash", "for x in a ../b; do make $x; done", "ask"),
        ("Bash", "for x in *; do make $x; done", "ask"),
        ("Read", "make", "ask"),
        ("*", "make", "allow"),
    ],
)
def test_allow_rules_for_commands(root: Path, rule: str, command: str, action: str):
    assert Evaluator(root, allowed_tools=[rule]).run(command) == action


@each(
    ("rule", "path", "action"),
    [
        ("Edit", "src/app.py", "allow"),
        ("Edit(src/**)", "src/app.py", "allow"),
        ("Edit(src/**)", "src/deep/er/app.py", "allow"),
        ("Edit(src/*)", "src/deep/app.py", "ask"),
        ("Edit(./src/**)", "src/app.py", "allow"),
        ("Edit(src/**)", "README.md", "ask"),
        ("Edit(src/**)", "src/../README.md", "ask"),
        ("Edit(src/**)", "srcx/app.py", "ask"),
        ("Edit(*.py)", "src/app.py", "allow"),
        ("Edit(*.py)", "src/app.pyc", "ask"),
        ("Edit(app.?y)", "src/app.py", "allow"),
        ("Edit(**/app.py)", "src/app.py", "allow"),
        ("Edit(**)", "src/app.py", "allow"),
        ("Edit(src/**)", "link/secret", "ask"),
        ("Edit(**)", "link/secret", "ask"),
        ("Edit", "link/secret", "ask"),
        ("Edit(/**)", "link/secret", "ask"),
        ("Edit(~/**)", "link/secret", "ask"),
        ("Edit(/tmp/**)", "/tmp/there", "allow"),
        ("Edit(//tmp/**)", "/tmp/there", "allow"),
        ("Edit(//tmp/there)", "/tmp/there", "allow"),
        ("Edit(//tmp/there)", "/tmp/there/more", "ask"),
        ("Edit(src/)", "src/deep/app.py", "allow"),
        ("Edit(./app.py)", "src/app.py", "ask"),
        ("Edit(./README.md)", "README.md", "allow"),
        ("Edit(.vscode/**)", ".vscode/tasks.json", "ask"),
        ("Edit(.vscode/tasks.json)", ".vscode/tasks.json", "allow"),
        ("Edit(.vscode/tasks.json)", ".vscode/launch.json", "ask"),
        ("Edit(a.b)", "axb", "ask"),
        ("Write", "src/app.py", "ask"),
    ],
)
def test_allow_rules_for_paths(root: Path, rule: str, path: str, action: str):
    assert Evaluator(root, allowed_tools=[rule]).edit(path) == action


def test_edit_pattern_applies_to_every_tool_that_changes_files(root: Path):
    evaluator = Evaluator(root, allowed_tools=["Edit(src/**)"])
    assert evaluator.edit("src/app.py", tool="WriteFile") == "allow"
    assert Evaluator(root, allowed_tools=["Edit(**)"]).edit("src/app.py", tool="WriteFile") == "allow"
    assert Evaluator(root, disallowed_tools=["Edit(**)"], yes=True).edit("../x", tool="WriteFile") == "deny"
    assert Evaluator(root, disallowed_tools=["Edit(**)"], yes=True).run("make x") == "allow"
    assert Evaluator(root, allowed_tools=["Edit"]).edit("src/app.py", tool="WriteFile") == "ask"


def test_a_rule_must_cover_every_path_of_a_call(root: Path):
    evaluator = Evaluator(root, allowed_tools=["Edit(src/**)"])
    assert evaluator.edit("src/a", "src/b") == "allow"
    assert evaluator.edit("src/a", "README.md") == "ask"


def test_bare_bash_rule_does_not_allow_removal_of_an_unknown_target(root: Path):
    evaluator = Evaluator(root, allowed_tools=["Bash"])
    assert evaluator.run("rm -r build") == "allow"
    assert evaluator.run('rm -r "$BUILD"') == "ask"
    decision = evaluator.decide("ExecuteCommand", "execute", Target(command='rm -r "$BUILD"/'))
    assert decision.action == "ask"
    assert "it removes the root" in decision.reason


def test_glob_in_a_command_is_expanded(root: Path):
    evaluator = Evaluator(root, allowed_tools=["Bash"])
    assert evaluator.run("make .gi*/config") == "allow"
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("")
    assert evaluator.run("make .gi*/config") == "ask"


def test_deny_beats_allow(root: Path):
    evaluator = Evaluator(root, allowed_tools=["Edit", "Bash"], disallowed_tools=["Edit(src/**)", "Bash(git push:*)"])
    assert evaluator.edit("README.md") == "allow"
    assert evaluator.edit("src/app.py") == "deny"
    assert evaluator.edit("README.md", "src/app.py") == "deny"
    assert evaluator.run("git fetch") == "allow"
    assert evaluator.run("ls && git push") == "deny"


@pytest.mark.parametrize(
    ("rule", "path", "action"),
    [
        ("Read(.env)", ".env", "deny"),
        ("Read(.env)", "src/.env", "deny"),
        ("Read(.env)", "src/../.env", "deny"),
        ("Read(.env)", ".envx", "allow"),
        ("Read(*.pem)", "keys/a.pem", "deny"),
        ("Read(link/**)", "link/secret", "deny"),
        ("Read(secrets/**)", "alias/key", "deny"),
        ("Read(secrets/**)", "secrets", "deny"),
        ("Read", "README.md", "deny"),
        ("Grep", "README.md", "allow"),
    ],
)
def test_deny_rules_match_the_written_and_the_resolved_path(root: Path, rule: str, path: str, action: str):
    (root / "secrets").mkdir()
    (root / "alias").symlink_to(root / "secrets")
    assert Evaluator(root, disallowed_tools=[rule]).read(path) == action


def test_denied_read_applies_to_other_tools_and_to_commands(root: Path):
    evaluator = Evaluator(root, disallowed_tools=["Read(.env)"], yes=True)
    assert evaluator.decide("Grep", "read", Target(paths=(str(root / ".env"),))).action == "deny"
    assert evaluator.run("cat .env") == "deny"
    assert evaluator.run("bash -c 'cat ./.env'") == "deny"
    assert evaluator.run("cat README.md") == "allow"
    assert evaluator.edit(".env") == "allow"


def test_url_rules_compare_host_labels(root: Path):
    evaluator = Evaluator(root, allowed_tools=["WebFetch(domain:python.org)"])

    def fetch(url: str) -> str:
        return evaluator.decide("WebFetch", "network", Target(url=url)).action

    assert fetch("https://python.org/x") == "allow"
    assert fetch("https://docs.python.org/") == "allow"
    for url in ("https://evilpython.org", "https://python.org.evil.example", "https://evil.example/python.org"):
        assert fetch(url) == "ask"
    assert fetch("https://python.org@evil.example/") == "ask"
    assert fetch("https://evil.example\0.python.org/") == "ask"


@pytest.mark.parametrize("rule", ["Bash(", "Bash(x))y", "a b", "(x)", "Bash)"])
def test_malformed_rule_raises_a_usage_error(root: Path, rule: str):
    with pytest.raises(UsageError, match=r"is not a rule"):
        make_policy(root=str(root), allowed_tools=[rule])


# --- reasons and hints ---


@pytest.mark.parametrize(
    ("name", "kind", "target", "hint"),
    [
        ("EditTool", "edit", Target(paths=("README.md",)), "--permission-mode acceptEdits"),
        ("ExecuteCommand", "execute", Target(command="make all"), "--allowedTools 'Bash(make all)'"),
        ("ExecuteCommand", "execute", Target(command="make 'a'"), "--yes"),
        ("WebFetch", "network", Target(url="https://a.example/x"), "--allowedTools 'WebFetch(domain:a.example)'"),
    ],
)
def test_permission_request_has_a_reason_and_a_hint(root: Path, name: str, kind: Kind, target: Target, hint: str):
    decision = Evaluator(root).decide(name, kind, target)
    assert decision.action == "ask"
    assert decision.reason.endswith(".")
    assert hint in decision.hint
    assert "--yes" in decision.hint


@given(st.text(max_size=40), st.sampled_from(MODES), st.sampled_from(PERMISSION_MODES))
def test_every_command_gets_a_verdict_and_a_reason(command: str, mode: Mode, permission_mode: str):
    policy = make_policy(
        root="/nowhere/project", permission_mode=permission_mode, forbidden_commands=["x"], allowed_tools=["Bash(y:*)"]
    )
    decision = policy.evaluate("ExecuteCommand", "execute", Target(command=command), mode)
    assert decision.action == "allow" or decision.reason


@pytest.mark.parametrize("bypass", [False, True])
def test_search_of_a_folder_with_a_denied_file_needs_approval(workspace: Path, bypass: bool) -> None:
    (workspace / "secret.txt").write_text("x")
    (workspace / "open.txt").write_text("x")
    policy = make_policy(root=str(workspace), disallowed_tools=["Read(secret.txt)"], yes=bypass)

    def find_action(command: str) -> str:
        return policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode").action

    assert find_action("grep x open.txt") == "allow"
    assert find_action("grep x secret.txt") == "deny"
    for command in ("grep -rn x .", "grep --recursive x .", "rg x", "git grep x", "ls && rg x | head"):
        assert find_action(command) == ("deny" if bypass else "ask"), command
