"""The effect and the danger that a permission request shows for a tool call."""

from pathlib import Path

from odin.core.policy import Danger
from odin.core.tool import Kind, Target
from tests.policy.policies import make_policy
from tests.policy.repositories import make_repository
from tests.table import each

COMMANDS: list[tuple[str, Danger, str]] = [
    ("rm -r build", "hard_to_undo", "Deletes build recursively."),
    ("rm a b c", "hard_to_undo", "Deletes a, b and 1 more."),
    ("find . -name '*.pyc' -delete", "hard_to_undo", "Deletes every file that find matches below .."),
    ("git push", "network", "Pushes commits to a remote."),
    ("git push --force-with-lease", "hard_to_undo", "Pushes to a remote and can overwrite its history."),
    ("git push origin +main", "hard_to_undo", "Pushes to a remote and can overwrite its history."),
    ("git push origin :old", "hard_to_undo", "Deletes a branch or tag on a remote."),
    ("git -C sub commit -m x", "changes_files", "Creates a commit."),
    ("git commit --amend", "hard_to_undo", "Replaces the last commit."),
    ("git config --global user.name x", "outside_project", "Changes the git configuration for all repositories."),
    ("git reset --hard", "hard_to_undo", "Discards uncommitted changes."),
    ("git rebase main", "hard_to_undo", "Rewrites the commits of the current branch."),
    ("sudo apt-get install -y jq", "outside_project", "Installs packages as root."),
    ("sudo make install", "outside_project", "Runs make as another user."),
    ("npm install left-pad", "network", "Downloads and installs packages with npm, which may run their scripts."),
    ("npm publish", "hard_to_undo", "Publishes with npm, which cannot be undone."),
    ("curl -sO https://example.org/a", "network", "Downloads from https://example.org/a."),
    ("curl -d @a https://example.org/a", "network", "Sends data to https://example.org/a."),
    ("curl -d @a.json example.org", "network", "Sends data to example.org."),
    ("ssh host ls", "network", "Runs commands on host."),
    ("cat .env", "credentials", "Uses .env, which may contain secrets."),
    ("env", "credentials", "Prints environment variables, which may contain secrets."),
    ("env A=1 make", "changes_files", "Runs make, which can change files."),
    ("cat /etc/hosts", "outside_project", "Uses /etc/hosts, outside the project."),
    ("make", "changes_files", "Runs make, which can change files."),
    ("echo x >> notes.txt", "changes_files", "Appends to notes.txt."),
    ("touch a && rm b", "hard_to_undo", "Deletes b."),
    (
        "rm -rf build && git push --force",
        "hard_to_undo",
        "Deletes build recursively. Pushes to a remote and can overwrite its history.",
    ),
    ("sudo rm b", "hard_to_undo", "Deletes b. Runs rm as another user."),
    ("git push && rm b", "hard_to_undo", "Deletes b. Pushes commits to a remote."),
    ("rm a; rm b; rm c; rm d", "hard_to_undo", "Deletes a. Deletes b. Deletes c. 1 more."),
    ("cp a b", "changes_files", "Copies a to b."),
    ("sed -i s/a/b/ x.py", "changes_files", "Edits x.py in place."),
    ("chmod -R 755 bin", "changes_files", "Changes the owner or permissions of bin recursively."),
    ("kubectl delete pod x", "hard_to_undo", "Changes or deletes resources on other machines."),
    ("bash -c 'rm b'", "hard_to_undo", "Deletes b."),
    ("python3 -c 'print(1)'", "changes_files", "Runs code given to python3, which can change files."),
    ("bash setup.sh", "changes_files", "Runs the script setup.sh, which can change files."),
    ("$tool x", "changes_files", "Runs a program whose name is only known when it runs: $tool."),
    ("ls -la", "read_only", "Only reads."),
    ("A=1", "changes_files", "Sets variables or runs nothing."),
]

FILES: list[tuple[str, Kind, str, Danger, str]] = [
    ("WriteFile", "edit", "src/a.py", "changes_files", "Changes src/a.py."),
    ("Delete", "edit", "a.txt", "changes_files", "Deletes a.txt."),
    ("Read", "read", "a.txt", "read_only", "Reads a.txt."),
    ("Read", "read", "/etc/hosts", "outside_project", "Reads /etc/hosts, outside the project."),
    ("Read", "read", ".env", "credentials", "Reads .env, which may contain secrets."),
]


@each("command, danger, sentence", COMMANDS)
def test_command_is_described_by_its_most_dangerous_effects(
    command: str, danger: Danger, sentence: str, workspace: Path, home: Path
):
    effect = make_policy(root=str(workspace)).describe_effect(
        "ExecuteCommand", "execute", Target(command=command), "edit_mode"
    )
    assert (effect.danger, effect.sentence) == (danger, sentence)


@each("name, kind, path, danger, sentence", FILES)
def test_a_file_tool_is_described_by_its_paths(
    name: str, kind: Kind, path: str, danger: Danger, sentence: str, workspace: Path
):
    effect = make_policy(root=str(workspace)).describe_effect(name, kind, Target(paths=(path,)), "edit_mode")
    assert (effect.danger, effect.sentence) == (danger, sentence)


def test_fetch_is_described_by_its_url(workspace: Path):
    target = Target(url="https://example.org/a")
    effect = make_policy(root=str(workspace)).describe_effect("WebFetch", "network", target, "edit_mode")
    assert (effect.danger, effect.sentence) == ("network", "Fetches https://example.org/a.")


def test_permission_request_describes_an_ordinary_change(workspace: Path):
    decision = make_policy(root=str(workspace)).evaluate(
        "ExecuteCommand", "execute", Target(command="touch a"), "edit_mode"
    )
    assert (decision.action, decision.reason) == ("ask", "Creates or touches a.")


def test_permission_request_without_a_sandbox_says_why_a_reading_command_is_asked_about(workspace: Path):
    make_repository(workspace)
    with (workspace / ".git/config").open("a") as config:
        config.write("[core]\n\tfsmonitor = ./evil.sh\n")
    decision = make_policy(root=str(workspace)).evaluate(
        "ExecuteCommand", "execute", Target(command="git status"), "edit_mode"
    )
    assert (decision.action, decision.reason) == ("ask", "No sandbox keeps it from doing more than reading.")
