"""Notes with the first prompt: instruction files, the repository, the environment."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from odin.app import workspace
from odin.app.workspace import describe_repository
from odin.testing import say
from tests.engine.conftest import Start

HEAD = "Git status at the start of this session:"


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give git enough time on a busy machine; late notes have their own tests."""
    monkeypatch.setattr(workspace, "GRACE_S", 30.0)
    monkeypatch.setattr(workspace, "LIMIT_S", 30.0)


@pytest.fixture
def repo(workspace: Path) -> Path:
    git(workspace, "init", "-q", "-b", "main")
    (workspace / "a.txt").write_text("one\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "The first one")
    (workspace / "a.txt").write_text("two\n")
    (workspace / "new.txt").write_text("new\n")
    return workspace


async def test_the_first_message_has_the_state_of_the_repository_once(start: Start, repo: Path):
    talk = await start([say("Yes."), say("Again.")])
    await talk.say("Hello")
    await talk.say("And now?")
    first, second = (str(request.messages) for request in talk.server.requests)
    assert f"{HEAD}\\n## main\\n M a.txt\\n?? new.txt\\nLast commits:\\n" in first
    assert "The first one" in first
    assert second.count(HEAD) == 1
    assert second.startswith(first[:-1])


async def test_it_is_not_told_again_after_a_resume(start: Start, repo: Path):
    talk = await start([say("Yes."), say("Again.")])
    await talk.say("Hello")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session)
    await again.say("And now?")
    assert str(talk.server.requests[1].messages).count(HEAD) == 1


async def test_without_a_repository_nothing_is_said(start: Start, workspace: Path):
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert "Git" not in str(talk.server.requests[0].messages)


@pytest.mark.parametrize("name", [".venv", "venv", "env"])
async def test_a_virtual_environment_is_announced(start: Start, workspace: Path, name: str):
    (workspace / name).mkdir()
    (workspace / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert f"Python virtual environment: {name}" in str(talk.server.requests[0].messages)


async def test_a_folder_of_that_name_alone_is_none(start: Start, workspace: Path):
    (workspace / "env").mkdir()
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert "virtual environment" not in str(talk.server.requests[0].messages)


POISONS = {
    "fsmonitor": ("config", "core.fsmonitor", "touch {mark}"),
    "filter": ("config", "filter.x.clean", "touch {mark}; cat"),
    "hooks": ("config", "core.hooksPath", "hooks"),
    "diff": ("config", "diff.external", "touch {mark}"),
    "include": ("config", "include.path", "../evil"),
    "pager": ("config", "core.pager", "touch {mark}"),
    "signed": ("config", "gpg.program", "touch {mark}"),
}


@pytest.mark.parametrize("poison", POISONS)
async def test_a_repository_that_could_start_programs_is_not_looked_at(start: Start, repo: Path, poison: str):
    mark = repo.parent / "mark"
    git(repo, *(part.format(mark=mark) for part in POISONS[poison]))
    (repo / ".gitattributes").write_text("* filter=x\n")
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    told = str(talk.server.requests[0].messages)
    assert HEAD not in told
    assert "Git: not inspected" in told
    assert not mark.exists()


async def test_a_hook_of_the_repository_does_not_run(start: Start, repo: Path):
    mark = repo.parent / "mark"
    for name in ("post-index-change", "post-checkout", "fsmonitor-watchman"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert not mark.exists()


async def test_git_starts_only_when_something_was_said(start: Start, repo: Path, monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []

    async def looked(root: str, env: object) -> str:
        begun.append(root)
        return "looked"

    monkeypatch.setattr(workspace, "describe_repository", looked)
    talk = await start([say("Yes.")])
    await talk.client.get_info()
    await talk.client.snapshot()
    assert begun == []
    await talk.say("Hello")
    assert begun == [str(repo)]


async def test_a_slow_git_is_told_with_a_later_request(start: Start, repo: Path, monkeypatch: pytest.MonkeyPatch):
    ready = asyncio.Event()

    async def looked(root: str, env: object) -> str:
        await ready.wait()
        return "Git at last"

    monkeypatch.setattr(workspace, "describe_repository", looked)
    monkeypatch.setattr(workspace, "GRACE_S", 0.01)
    talk = await start([say("Yes."), say("Again.")])
    await talk.say("Hello")
    ready.set()
    await asyncio.sleep(0)
    await talk.say("And now?")
    first, second = (str(request.messages) for request in talk.server.requests)
    assert "Git at last" not in first
    assert second.count("Git at last") == 1


async def test_a_session_ends_while_git_still_looks(start: Start, repo: Path, monkeypatch: pytest.MonkeyPatch):
    async def looked(root: str, env: object) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(workspace, "describe_repository", looked)
    monkeypatch.setattr(workspace, "GRACE_S", 0.01)
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    async with asyncio.timeout(20):
        await talk.client.close()


async def test_git_that_does_not_come_to_an_end_is_ended(repo: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(repo / "nobody-writes")
    monkeypatch.setattr(workspace, "_STATUS_ARGS", ("hash-object", "nobody-writes"))
    monkeypatch.setattr(workspace, "LIMIT_S", 0.1)
    async with asyncio.timeout(30):
        assert await describe_repository(str(repo), os.environ) == ""


async def test_a_long_status_is_cut(repo: Path):
    for number in range(100):
        (repo / f"file-{number:03}\x1b[2J.txt").write_text("")
    told = await describe_repository(str(repo), os.environ)
    assert "more lines" in told
    assert len(told) <= 2010
    assert "\x1b" not in told


async def test_agents_md_on_the_way_to_the_folder_is_in_the_prompt(start: Start, workspace: Path):
    (workspace / "ODIN.md").write_text("Use tabs.")
    (workspace / "AGENTS.md").write_text("Run make check.")
    below = workspace / "below"
    below.mkdir()
    (below / "AGENTS.md").write_text("Here it is Rust.")
    talk = await start([say("Yes."), say("Again.")], cwd=str(below))
    await talk.say("Hello")
    (below / "AGENTS.md").write_text("Changed meanwhile.")
    await talk.say("And?")
    systems = [str(request.json["system"]) for request in talk.server.requests]
    assert systems[0] == systems[1]
    order = [systems[0].index(text) for text in ("(ODIN.md)", "(AGENTS.md)", "(below/AGENTS.md)", "Here it is Rust.")]
    assert order == sorted(order)
    assert "Here it is Rust." in (await talk.client.snapshot()).custom_instructions
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start([say("Yes.")], cwd=str(below), resume=session)
    await again.say("Now?")
    assert "Changed meanwhile." in str(again.server.requests[0].json["system"])
