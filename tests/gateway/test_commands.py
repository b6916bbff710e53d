"""Slash commands in chats."""

import asyncio
import threading
from pathlib import Path

from odin.testing import ScriptedServer, call, say
from tests.gateway.platform import Platform, run_gateway

NAMES = ["scripted-model", "other-model"]

SAID = {
    "/show channel": "Channel: chatty",
    "/list channels": "terminal\nchatty",
    "/show model": "Model: anthropic/scripted-model",
    "/show mode": "Mode: ask. Permission mode: dontAsk",
    "/list tools": "message",
    "/context": "tokens",
    "/switch model to anthropic/other-model": "other-model",
    "/stop": "Nothing is running.",
    "/reload": "Settings, skills and instruction files are read again",
    "/forget": "Removed",
    "/use nothing": "nothing",
    "/subagents": "No sub-agent",
    "/clear now": "A new conversation begins.",
    "/at 18:00 tea": "/at does not work in a chat. Ask for it in your own words.",
    "/nosuchcommand": "Unknown command /nosuchcommand.",
}


async def test_commands_of_owners(home: Path) -> None:
    platform = Platform(max_length=10_000)
    with ScriptedServer([say("first"), say("second")], models=NAMES) as model:
        async with run_gateway(model, platform, home):
            await platform.write("hi")
            await platform.wait_for(1)
            for number, (typed, said) in enumerate(SAID.items(), 2):
                await platform.write(typed)
                assert said in (await platform.wait_for(number))[-1], typed
            await platform.write("hello again")
            assert (await platform.wait_for(len(SAID) + 2))[-1] == "second"
    assert "first" not in str(model.requests[1].messages)
    assert [request.model for request in model.requests] == ["scripted-model", "scripted-model"]


async def test_stop_and_btw_do_not_wait(home: Path) -> None:
    """While a turn runs it can be stopped, and something else can be asked in a copy of the conversation."""
    platform, gate = Platform(), threading.Event()
    script = [say("noted"), say("never").hold(gate), say("42"), say("next")]
    with ScriptedServer(script) as model:
        async with run_gateway(model, platform, home):
            await platform.write("my number is 42")
            await platform.wait_for(1)
            await platform.write("long work")
            await asyncio.to_thread(model.wait_for, 2)
            await platform.write("/btw what is my number?")
            assert (await platform.wait_for(2))[1] == "42"
            await platform.write("/stop", sender="bob", chat="ann")
            assert (await platform.wait_for(3))[2] == "Stopped."
            await platform.write("and?")
            assert (await platform.wait_for(4))[3] == "next"
            gate.set()
    assert "my number is 42" in str(model.requests[2].messages)
    assert "what is my number" not in str(model.requests[3].messages)


async def test_background_work_reports_later(home: Path, workspace: Path) -> None:
    """What the model does by itself when a process has ended is sent to the chat, too."""
    platform = Platform(max_length=5000)
    script = [
        call("Spawn", {"command": "sleep 0.3; echo ready", "description": "build"}),
        *(say("it builds"), say("the build is ready")),
    ]
    with ScriptedServer(script) as model:
        async with run_gateway(model, platform, home):
            await platform.write(f"/bind {workspace}")
            await platform.write("build it")
            await platform.wait_until(lambda: any(part.buttons for part in platform.sent) or len(platform.sent) > 1)
            if platform.sent[-1].buttons:
                await platform.press("Yes")
            await platform.wait_until(lambda: platform.sent[-1].text == "the build is ready")
    assert "it builds" in platform.list_texts()
