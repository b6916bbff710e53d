"""Notes with the first prompt: instruction files, the git status and the Python environment."""

import asyncio
import functools
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.app import workspace
from odin.app.git import Git, open_git
from odin.app.workspace import describe_repository
from odin.config import load
from odin.config.paths import make_environment
from odin.core.timing import Timing
from odin.testing import say
from tests.engine.conftest import Start
from tests.waiting import TimeLimit

HEAD = "Git status at the start of this session:"


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def start(start: Start) -> Start:
    """Open sessions that give git enough time on a busy machine; the tests of late notes pass shorter times."""
    return functools.partial(start, timing=Timing(git_grace_s=30.0, git_limit_s=30.0))


@pytest.fixture
def repo(workspace: Path) -> Path:
    git(workspace, "init", "-q", "-b", "main")
    (workspace / "a.txt").write_text("one\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "The first one")
    (workspace / "a.txt").write_text("two\n")
    (workspace / "new.txt").write_text("new\n")
    return workspace


async def test_first_message_has_the_git_status_once(start: Start, repo: Path):
    talk = await start([say("Yes."), say("Again.")])
    await talk.say("Hello")
    await talk.say("And now?")
    first, second = (str(request.messages) for request in talk.server.requests)
    assert f"{HEAD}\\n## main\\n M a.txt\\n?? new.txt\\nLast commits:\\n" in first
    assert "The first one" in first
    assert second.count(HEAD) == 1
    assert second.startswith(first[:-1])


async def test_git_status_is_not_repeated_after_a_resume(start: Start, repo: Path):
    talk = await start([say("Yes."), say("Again.")])
    await talk.say("Hello")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session)
    await again.say("And now?")
    assert str(talk.server.requests[1].messages).count(HEAD) == 1


async def test_no_git_note_outside_a_repository(start: Start, workspace: Path):
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert "Git" not in str(talk.server.requests[0].messages)


@pytest.mark.parametrize("name", [".venv", "venv", "env"])
async def test_note_names_a_virtual_environment(start: Start, workspace: Path, name: str):
    (workspace / name).mkdir()
    (workspace / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert f"Python virtual environment: {name}" in str(talk.server.requests[0].messages)


async def test_folder_without_pyvenv_cfg_is_no_virtual_environment(start: Start, workspace: Path):
    (workspace / "env").mkdir()
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert "virtual environment" not in str(talk.server.requests[0].messages)


PROGRAM_SETTINGS = {
    "fsmonitor": ("core.fsmonitor", "touch {mark}"),
    "filter": ("filter.x.clean", "touch {mark}; cat"),
    "process": ("filter.x.process", "touch {mark}; cat"),
    "hooks": ("core.hooksPath", "hooks"),
    "diff": ("diff.external", "touch {mark}"),
    "include": ("include.path", "../evil"),
    "pager": ("core.pager", "touch {mark}"),
    "signed": ("gpg.program", "touch {mark}"),
}


@pytest.mark.parametrize("setting", PROGRAM_SETTINGS)
async def test_no_program_of_a_repository_runs_outside_the_sandbox(start: Start, repo: Path, setting: str):
    mark = repo.parent / "mark"
    key, value = PROGRAM_SETTINGS[setting]
    git(repo, "config", key, value.format(mark=mark))
    (repo / ".gitattributes").write_text("* filter=x\n")
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert HEAD in str(talk.server.requests[0].messages)
    assert not mark.exists()


async def test_without_a_sandbox_only_the_branch_is_named(
    start: Start, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(sys, "platform", "plan9")
    git(repo, "config", "filter.x.clean", f"touch {tmp_path}/ran; cat")
    (repo / ".gitattributes").write_text("* filter=x\n")
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert "Git branch: main" in str(talk.server.requests[0].messages)
    assert not (tmp_path / "ran").exists()


async def test_git_hooks_of_the_repository_do_not_run(start: Start, repo: Path):
    mark = repo.parent / "mark"
    for name in ("post-index-change", "post-checkout", "fsmonitor-watchman"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    talk = await start([say("Yes.")])
    await talk.say("Hello")
    assert not mark.exists()


async def test_git_starts_only_with_the_first_prompt(start: Start, repo: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[str] = []

    async def describe(root: str, git: object, limit_s: float) -> str:
        started.append(root)
        return "looked"

    monkeypatch.setattr(workspace, "describe_repository", describe)
    talk = await start([say("Yes.")])
    await talk.client.get_info()
    await talk.client.snapshot()
    assert started == []
    await talk.say("Hello")
    assert started == [str(repo)]


async def test_status_of_a_slow_git_comes_with_a_later_request(
    start: Start, repo: Path, monkeypatch: pytest.MonkeyPatch
):
    ready = asyncio.Event()

    async def describe(root: str, git: object, limit_s: float) -> str:
        await ready.wait()
        return "Git at last"

    monkeypatch.setattr(workspace, "describe_repository", describe)
    talk = await start([say("Yes."), say("Again.")], timing=Timing(git_grace_s=0.01))
    await talk.say("Hello")
    ready.set()
    await asyncio.sleep(0)
    await talk.say("And now?")
    first, second = (str(request.messages) for request in talk.server.requests)
    assert "Git at last" not in first
    assert second.count("Git at last") == 1


async def test_session_closes_while_git_still_runs(start: Start, repo: Path, monkeypatch: pytest.MonkeyPatch):
    async def describe(root: str, git: object, limit_s: float) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(workspace, "describe_repository", describe)
    talk = await start([say("Yes.")], timing=Timing(git_grace_s=0.01))
    await talk.say("Hello")
    async with TimeLimit():
        await talk.client.close()


@pytest.fixture
async def own_git(workspace: Path, home: Path) -> AsyncIterator[Git]:
    async with open_git(load(str(workspace), os.environ), make_environment(cwd=str(workspace))) as found:
        yield found


async def test_git_is_stopped_at_the_time_limit(own_git: Git, repo: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(repo / "nobody-writes")
    monkeypatch.setattr(workspace, "_STATUS_ARGS", ("hash-object", "nobody-writes"))
    async with TimeLimit():
        assert await describe_repository(str(repo), own_git, limit_s=0.1) == ""


async def test_long_git_status_is_cut(own_git: Git, repo: Path):
    for number in range(100):
        (repo / f"file-{number:03}\x1b[2J.txt").write_text("")
    note = await describe_repository(str(repo), own_git, limit_s=30.0)
    assert "more lines" in note
    assert len(note) <= 2010
    assert "\x1b" not in note


async def test_agents_md_files_from_the_root_to_the_folder_are_in_the_prompt(start: Start, workspace: Path):
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
