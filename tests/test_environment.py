"""A session has one environment: what judges a command and what runs it see the same variables, home and folder."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import Struct

import odin
from odin.core.tool import Kind, Target
from odin.testing import ScriptedServer, call, reply, say
from tests.policy.policies import make_policy
from tests.waiting import within_limit


@pytest.fixture
def project(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with files that the variables of these tests can point at."""
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    for name in ("bin", "src", "deep"):
        (workspace / name).mkdir()
    files = {"a.txt": "x", "key": "x", "deep/.env": "x", "rc": "--pre=./evil", "git.rc": "[diff]\nexternal = ./evil"}
    for name, text in files.items():
        (workspace / name).write_text(f"{text}\n")
    (workspace / "bin/ls").write_text("#!/bin/sh\necho a program of the project\n")
    (workspace / "bin/ls").chmod(0o755)
    (workspace.parent / "alias").symlink_to(workspace)
    (workspace.parent / "programs").mkdir()
    (workspace.parent / "programs/rg").symlink_to("/bin/true")  # for machines without it
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{workspace.parent}/programs")
    return workspace


class Case(Struct):
    """A call whose verdict without a sandbox depends on a variable: `usual` without this value, `changed` with it."""

    variable: str
    value: str
    subject: str
    usual: str = "allow"
    changed: str = "ask"
    tool: str = "ExecuteCommand"
    rule: str = ""

    def evaluate(self, project: Path, env: Mapping[str, str] | None) -> str:
        """Return the action. Where a rule denies, all else is allowed."""
        rules = [self.rule.format(project=project)] if self.rule else []
        mode = "bypassPermissions" if self.rule else "acceptEdits"
        policy = make_policy(root=str(project), env=env, permission_mode=mode, disallowed_tools=rules)
        kinds: dict[str, Kind] = {"ExecuteCommand": "execute", "Read": "read", "WriteFile": "edit"}
        text = self.subject.format(project=project, outside=project.parent)
        subject = Target(command=text) if self.tool == "ExecuteCommand" else Target(paths=(text,))
        return policy.evaluate(self.tool, kinds[self.tool], subject, "edit_mode").action

    def set_in(self, project: Path, env: Mapping[str, str]) -> dict[str, str]:
        return {**env, self.variable: self.value.format(project=project, outside=project.parent)}


CASES = [
    Case("GIT_DIR", "/elsewhere", "git status"),
    Case("GIT_INDEX_FILE", "{project}/index", "git diff"),
    Case("GIT_CONFIG_GLOBAL", "{project}/git.rc", "git log"),
    Case("GIT_CONFIG_COUNT", "1", "git diff"),
    Case("PATH", "{project}/bin:/usr/bin:/bin", "ls"),
    Case("PATH", "bin:/usr/bin:/bin", "wc -l a.txt && ls"),
    Case("HOME", "{project}", "~/a.txt", usual="ask", changed="allow", tool="Read"),
    Case("HOME", "{project}", "{project}/key", changed="deny", tool="Read", rule="Read(~/key)"),
    Case("HOME", "{outside}/person", "rm -rf {outside}/person", usual="ask", changed="deny"),
    Case("HOME", "{project}", "sort $HOME/key", changed="deny", rule="Read({project}/key)"),
    Case("CDPATH", "/", "cd src && pwd"),
    Case("PWD", "{outside}/alias", "cd src && cd .. && pwd"),
    Case("ODIN_STATE_DIR", "{project}/own", "{project}/own/x", tool="WriteFile"),
    Case("ODIN_CACHE_DIR", "{project}/own", "{project}/own/x", tool="WriteFile"),
    Case("XDG_CONFIG_HOME", "{project}", "{project}/odin/x", tool="WriteFile"),
    Case("RIPGREP_CONFIG_PATH", "{project}/rc", "rg x src"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.variable} {case.subject}")
def test_the_variables_of_the_session_decide_and_those_of_the_host_do_not(
    case: Case, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "PWD"}
    special = case.set_in(project, plain)
    assert case.evaluate(project, plain) == case.usual
    assert case.evaluate(project, special) == case.changed
    monkeypatch.setenv(case.variable, special[case.variable])
    assert case.evaluate(project, plain) == case.usual
    assert case.evaluate(project, None) == case.changed, "by default a session has the variables of its host"
    assert case.evaluate(project, special) == case.changed


async def collect_results(project: Path, env: Mapping[str, str]) -> list[str]:
    """Return what became of the calls of a session without a sandbox that cannot ask anyone."""
    commands = ("git status --short", "ls", "cd src && pwd")
    calls = [call("ExecuteCommand", {"command": text}, id=f"c{at}") for at, text in enumerate(commands)]
    calls.append(call("WriteFile", {"file_path": str(project / "own/x"), "content": "y"}, id="c3"))
    with ScriptedServer([reply(calls=calls), say("done")]) as server:
        env = {**env, **server.env("anthropic")}
        options = odin.Options(cwd=str(project), env=env, permission_mode="acceptEdits")
        await within_limit(odin.query("Look.", options).wait())
        return [server.requests[-1].results[f"c{at}"] for at in range(4)]


async def test_sessions_with_different_environments_share_a_process(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text('{"sandbox": {"backend": "off"}}')
    plain = dict(os.environ)
    special = {**plain, "GIT_DIR": "/elsewhere", "CDPATH": "/", "PATH": f"{project}/bin:{plain['PATH']}"}
    special["ODIN_STATE_DIR"] = f"{project}/own"
    asked, ran = await asyncio.gather(collect_results(project, special), collect_results(project, plain))
    assert all("requires confirmation" in text for text in asked), asked
    assert not any("requires confirmation" in text for text in ran), ran
    for name in ("GIT_DIR", "CDPATH", "PATH", "ODIN_STATE_DIR"):
        monkeypatch.setenv(name, special[name])
    ran = await collect_results(project, plain)
    assert "a program of the project" not in ran[1] and not any("requires confirmation" in text for text in ran), ran
