"""Chats: who is answered, in which order, and what the model is told."""

from pathlib import Path

from odin.testing import ScriptedServer, say
from tests.gateway.platform import Platform, run_gateway


async def test_messages_are_answered(home: Path) -> None:
    platform = Platform()
    with ScriptedServer([say("hello Ann"), say("again")]) as model:
        async with run_gateway(model, platform, home):
            await platform.write("hi")
            assert await platform.wait_for(1) == ["hello Ann"]
            await platform.write("more")
            assert await platform.wait_for(2) == ["hello Ann", "again"]
    assert "hi" in str(model.requests[0].body)
