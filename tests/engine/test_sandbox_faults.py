"""Sandboxes that cannot be created at some moment: nothing becomes real that nobody has approved."""

import os
import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec.structs import replace

from odin.core.call_events import PermissionAnswered, PermissionAsked, ToolEnded
from odin.core.event import TurnEnded
from odin.core.op import AddRule
from odin.core.tool import Args, Tool, ToolContext, ToolOutput
from odin.sandbox.probe import SandboxCandidate
from odin.sandbox.sandbox import Sandbox
from odin.testing import call, reply, say

from .conftest import Start, Talk, get_parts
from .test_command_views import ASKING, DISCARD, KEEP

BWRAP = """#!/bin/sh
if read -r left 2>/dev/null <{file}; then
    if [ "$left" -gt 1 ]; then echo $((left - 1)) >{file}; else rm {file}; fi
    echo "bwrap: Can't find source path /run/gone: No such file or directory" >&2
    exit 1
fi
exec {bwrap} "$@"
"""

TOUCH = call("ExecuteCommand", {"command": "touch made"})


class FaultyBubblewrap:
    """A `bwrap` that fails as often as it is told to, as it does if a path vanishes while it hides that path."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "failures"
        folder.mkdir()
        (folder / "bwrap").write_text(BWRAP.format(file=self._file, bwrap=shutil.which("bwrap")))
        (folder / "bwrap").chmod(0o755)
        self.env = {"PATH": f"{folder}:{os.environ['PATH']}"}

    def fail(self, times: int) -> None:
        self._file.write_text(f"{times}\n")

    @property
    def has_failed(self) -> bool:
        """Whether it has failed as often as it was told to."""
        return not self._file.exists()


@pytest.fixture
def bubblewrap(home: Path) -> FaultyBubblewrap:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    return FaultyBubblewrap(home / "bin")


def get_sandbox(talk: Talk) -> Sandbox:
    return get_parts(talk.client).permissions.sandbox.get()


async def test_sandbox_that_a_later_try_creates_is_one_with_views(start: Start, bubblewrap: FaultyBubblewrap) -> None:
    talk = await start([], env=bubblewrap.env)
    bubblewrap.fail(2)
    await get_sandbox(talk).examine()
    assert get_sandbox(talk).find_level() == "view"
    assert bubblewrap.has_failed
    assert get_sandbox(talk).problem == ""


async def test_effects_are_asked_about_if_a_later_try_creates_the_sandbox(
    start: Start, workspace: Path, bubblewrap: FaultyBubblewrap
) -> None:
    """That views work is known from the first session, so the second creates its sandbox only when the command runs."""
    first = await start([TOUCH, say("ok")], env=bubblewrap.env, **ASKING)
    first.answers = [DISCARD]
    await first.say("go")
    await first.client.close()
    second = await start([TOUCH, say("ok")], env=bubblewrap.env, **ASKING)
    bubblewrap.fail(2)
    second.answers = [DISCARD]
    await second.say("go")
    assert bubblewrap.has_failed
    assert [asked.effects is not None for asked in second.all(PermissionAsked)] == [True]
    assert not (workspace / "made").exists()


async def test_open_request_stays_open_if_the_sandbox_does_not_work_any_more(
    start: Start, workspace: Path, bubblewrap: FaultyBubblewrap
) -> None:
    """Without a sandbox the rules ask before a command runs. That is no answer to what this one wrote in its view."""
    config = {"sandbox": {"backend": "bubblewrap"}}
    talk = await start([TOUCH, say("ok")], env=bubblewrap.env, config=config, **ASKING)
    await talk.submit("go")
    await talk.until_live(PermissionAsked)
    bubblewrap.fail(1000)
    await get_sandbox(talk).probe(force=True)
    assert get_sandbox(talk).find_level() == "none"
    await talk.client.submit(AddRule("Read(other)", "allow", "session"))
    assert not await talk.recorded_events(PermissionAnswered)
    assert not (workspace / "made").exists()
    (asked,) = talk.all(PermissionAsked)
    await talk.client.submit(replace(KEEP, ask_id=asked.ask_id))
    await talk.until_live(TurnEnded)
    assert (workspace / "made").exists()


class LoseSandboxTool(Tool[Args]):
    """Stands for whatever makes Odin find out, between two commands of one reply, that no sandbox works any more."""

    name = "LoseSandbox"
    kind = "read"
    short = "Read."
    args: ClassVar[type[Args]] = Args
    exclusive = True
    sandbox: Sandbox

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        values = vars(self.sandbox)
        values["_probe"] = replace(values["_probe"], candidate=SandboxCandidate("none"))
        return ToolOutput("lost")


@pytest.mark.parametrize("command", ["touch made", "ls", "touch made ../beside"])
async def test_command_that_was_evaluated_for_a_sandbox_does_not_run_without_one(
    start: Start, workspace: Path, command: str
) -> None:
    """Whether it would be asked about afterwards, not at all, or was before."""
    tool = LoseSandboxTool()
    script = [reply(calls=[call("LoseSandbox", {}), call("ExecuteCommand", {"command": command})]), TOUCH, say("ok")]
    talk = await start(script, own_tools=[tool], **ASKING)
    tool.sandbox = get_sandbox(talk)
    talk.answers = [*([KEEP] if "beside" in command else []), DISCARD]
    await talk.say("go")
    assert [ended.text for ended in talk.all(ToolEnded)][1].startswith("Not run: No sandbox works on this machine")
    assert not (workspace / "made").exists()
    assert not (workspace.parent / "beside").exists()
    last = talk.all(PermissionAsked)[-1]
    assert last.effects is None
    assert last.sandbox.startswith("no sandbox")
