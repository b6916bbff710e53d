"""Write scopes of agents: the policy denies edits outside the scope, and the sandbox confines commands to it."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.app.agents import AgentRuntime
from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.errors import UsageError
from odin.core.message import ToolCall
from odin.core.op import AnswerPermission
from odin.core.profile import ProcessProfile
from odin.core.write_scope import WriteScope
from odin.engine.call import CallScope
from odin.engine.limits import RepetitionGuard
from odin.policy.write_scope import parse_write_scope
from tests.engine.conftest import Start, Talk, get_parts
from tests.sandbox.sandboxes import SandboxedProject
from tests.sandbox.users import BACKENDS
from tests.table import each

SRC = WriteScope(path_prefixes=("src",))


# --- WriteScope ---


@each(
    "one, two, shared",
    [
        (WriteScope(("a.py",)), WriteScope(("a.py",)), "a.py"),
        (WriteScope(("a.py",)), WriteScope(("b.py",)), ""),
        (WriteScope(("src/a.py",)), SRC, "src/a.py"),
        (SRC, WriteScope(path_prefixes=("src/api",)), "src/api"),
        (SRC, WriteScope(path_prefixes=("src-old", "docs")), ""),
        (WriteScope(path_prefixes=(".",)), WriteScope(("x",)), "x"),
        (WriteScope(("src",)), WriteScope(("src/a.py",)), ""),
        (SRC, WriteScope(read_only=True), ""),
        (SRC, WriteScope(), ""),
    ],
)
def test_scopes_conflict_if_they_share_a_path(one: WriteScope, two: WriteScope, shared: str) -> None:
    assert (one.conflicts_with(two), two.conflicts_with(one)) == (bool(shared), bool(shared))
    assert one.find_overlap(two) == two.find_overlap(one) == shared


@each(
    "scope, name, allowed",
    [
        (WriteScope(("a.py",)), "a.py", True),
        (WriteScope(("a.py",)), "a.pyc", False),
        (WriteScope(("a",)), "a/b", False),
        (SRC, "src/deep/a.py", True),
        (SRC, "src", True),
        (SRC, "src2/a.py", False),
        (WriteScope(read_only=True), "src/a.py", False),
        (WriteScope(), "anything", True),
        (WriteScope(path_prefixes=(".",)), "anything", True),
        (WriteScope(path_prefixes=(".",)), "../x", False),
    ],
)
def test_a_scope_allows_only_its_files_and_prefixes(scope: WriteScope, name: str, allowed: bool) -> None:
    assert scope.allows(os.path.normpath(f"/project/{name}"), "/project") == allowed


# --- parsing a scope from a model ---


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src/app/users").mkdir(parents=True)
    (root / "src/app/mail.py").touch()
    (root / "inner").symlink_to("src/app")
    (root / "outer").symlink_to("/etc")
    return root


def test_paths_and_modules_of_a_scope_become_relative_to_the_project(project: Path) -> None:
    scope = parse_write_scope(
        str(project),
        files=["./README.md", str(project / "new.py"), "src/app/"],
        path_prefixes=["docs/**", "inner/users", "docs/"],
        modules=["app.mail", "app.users", "src/app/other"],
    )
    assert scope.files == ("README.md", "new.py")
    assert scope.path_prefixes == ("src/app", "docs", "src/app/users", "src/app/mail.py", "src/app/other")
    assert parse_write_scope(str(project), path_prefixes=["."]).path_prefixes == (".",)
    assert parse_write_scope(str(project), read_only=True) == WriteScope(read_only=True)
    assert not parse_write_scope(str(project)).is_limited


@each(
    "given, said",
    [
        ({"files": ["../x"]}, "'../x' is outside the project"),
        ({"path_prefixes": ["/etc"]}, "'/etc' is outside the project"),
        ({"path_prefixes": ["~/x"]}, "'~/x' is outside the project"),
        ({"files": ["outer/passwd"]}, "'outer/passwd' is outside the project"),
        ({"path_prefixes": ["../project-2"]}, "is outside the project"),
        ({"modules": ["../x"]}, "is outside the project"),
        ({"modules": ["nope.nothing"]}, "There is no module 'nope.nothing'"),
        ({"files": ["src/*.py"]}, "contains a pattern"),
        ({"files": [" "]}, "is empty"),
        ({"files": ["a\0b"]}, "NUL byte"),
        ({"files": ["a"], "read_only": True}, "not both"),
    ],
)
def test_an_invalid_scope_is_rejected_with_a_reason(project: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_write_scope(str(project), **given)


# --- the policy ---


async def run_as_agent(
    talk: Talk, root: Path, scope: WriteScope, *calls: tuple[str, dict[str, Any]]
) -> list[ToolEnded]:
    """Run tool calls as an agent with this scope."""
    parts = AgentRuntime(get_parts(talk.client), "sub", scope=scope)
    requests = [ToolCall(f"c{number}", name, args) for number, (name, args) in enumerate(calls)]
    turn = CallScope("sub", "edit_mode", str(root), str(root), RepetitionGuard())
    seq = (await talk.client.snapshot()).seq
    await parts.make_deps("edit_mode").get_pipeline().run_all(requests, turn)
    ended: list[ToolEnded] = []
    async for envelope in talk.client.stream_events(after=seq):
        if isinstance(envelope.event, ToolEnded):
            ended.append(envelope.event)
        if len(ended) == len(calls):
            return ended
    raise AssertionError


def make_write_call(path: Path) -> tuple[str, dict[str, Any]]:
    return "WriteFile", {"file_path": str(path), "content": "x\n"}


async def test_edits_outside_the_scope_are_refused_and_the_scope_is_named(start: Start, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "docs").mkdir()
    (workspace / "src/link.md").symlink_to("../docs/a.md")
    talk = await start([])
    calls = [
        make_write_call(workspace / name)
        for name in ("src/new/a.py", "README.md", "docs/a.md", "src/link.md", "src/../b")
    ]
    ended = await run_as_agent(talk, workspace, WriteScope(("README.md",), ("src",)), *calls)
    assert [event.status for event in ended] == ["success", "success", "denied", "denied", "denied"]
    assert "docs/a.md is outside this agent's write scope: src, README.md." in ended[2].text
    assert list((workspace / "docs").iterdir()) == []
    (refused,) = await run_as_agent(
        talk, workspace, WriteScope(read_only=True), make_write_call(workspace / "src/b.py")
    )
    assert "write scope: nothing (read-only)" in refused.text
    (free,) = await run_as_agent(talk, workspace, WriteScope(), make_write_call(workspace / "anywhere"))
    assert free.status == "success"


async def test_output_redirected_out_of_the_scope_is_refused_without_a_sandbox(start: Start, workspace: Path) -> None:
    (workspace / "src").mkdir()
    talk = await start([], config={"sandbox": {"backend": "off"}})
    commands = [
        "echo x > docs.md",
        "echo x > src/a",
        "cd src && echo x > b",
        "cd src && echo x > ../c",
        "ls > /dev/null",
    ]
    ended = await run_as_agent(
        talk, workspace, SRC, *(("ExecuteCommand", {"command": command}) for command in commands)
    )
    assert [event.status for event in ended] == ["denied", "success", "success", "denied", "success"]
    assert "docs.md is outside this agent's write scope: src." in ended[0].text


# --- the sandbox ---


@pytest.fixture(params=BACKENDS)
async def sandboxed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxedProject]:
    project = SandboxedProject(tmp_path, request.param, unsandboxed_commands=("touch",))
    yield project.skip_if_unavailable()
    await project.close()


async def test_a_command_can_write_only_inside_the_scope(sandboxed: SandboxedProject) -> None:
    root = sandboxed.root
    for folder in ("src", "docs", ".git"):
        (root / folder).mkdir()
    for name in ("a.txt", "b.txt", "docs/old"):
        (root / name).write_text("old\n")
    scope = WriteScope(("a.txt", "missing.txt"), ("src", "absent"))
    profile = ProcessProfile(scope=scope.list_paths(str(root)))
    attempts = ["src/new", "a.txt", "b.txt", "c.txt", "docs/old", "docs/new", ".git/x", "missing.txt", "absent/x"]
    command = "; ".join(f"(echo new > {name}) 2>/dev/null && echo {name}" for name in attempts)
    done = await sandboxed.run(
        f"{command}; rm -f b.txt docs/old; mv docs gone; mkdir src/deep && echo t > $TMPDIR/x", profile
    )
    assert done.output.split("\n")[:2] == ["src/new", "a.txt"]
    assert sorted(path.name for path in root.iterdir()) == [".git", "a.txt", "b.txt", "docs", "src"]
    assert ((root / "docs/old").read_text(), sorted(os.listdir(root / "src"))) == ("old\n", ["deep", "new"])
    assert (await sandboxed.run("touch b.txt d.txt", profile)).code != 0  # although the user exempted `touch`
    assert not (root / "d.txt").exists()
    denied = await sandboxed.run("echo new > docs/old", profile)
    assert denied.denial == f"writing {root}/docs/old"
    assert (await sandboxed.run("echo new > docs/old && cat docs/old")).output == "new\n"


async def test_a_process_in_the_background_keeps_its_scope(sandboxed: SandboxedProject) -> None:
    (sandboxed.root / "src").mkdir()
    (sandboxed.root / "docs").mkdir()
    profile = ProcessProfile(scope=(str(sandboxed.root / "src"),))
    await sandboxed.run("(echo x > src/a; echo x > docs/a; echo x > src/done) >/dev/null 2>&1 & wait", profile)
    assert [path.name for path in sorted(sandboxed.root.rglob("*"))] == ["docs", "src", "a", "done"]


@pytest.mark.parametrize("backend", ["auto", "off"])
async def test_the_approval_request_says_whether_commands_are_confined(
    start: Start, workspace: Path, backend: str
) -> None:
    (workspace / "src").mkdir()
    talk = await start([], yes=False, can_ask=True, config={"sandbox": {"backend": backend}})
    running = asyncio.ensure_future(
        run_as_agent(talk, workspace, SRC, ("ExecuteCommand", {"command": "touch src/a b"}))
    )
    await talk.until_live(PermissionAsked)
    asked = talk.all(PermissionAsked)[-1]
    await talk.client.submit(AnswerPermission(asked.ask_id, True))
    (ended,) = await running
    if get_parts(talk.client).permissions.sandbox.is_confining():
        is_confined = "commands are confined to the agent's write scope: src" in asked.sandbox
        assert is_confined or (asked.effects is not None and [item.path for item in asked.effects.files] == ["src/a"])
        assert (ended.status, (workspace / "b").exists()) == ("error", False)
        assert "This agent may change: src." in ended.text
    else:
        assert "commands are NOT confined to the agent's write scope: src" in asked.sandbox
        assert (workspace / "b").exists()
