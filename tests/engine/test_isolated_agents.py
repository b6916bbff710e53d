"""Isolated agents: each works in its own worktree, and its changes are merged back into the project."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from odin.app.agent_workspaces import AgentWorkspace, AgentWorkspaces
from odin.app.agents import AgentRuntime
from odin.app.git import Git
from odin.config import Options
from odin.config.paths import make_environment
from odin.config.trust import TrustedFolder, add_trusted_folder, evaluate_trust, hash_pinned_files
from odin.context.agent_definition import AgentDefinition
from odin.core.call_events import ToolEnded
from odin.core.errors import OdinError, UsageError
from odin.core.event import FilesChanged
from odin.core.message import ToolCall
from odin.core.tool import Target
from odin.core.write_scope import WriteScope
from odin.engine.call import CallScope
from odin.engine.limits import RepetitionGuard
from odin.testing import say
from tests.waiting import until

from .conftest import Start, Talk, get_parts
from .test_agent_worktree import git
from .tree import read_tree


class Team:
    """Agents of one open session, each with its own parts."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.parts = get_parts(talk.client)
        self.workspaces = self.parts.work.workspaces
        self._count = 0

    async def act(
        self, agent: str, place: AgentWorkspace, *calls: tuple[str, dict[str, Any]], scope: WriteScope | None = None
    ) -> list[ToolEnded]:
        """Run tool calls as this agent and return their results."""
        parts = AgentRuntime(self.parts, agent, scope=scope, workspace=place)
        self._count += 1
        ids = [f"{agent or 'main'}-{self._count}-{number}" for number in range(len(calls))]
        requests = [ToolCall(call_id, *call) for call_id, call in zip(ids, calls, strict=True)]
        turn = CallScope(agent, "edit_mode", place.cwd, place.root, RepetitionGuard())
        await parts.make_deps("edit_mode").get_pipeline().run_all(requests, turn)
        ended = {event.call_id: event for event in await self.events(ToolEnded)}
        return [ended[call_id] for call_id in ids]

    async def events(self, kind: type[Any]) -> list[Any]:
        return [envelope.event for envelope in await self.envelopes() if isinstance(envelope.event, kind)]

    async def envelopes(self) -> list[Any]:
        last = (await self.talk.client.snapshot()).seq
        found: list[Any] = []
        async for envelope in self.talk.client.stream_events(after=-1):
            found.append(envelope)
            if envelope.seq >= last:
                break
        return found

    async def changes_by_agent(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for envelope in await self.envelopes():
            if isinstance(envelope.event, FilesChanged):
                assert envelope.event.shared_with == ()
                names = {Path(change.after.path).name for change in envelope.event.changes}
                found.setdefault(envelope.agent, set()).update(names)
        return found


def run(command: str) -> tuple[str, dict[str, Any]]:
    return "ExecuteCommand", {"command": command}


def write(path: str | Path) -> tuple[str, dict[str, Any]]:
    return "WriteFile", {"file_path": str(path), "content": "written\n"}


@pytest.fixture
async def team(start: Start, workspace: Path) -> Team:
    git(workspace, "init", "-q", "-b", "main")
    (workspace / "a.txt").write_text("old\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-q", "-m", "first")
    talk = await start([say("ok")])
    await talk.say("go")
    return Team(talk)


@pytest.mark.slow
async def test_isolated_agents_work_in_parallel_and_their_changes_are_merged(team: Team, workspace: Path) -> None:
    one, two = await team.workspaces.create_worktree("agent-1"), await team.workspaces.create_worktree("agent-2")
    before = read_tree(workspace)
    gates = [workspace.parent / name for name in ("first", "second")]
    for gate in gates:
        os.mkfifo(gate)
    meet = f"touch here; {{0}} {gates[0]}; {{1}} {gates[1]}; echo {{2}} > a.txt; git add -A"
    ended = await asyncio.gather(  # at the same time, or neither would end
        team.act(
            "agent-1",
            one,
            run(meet.format("echo x >", "read x <", "one")),
            run("git commit -qm 'by one' || true"),
            write("w.txt"),
        ),
        team.act("agent-2", two, run(meet.format("read x <", "echo x >", "two")), write(f"{two.root}/deep/v.txt")),
    )
    assert {event.status for events in ended for event in events} == {"success"}, ended
    assert await team.changes_by_agent() == {
        "agent-1": {"here", "a.txt", "w.txt"},
        "agent-2": {"here", "a.txt", "deep", "v.txt"},
    }
    assert read_tree(workspace) == before
    assert (await one.collect_diff()).describe().startswith("3 files changed")
    names = ("a.txt", "here", "w.txt", "deep/v.txt")
    paths = [str(workspace / name) for name in names]
    store = team.parts.work.checkpoints.store
    work = await team.workspaces.apply(one, store, paths)
    assert work.is_complete and (workspace / "a.txt").read_text() == "one\n"
    clash = await team.workspaces.apply(two, store, paths)
    assert clash.conflicts == ("a.txt",) and "deep/v.txt" in clash.applied
    assert (await team.workspaces.end(one)).is_removed
    end = await team.workspaces.end(two)
    assert end.describe() == f"Kept worktree {two.get_worktree().name} with 3 files not applied: {two.root}"


async def test_programs_of_an_agents_virtual_environment_are_not_taken_for_those_of_the_system(
    start: Start, workspace: Path
) -> None:
    """Without a sandbox only the names of programs tell that a command reads."""
    talk = await start([say("ok")], yes=False, config={"sandbox": {"backend": "off"}})
    await talk.say("go")
    team = Team(talk)
    program = workspace / "env/bin/ls"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho of the project\n")
    program.chmod(0o755)
    place = team.workspaces.apply_definition(team.workspaces.main, AgentDefinition(name="a", venv="env"))
    for chosen, action in ((team.workspaces.main, "allow"), (place, "ask")):
        policy = AgentRuntime(team.parts, "agent-1", workspace=chosen).make_policy()
        decision = policy.evaluate("ExecuteCommand", "execute", Target(command="ls"), "edit_mode")
        assert decision.action == action


async def test_isolated_agent_writes_only_to_its_worktree(team: Team, workspace: Path) -> None:
    place = await team.workspaces.create_worktree("agent-1")
    (ended,) = await team.act("agent-1", place, run(f"echo x > {workspace}/a.txt; echo y > a.txt; pwd"))
    if place.sandbox.is_confining():
        assert (workspace / "a.txt").read_text() == "old\n"
    assert Path(place.root, "a.txt").read_text() == "y\n" and place.root in ended.text
    scoped = WriteScope(("a.txt",))
    refused, allowed = await team.act("agent-1", place, write("b.txt"), run("cat a.txt"), scope=scoped)
    assert "b.txt is outside this agent's write scope: a.txt" in refused.text and allowed.status == "success"
    policy = AgentRuntime(team.parts, "agent-1", workspace=place).make_policy()
    assert (policy.root, policy.cwd) == (place.root, place.cwd)


async def test_background_process_ends_with_its_worktree(team: Team) -> None:
    place = await team.workspaces.create_worktree("agent-1")
    (ended,) = await team.act("agent-1", place, ("Spawn", {"command": "touch started; sleep 600"}))
    assert ended.status == "success", ended.text
    while not Path(place.root, "started").exists():
        await asyncio.sleep(0.01)
    (spawned,) = team.parts.work.background.list_all()
    await team.workspaces.end(place)
    await until(lambda: spawned.status != "running")


async def test_agent_place_can_be_reopened(team: Team, workspace: Path) -> None:
    place = await team.workspaces.create_worktree("agent-1")
    name = place.get_worktree().name
    assert await team.workspaces.reopen(name) is place
    Path(place.root, "a.txt").write_text("by the agent\n")
    await team.talk.client.close()
    core, permissions = team.parts.core, team.parts.permissions
    runner = permissions.runner
    git = Git(runner, core.workspace.state_dir)
    later = AgentWorkspaces(
        core.config,
        make_environment(cwd=str(workspace)),
        core.log.path,
        runner,
        permissions.sandbox,
        lambda: git,
        core.process.watchdog,
    )
    assert [file.path for file in (await (await later.reopen(name)).collect_diff()).files] == ["a.txt"]
    with pytest.raises(UsageError, match="No worktree"):
        await later.reopen("gone")
    with pytest.raises(OdinError, match="works in the project itself"):
        await later.main.collect_diff()
    await runner.close()


async def test_worktree_shares_trust_and_session_store_with_its_project(team: Team, workspace: Path) -> None:
    from odin.app.workspace import make_workspace

    place = await team.workspaces.create_worktree("agent-1")
    assert not evaluate_trust(place.root, os.environ, None).trusted
    trusted = TrustedFolder(files=hash_pinned_files(str(workspace), None))
    add_trusted_folder(str(workspace), trusted, os.environ)
    assert evaluate_trust(place.root, os.environ, None).trusted
    Path(place.root, ".mcp.json").write_text("{}")
    assert evaluate_trust(place.root, os.environ, None).changed == (".mcp.json",)
    env = dict(os.environ)
    here, there = (make_workspace(Options(cwd=str(folder), env=env)) for folder in (workspace, place.root))
    assert (there.config.root, there.store.folder) == (place.root, here.store.folder)
    Path(place.root, ".git").write_text("gitdir: /nowhere\n")
    assert make_workspace(Options(cwd=place.root, env=env)).store.folder != here.store.folder
