"""Verdicts of the policy: every check and layer, on real folders and links."""

import os
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.errors import UsageError
from odin.core.event_values import Mode
from odin.core.tool import Kind, Subject
from odin.policy import paths
from odin.policy.modes import PERMISSION_MODES
from odin.policy.verdict import Verdict
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


class Judge:
    """A policy with helpers for the three kinds of calls in these tests."""

    def __init__(self, root: Path, mode: Mode = "edit_mode", cwd: Path | None = None, **settings: Any) -> None:
        self.root = root
        self.mode: Mode = mode
        self.policy = make_policy(root=str(root), cwd=str(cwd or root), **settings)

    def verdict_of(self, name: str, kind: Kind, subject: Subject) -> Verdict:
        return self.policy.judge(name, kind, subject, self.mode)

    def read(self, *names: str) -> str:
        return self.verdict_of("Read", "read", Subject(paths=tuple(str(self.root / name) for name in names))).action

    def edit(self, *names: str, tool: str = "EditTool") -> str:
        return self.verdict_of(tool, "edit", Subject(paths=tuple(str(self.root / name) for name in names))).action

    def run(self, command: str) -> str:
        return self.verdict_of("ExecuteCommand", "execute", Subject(command=command)).action


# --- default permission mode and paths outside ---


def test_by_default_reads_are_allowed_and_changes_need_approval(root: Path):
    judge = Judge(root)
    assert judge.read("README.md") == "allow"
    assert judge.read("no/such/file") == "allow"
    assert judge.run("ls -la") == "allow"
    assert judge.edit("README.md") == "ask"
    assert judge.run("make") == "ask"
    assert judge.verdict_of("WebFetch", "network", Subject(url="https://example.org")).action == "ask"
    assert judge.verdict_of("TodoWrite", "talk", Subject()).action == "allow"
    assert judge.verdict_of("LS", "read", Subject()).action == "allow"


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
    judge = Judge(root)
    assert judge.read(path) == "ask"
    assert judge.read("README.md", path) == "ask"
    assert judge.edit(path) in ("ask", "deny")
    assert Judge(root, permission_mode="acceptEdits").edit(path) in ("ask", "deny")


def test_verdict_on_a_path_outside_names_the_path_and_the_flag_to_allow_it(root: Path):
    path = str(root.parent / "project-evil" / "secret")
    verdict = Judge(root).verdict_of("Read", "read", Subject(paths=(path,)))
    assert path in verdict.reason
    assert str(root) in verdict.reason
    assert f"--allowedTools 'Read({path})'" in verdict.hint
    assert "--yes" in verdict.hint
    assert Judge(root, allowed_tools=[f"Read({path})"]).read(path) == "allow"


def test_a_link_that_stays_inside_is_inside(root: Path):
    (root / "inner").symlink_to(root / "src")
    assert Judge(root).read("inner/app.py") == "allow"


def test_root_that_is_a_link_is_resolved(root: Path, tmp_path: Path):
    door = tmp_path / "door"
    door.symlink_to(root)
    policy = make_policy(root=str(door))
    for base in (door, root):
        assert policy.judge("Read", "read", Subject(paths=(f"{base}/README.md",)), "edit_mode").action == "allow"


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
    judge = Judge(root, restrict_to_workspace=restricted, readable=[str(mine)])
    refused = "deny" if restricted else "ask"
    assert [judge.read(f"{mine}/{name}") for name in ("history-1.md", "outputs/result-1.txt", "outputs")] == [
        "allow"
    ] * 3
    closed = ["", "main.jsonl", "outputs/log.txt", "outputs/way/history-1.md", "../s2/history-1.md", "outputs/../.."]
    assert [judge.read(f"{mine}/{name}") for name in closed] == [refused] * len(closed)
    assert judge.edit(f"{mine}/history-1.md") == refused


@pytest.mark.parametrize("settings", [{}, *BYPASSES, {"allowed_tools": ["Read(/**)", "Bash(*)"]}])
def test_restrict_to_workspace_denies_paths_outside(root: Path, settings: dict[str, Any]):
    judge = Judge(root, restrict_to_workspace=True, **settings)
    assert judge.read("README.md") == "allow"
    assert judge.read("link/secret") == "deny"
    assert judge.edit("../x") == "deny"
    assert judge.run("cat ../project-evil/secret") == "deny"
    assert judge.run("make -C /etc") == "deny"
    assert judge.run("make --directory=/etc") == "deny"
    assert judge.run("make > /tmp/x") == "deny"
    assert judge.run("X=/etc; cat $X/hostname") == "deny"
    assert judge.run("X=..; ls $X") == "deny"
    assert judge.run('cat "$PWD/../x"') == "deny"
    assert judge.run("cat $OLDPWD/x") == "deny"
    assert judge.run("make 2>&1") != "deny"
    assert judge.run("X=src; cat $X/main.py") != "deny"
    assert judge.run("cd src && cat ../README.md") == "allow"


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
    verdict = Judge(root, mode, **settings).verdict_of("EditTool", "edit", Subject(paths=(str(root / "README.md"),)))
    assert verdict.action == "deny"
    assert mode in verdict.reason
    assert "--mode edit" in verdict.hint


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
def test_ask_and_plan_mode_allow_only_read_only_commands(root: Path, mode: Mode):
    judge = Judge(root, mode, allowed_tools=["Bash"], allowed_commands=["make"])
    assert judge.run("ls -la") == "allow"
    assert judge.run("make") == "ask"
    assert judge.run("echo hi > x") == "deny"
    assert judge.run("bash -c 'echo hi > x'") == "deny"
    assert Judge(root, mode, yes=True).run("make") == "allow"
    assert Judge(root, mode, yes=True).run("echo hi >> x") == "deny"
    assert judge.read("README.md") == "allow"


def test_accept_edits_allows_only_edits_inside_the_project(root: Path):
    judge = Judge(root, permission_mode="acceptEdits")
    assert judge.edit("README.md") == "allow"
    assert judge.edit("new/file.py", tool="WriteFile") == "allow"
    assert judge.edit("README.md", "../x") == "ask"
    assert judge.run("make") == "ask"
    assert judge.verdict_of("Strange", "edit", Subject()).action == "ask"


def test_dont_ask_denies_calls_that_would_need_approval(root: Path):
    judge = Judge(root, permission_mode="dontAsk", allowed_tools=["Bash(make:*)"])
    assert judge.read("README.md") == "allow"
    assert judge.edit("README.md") == "deny"
    assert judge.read("/etc/passwd") == "deny"
    assert judge.run("make test") == "allow"
    verdict = judge.verdict_of("ExecuteCommand", "execute", Subject(command="cargo build"))
    assert verdict.action == "deny"
    assert "dontAsk" in verdict.reason
    assert "--allowedTools" in verdict.hint


@pytest.mark.parametrize("settings", BYPASSES)
def test_bypass_allows_all_calls_except_denied_ones(root: Path, settings: dict[str, Any]):
    judge = Judge(root, **settings, forbidden_commands=["git push"], disallowed_tools=["WebFetch", "Read(*.pem)"])
    assert judge.edit("README.md") == "allow"
    assert judge.edit("../x") == "allow"
    assert judge.edit(".git/config") == "allow"
    assert judge.run("make") == "allow"
    assert judge.run("git push -f") == "deny"
    assert judge.run("rm -rf /") == "deny"
    assert judge.read("key.pem") == "deny"
    assert judge.verdict_of("WebFetch", "network", Subject(url="https://x")).action == "deny"


@each("permission_mode", PERMISSION_MODES)
@each("mode", MODES)
@each("yes", [False, True])
def test_destructive_commands_are_denied_in_every_mode(root: Path, permission_mode: str, mode: Mode, yes: bool):
    everything: dict[str, Any] = {"allowed_tools": ["Bash(*)", "Bash(rm -rf ~)"], "allowed_commands": ["rm"]}
    judge = Judge(root, mode, permission_mode=permission_mode, yes=yes, **everything)
    for command in ("rm -rf ~", "ls && sudo rm -rf /", f"rm -rf {root}", "rm -rf *", "mkfs.ext4 /dev/sda1"):
        assert judge.run(command) == "deny"


def test_with_permission_mode_returns_another_policy_with_the_same_rules(root: Path):
    first = make_policy(root=str(root), forbidden_commands=["make"])
    second = first.with_permission_mode("bypassPermissions")
    subject = Subject(paths=(str(root / "x"),))
    assert first.judge("EditTool", "edit", subject, "edit_mode").action == "ask"
    assert second.judge("EditTool", "edit", subject, "edit_mode").action == "allow"
    assert second.judge("ExecuteCommand", "execute", Subject(command="make"), "edit_mode").action == "deny"
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
    judge = Judge(root, permission_mode="acceptEdits", allowed_tools=["Edit", "Write", "Edit(**)"])
    verdict = judge.verdict_of("WriteFile", "edit", Subject(paths=(str(root / path),)))
    assert verdict.action == "ask"
    assert "protected" in verdict.reason
    assert "--yes" in verdict.hint


@pytest.mark.parametrize(
    "path", [".gitignore", ".github/x", "src/git/config", "odin/config.json", "bashrc", "digit~1x"]
)
def test_ordinary_names_are_not_protected(root: Path, path: str):
    assert Judge(root, permission_mode="acceptEdits").edit(path) == "allow"


def test_a_link_to_a_protected_folder_is_protected(root: Path):
    (root / ".git").mkdir()
    (root / "innocent").symlink_to(root / ".git")
    assert Judge(root, permission_mode="acceptEdits").edit("innocent/config") == "ask"


def test_a_project_below_a_protected_name_is_not_protected_as_a_whole(tmp_path: Path):
    project = tmp_path.resolve() / ".cargo" / "project"
    project.mkdir(parents=True)
    assert Judge(project, permission_mode="acceptEdits").edit("src/x.rs") == "allow"


@pytest.mark.parametrize("path", [".env", "deploy/.env.production", "id_rsa", "certs/server.key"])
def test_secret_files_need_approval_unless_a_rule_names_them(root: Path, path: str):
    verdict = Judge(root).verdict_of("Read", "read", Subject(paths=(str(root / path),)))
    assert verdict.action == "ask"
    assert "secrets" in verdict.reason
    assert verdict.rule == "secret files"
    assert Judge(root, allowed_tools=["Read", "Read(**)"]).read(path) == "ask"
    assert Judge(root, allowed_tools=[f"Read({path})"]).read(path) == "allow"
    assert Judge(root, yes=True).read(path) == "allow"


def test_editing_a_hard_linked_file_needs_approval(root: Path):
    os.link(root.parent / "project-evil" / "secret", root / "hard.txt")
    judge = Judge(root, permission_mode="acceptEdits")
    assert judge.edit("hard.txt") == "ask"
    assert judge.read("hard.txt") == "allow"


def test_built_in_denials_cannot_be_overridden(root: Path):
    os.mkfifo(root / "pipe")
    judge = Judge(root, yes=True, allowed_tools=["Read", "Read(pipe)", "Edit(./pipe)"])
    for verdict in (
        judge.verdict_of("Read", "read", Subject(paths=(str(root / "pipe"),))),
        judge.verdict_of("EditTool", "edit", Subject(paths=(f"{root}/a\0b",))),
        judge.verdict_of("Read", "read", Subject(paths=(f"{root}/a\0b",))),
        judge.verdict_of("EditTool", "edit", Subject(paths=(str(root),))),
        judge.verdict_of("ExecuteCommand", "execute", Subject(command="shutdown now")),
    ):
        assert (verdict.action, verdict.builtin) == ("deny", True)
        assert verdict.rule
    denied = Judge(root, disallowed_tools=["Bash"]).verdict_of("ExecuteCommand", "execute", Subject(command="ls"))
    assert (denied.action, denied.builtin) == ("deny", False)


def test_pipes_and_the_project_folder_are_denied(root: Path):
    os.mkfifo(root / "pipe")
    judge = Judge(root, yes=True)
    assert judge.read("pipe") == "deny"
    assert judge.edit("pipe") == "deny"
    assert judge.edit("") == "deny"
    assert judge.edit("..") == "deny"


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
    assert Judge(root, allowed_commands=["make", "git commit"]).run(command) == action


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
    assert Judge(root, forbidden_commands=forbidden, **settings).run(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "git pushx",
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
        Judge(root, yes=True, forbidden_commands=["git push", "dangerous --force", "cleaner -rf"]).run(command)
        == "allow"
    )


@pytest.mark.parametrize("command", ["$x push", "bash script.sh", "curl x | sh", 'eval "$x"', "ls 'unclosed"])
def test_bypass_denies_a_command_that_may_contain_a_forbidden_one(root: Path, command: str):
    assert Judge(root, yes=True, forbidden_commands=["git push"]).run(command) == "deny"
    assert Judge(root, forbidden_commands=["git push"]).run(command) == "ask"
    assert Judge(root, permission_mode="dontAsk", forbidden_commands=["git push"]).run(command) == "deny"
    assert Judge(root, yes=True).run(command) == "allow"


def test_denial_wins_over_an_incomplete_analysis(root: Path):
    judge = Judge(root, "ask_mode", forbidden_commands=["git push"], restrict_to_workspace=True)
    assert judge.run("$x > out") == "deny"
    assert judge.run("$x /etc/passwd") == "deny"


def test_bypass_denies_a_command_that_may_match_a_deny_rule(root: Path):
    assert Judge(root, yes=True, disallowed_tools=["Bash(git push:*)"]).run("$x push") == "deny"
    assert Judge(root, yes=True, disallowed_tools=["Read(.env)"]).run("$x push") == "deny"
    assert Judge(root, yes=True, disallowed_tools=["WebFetch(domain:x.example)"]).run("$x push") == "allow"


def test_forbidden_wins_over_allowed(root: Path):
    judge = Judge(root, allowed_commands=["git"], forbidden_commands=["git push"])
    assert judge.run("git fetch") == "allow"
    assert judge.run("git push") == "deny"
    assert judge.run("git fetch && git push") == "deny"


# --- rules for tools ---


@pytest.mark.parametrize("name", ["Bash", "ExecuteCommand", "bash", "run_shell_command", "exec"])
def test_rules_accept_every_name_of_a_tool(root: Path, name: str):
    assert Judge(root, allowed_tools=[name]).run("make") == "allow"
    assert Judge(root, disallowed_tools=[name]).run("ls") == "deny"


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
    assert Judge(root, allowed_tools=[rule]).run(command) == action


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
    assert Judge(root, allowed_tools=[rule]).edit(path) == action


def test_edit_pattern_applies_to_every_tool_that_changes_files(root: Path):
    judge = Judge(root, allowed_tools=["Edit(src/**)"])
    assert judge.edit("src/app.py", tool="WriteFile") == "allow"
    assert Judge(root, allowed_tools=["Edit(**)"]).edit("src/app.py", tool="WriteFile") == "allow"
    assert Judge(root, disallowed_tools=["Edit(**)"], yes=True).edit("../x", tool="WriteFile") == "deny"
    assert Judge(root, disallowed_tools=["Edit(**)"], yes=True).run("make x") == "allow"
    assert Judge(root, allowed_tools=["Edit"]).edit("src/app.py", tool="WriteFile") == "ask"


def test_a_rule_must_cover_every_path_of_a_call(root: Path):
    judge = Judge(root, allowed_tools=["Edit(src/**)"])
    assert judge.edit("src/a", "src/b") == "allow"
    assert judge.edit("src/a", "README.md") == "ask"


def test_bare_bash_rule_does_not_allow_removal_of_an_unknown_target(root: Path):
    judge = Judge(root, allowed_tools=["Bash"])
    assert judge.run("rm -r build") == "allow"
    assert judge.run('rm -r "$BUILD"') == "ask"
    verdict = judge.verdict_of("ExecuteCommand", "execute", Subject(command='rm -r "$BUILD"/'))
    assert verdict.action == "ask"
    assert "destructive" in verdict.reason


def test_glob_in_a_command_is_expanded(root: Path):
    judge = Judge(root, allowed_tools=["Bash"])
    assert judge.run("make .gi*/config") == "allow"
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("")
    assert judge.run("make .gi*/config") == "ask"


def test_deny_beats_allow(root: Path):
    judge = Judge(root, allowed_tools=["Edit", "Bash"], disallowed_tools=["Edit(src/**)", "Bash(git push:*)"])
    assert judge.edit("README.md") == "allow"
    assert judge.edit("src/app.py") == "deny"
    assert judge.edit("README.md", "src/app.py") == "deny"
    assert judge.run("git fetch") == "allow"
    assert judge.run("ls && git push") == "deny"


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
    assert Judge(root, disallowed_tools=[rule]).read(path) == action


def test_denied_read_applies_to_other_tools_and_to_commands(root: Path):
    judge = Judge(root, disallowed_tools=["Read(.env)"], yes=True)
    assert judge.verdict_of("Grep", "read", Subject(paths=(str(root / ".env"),))).action == "deny"
    assert judge.run("cat .env") == "deny"
    assert judge.run("bash -c 'cat ./.env'") == "deny"
    assert judge.run("cat README.md") == "allow"
    assert judge.edit(".env") == "allow"


def test_url_rules_compare_host_labels(root: Path):
    judge = Judge(root, allowed_tools=["WebFetch(domain:python.org)"])

    def fetch(url: str) -> str:
        return judge.verdict_of("WebFetch", "network", Subject(url=url)).action

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
    ("name", "kind", "subject", "hint"),
    [
        ("EditTool", "edit", Subject(paths=("README.md",)), "--permission-mode acceptEdits"),
        ("ExecuteCommand", "execute", Subject(command="make all"), "--allowedTools 'Bash(make all)'"),
        ("ExecuteCommand", "execute", Subject(command="make 'a'"), "--yes"),
        ("WebFetch", "network", Subject(url="https://a.example/x"), "--allowedTools 'WebFetch(domain:a.example)'"),
    ],
)
def test_permission_request_has_a_reason_and_a_hint(root: Path, name: str, kind: Kind, subject: Subject, hint: str):
    verdict = Judge(root).verdict_of(name, kind, subject)
    assert verdict.action == "ask"
    assert verdict.reason.endswith(".")
    assert hint in verdict.hint
    assert "--yes" in verdict.hint


@given(st.text(max_size=40), st.sampled_from(MODES), st.sampled_from(PERMISSION_MODES))
def test_every_command_gets_a_verdict_and_a_reason(command: str, mode: Mode, permission_mode: str):
    policy = make_policy(
        root="/nowhere/project", permission_mode=permission_mode, forbidden_commands=["x"], allowed_tools=["Bash(y:*)"]
    )
    verdict = policy.judge("ExecuteCommand", "execute", Subject(command=command), mode)
    assert verdict.action == "allow" or verdict.reason


@pytest.mark.parametrize("bypass", [False, True])
def test_search_of_a_folder_with_a_denied_file_needs_approval(workspace: Path, bypass: bool) -> None:
    (workspace / "secret.txt").write_text("x")
    (workspace / "open.txt").write_text("x")
    policy = make_policy(root=str(workspace), disallowed_tools=["Read(secret.txt)"], yes=bypass)

    def action_of(command: str) -> str:
        return policy.judge("ExecuteCommand", "execute", Subject(command=command), "edit_mode").action

    assert action_of("grep x open.txt") == "allow"
    assert action_of("grep x secret.txt") == "deny"
    for command in ("grep -rn x .", "grep --recursive x .", "rg x", "git grep x", "ls && rg x | head"):
        assert action_of(command) == ("deny" if bypass else "ask"), command
