"""A suggested rule allows its call, and no other call that its text does not show."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.tool import Kind, Target
from odin.policy.policy import Policy
from tests.policy.policies import make_policy

COMMANDS = (
    "npm test",
    "npm run build",
    "npm install left-pad",
    "make lint",
    "pytest -q tests/test_a.py",
    "python3 -m pytest tests",
    "python3 tool.py",
    "cargo build --release",
    "cargo run",
    "go test ./...",
    "git commit -m 'a message'",
    "git push origin main",
    "git checkout -b topic",
    "docker compose up",
    "uv run pytest",
    "touch notes.txt",
    "mkdir -p build/out",
    "cp a.txt b.txt",
    "rm old.txt",
    "sed -i s/a/b/ a.txt",
    "bash run.sh",
    "FOO=1 make",
    "cd src && make",
    "ls && touch x",
    "npx prettier src",
    "tsc -p .",
    "kubectl get pods",
    "terraform plan",
    "pip install -r requirements.txt",
)

VARIANTS = (
    "{} ; cp a.txt canary",
    "{} && cp a.txt canary",
    "{} || cp a.txt canary",
    "{} | sh",
    "{} | tee canary",
    "{} & cp a.txt canary",
    "{}\ncp a.txt canary",
    "{} > canary",
    "{} >> canary",
    "{} 2> canary",
    "{} >| canary",
    "{} <> canary",
    "{} < /etc/hostname",
    "{} $(cp a.txt canary)",
    "{} `cp a.txt canary`",
    "{} <(cp a.txt canary)",
    "{} $HOME/x",
    "{} ~/x",
    "{} /etc/x",
    "{} ../../x",
    "{} src/../../../x",
    "{} --file=/etc/x",
    "{} -f/etc/x",
    "{} @/etc/x",
    "{} .git/hooks/pre-commit",
    "{} .env",
    "{} .bashrc",
    "{} link/x",
    "{} --out=.env",
    "PATH=. {}",
    "LD_PRELOAD=./x.so {}",
    "GIT_SSH_COMMAND=./x {}",
    "sudo {}",
    "env X=1 {}",
    "xargs {}",
    "eval {}",
    "cd / && {}",
    "cd .. && {}",
    "if true; then {}; cp a.txt canary; fi",
    "f() {{ cp a.txt canary; }}; f; {}",
    "alias make=touch; {}",
    "export PATH=.; {}",
    "({}; cp a.txt canary)",
    "! {} ; cp a.txt canary",
    "{} \u202e",
    "{} \x1b[2K",
)

OTHER_COMMANDS = (
    "npm publish",
    "npm run deploy",
    "npm exec evil",
    "npx evil",
    "make --eval=x",
    "python3 other.py",
    "python3 -c 1",
    "python3 -m http.server",
    "cargo publish",
    "cargo run --bin evil",
    "go run .",
    "git config alias.x '!cp a.txt canary'",
    "git -c core.pager=x log",
    "git push --receive-pack=./x origin main",
    "git clean -n -e x ; touch y",
    "docker run x",
    "uv run evil",
    "rm other.txt",
    "cp a.txt c.txt",
    "sed -i s/a/c/ a.txt",
    "bash other.sh",
    "curl http://127.0.0.1",
    "pip install evil",
    "/bin/npm test",
    "./npm test",
    "kubectl delete pod x",
    "terraform apply",
)


@pytest.fixture
def project(workspace: Path, tmp_path: Path) -> Path:
    (workspace / "src").mkdir()
    for link in ("link", "src/link"):
        (workspace / link).symlink_to(tmp_path)
    return workspace


def policy_with(root: Path, *rules: str) -> Policy:
    return make_policy(root=str(root), allowed_tools=rules)


def find_action(policy: Policy, command: str) -> str:
    return policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode").action


@pytest.mark.parametrize("command", COMMANDS)
def test_suggested_rule_for_a_command_allows_only_what_it_shows(project: Path, command: str) -> None:
    rules = policy_with(project).suggest_rules("ExecuteCommand", "execute", Target(command=command), "edit_mode")
    assert find_action(policy_with(project), command) == "ask"
    for rule in rules:
        allowing = policy_with(project, rule)
        assert find_action(allowing, command) == "allow", rule
        loose = [text for form in VARIANTS if find_action(allowing, text := form.format(command)) == "allow"]
        assert loose == [], rule
        shown = rule.removeprefix("Bash(").removesuffix(")")
        others = [text for text in (*COMMANDS, *OTHER_COMMANDS) if find_action(allowing, text) == "allow"]
        if shown.endswith(":*"):
            assert all(list_words(text)[: len(list_words(shown[:-2]))] == list_words(shown[:-2]) for text in others), (
                rule,
                others,
            )
        else:
            assert set(others) <= {command}, rule


def list_words(text: str) -> list[str]:
    """Return the words of the last command, without assignments."""
    last = text.split("&&")[-1].split()
    return [word for word in last if "=" not in word or word.startswith("-")]


FILES = ("a.txt", "src/a.py", "src/deep/b.py", "notes")


@pytest.mark.parametrize(("name", "kind"), [("WriteFile", "edit"), ("EditTool", "edit"), ("AppendFile", "edit")])
@pytest.mark.parametrize("place", FILES)
def test_suggested_rule_for_a_file_allows_only_what_it_shows(project: Path, name: str, kind: Kind, place: str) -> None:
    target = Target(paths=(str(project / place),))
    for rule in policy_with(project).suggest_rules(name, kind, target, "edit_mode"):
        allowing = policy_with(project, rule)

        def allowed(path: Any, tool: str = name, kind: Kind = kind, evaluator: Policy = allowing) -> bool:
            return evaluator.evaluate(tool, kind, Target(paths=(str(path),)), "edit_mode").action == "allow"

        assert allowed(project / place), rule
        folder = rule.partition("(")[2].removesuffix(")").removesuffix("/**") if rule.endswith("/**)") else ""
        beside = [".git/config", ".env/../.bashrc", "odinconfig.json", "../x", "link/x", "other.txt", "src-evil/a.py"]
        beside += [f"{folder}/../x.txt", f"{folder}/.git/config", f"{folder}/.vscode/settings.json"] if folder else []
        assert [text for text in beside if allowed(project / text)] == [], rule
        assert allowed(project / "src" / "deep" / "new.py") == (folder in ("src", "src/deep")), rule
        assert not allowed(project / place, "Delete")
        assert find_action(allowing, f"touch {place}") == "ask"
