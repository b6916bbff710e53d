"""A client without `approve` brings no file from outside the project into a prompt: not in its own, not in others'."""

import threading
from pathlib import Path

from odin.core.event import TurnEnded
from odin.core.message import Attachment
from odin.core.op import ChangePrompt, Op, Prompt
from odin.core.rights import attribute
from odin.host.manager import SessionManager
from odin.testing import ScriptedServer, say
from tests.host.test_manager import make_options
from tests.waiting import TimeLimit

SECRET = "what the file outside says"


async def is_read(workspace: Path, ops: list[Op], turns: int) -> bool:
    """True if the model reads the file after these ops. The first prompt is answered when all were submitted."""
    gate = threading.Event()
    with ScriptedServer([say("ok").hold(gate), *[say("ok")] * (turns - 1)]) as server:
        client = await SessionManager().open(make_options(server, workspace))
        events = client.stream_events()
        for op in ops:
            assert await client.submit(op)
        gate.set()
        async with TimeLimit():
            async for envelope in events:
                turns -= isinstance(envelope.event, TurnEnded)
                if not turns:
                    break
        await client.close()
        return any(SECRET.encode() in request.body for request in server.requests)


async def test_files_outside_the_project(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text(SECRET)
    mention = f"read @{outside}"
    queued = [Prompt("a", "one", "edit_mode"), Prompt("b", "two", "edit_mode")]
    changes = ChangePrompt("b", mention), ChangePrompt("b", attachments=(Attachment(str(outside)),))
    for right in ("prompt", "approve"):
        found = [await is_read(workspace, [attribute(Prompt("a", mention, "edit_mode"), right, "phone")], 1)]
        found += [await is_read(workspace, [*queued, attribute(change, right, "phone")], 2) for change in changes]
        assert found == [right == "approve"] * 3, right


async def test_a_change_stays_marked(workspace: Path, tmp_path: Path) -> None:
    """Also if one who may approve changes the prompt again. To change only the delivery marks nothing."""
    outside = tmp_path / "outside.txt"
    outside.write_text(SECRET)
    mention = f"read @{outside}"
    queued = [Prompt("a", "one", "edit_mode"), Prompt("b", mention, "edit_mode")]
    changed = attribute(ChangePrompt("b", f"{mention} now"), "prompt", "phone")
    again = attribute(ChangePrompt("b", f"{mention} please", source="user"), "approve", "phone")
    assert not await is_read(workspace, [*queued, changed, again], 2)
    assert await is_read(workspace, [*queued, attribute(ChangePrompt("b", delivery="queue"), "prompt", "phone")], 2)
