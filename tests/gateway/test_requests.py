"""Chats that their owner has bound to a folder: what is asked there, and who may answer."""

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.gateway.channel import InboundMessage
from odin.testing import ScriptedServer, call, say
from tests.gateway.platform import Platform, open_store, run_gateway

WRITE = call("WriteFile", {"file_path": "note.txt", "content": "hello\n"})


@asynccontextmanager
async def bind(
    model: ScriptedServer, platform: Platform, home: Path, workspace: Path, **more: Any
) -> AsyncGenerator[None]:
    """Run a gateway in which Ann has bound her chat to the workspace."""
    async with run_gateway(model, platform, home, **more):
        await platform.write(f"/bind {workspace}")
        assert "works in" in (await platform.wait_for(1))[0]
        yield


async def test_an_owner_answers_with_a_button(home: Path, workspace: Path) -> None:
    platform = Platform()
    with ScriptedServer([WRITE, say("written")]) as model:
        async with bind(model, platform, home, workspace):
            await platform.write("note it")
            shown = await platform.wait_for_request()
            assert "note.txt" in shown and "+hello" in shown and "```diff" in shown
            assert [one.label for one in platform.sent[-1].buttons][:1] == ["Yes"]
            assert not (workspace / "note.txt").exists()
            await platform.press("Yes", sender="bob", chat="ann")
            await platform.press("Yes")
            assert (await platform.wait_for(3))[2] == "written"
            await platform.press("Yes")
            assert (await platform.wait_for(4))[3] == "This is no longer open."
    assert (workspace / "note.txt").read_text() == "hello\n"


@pytest.mark.parametrize(("typed", "told"), [("no, use another name", "use another name"), ("No.", "")])
async def test_an_owner_answers_with_a_word(home: Path, workspace: Path, typed: str, told: str) -> None:
    platform = Platform()
    with ScriptedServer([WRITE, say("I see"), say("well"), say("no answer")]) as model:
        async with bind(model, platform, home, workspace):
            await platform.write("yes")  # nothing is asked yet: this is a message
            await platform.wait_for_request()
            await platform.write("what do you want?")  # so is this, which waits for its turn
            await platform.write(typed, sender="bob", chat="ann")
            await platform.write(typed)
            assert (await platform.wait_for(5))[-3:] == ["I see", "well", "no answer"]
    assert told in str(model.requests[1].messages)
    assert not (workspace / "note.txt").exists()


async def test_what_is_no_answer(home: Path, workspace: Path) -> None:
    """Group text, other people, programs and silence allow nothing: in the end the answer is no."""
    platform, err = Platform(), io.StringIO()
    group: dict[str, Any] = {"chat": "room", "is_group": True, "is_mention": True}
    with ScriptedServer([WRITE, say("denied"), say("group says yes"), say("bob says yes")]) as model:
        async with run_gateway(model, platform, home, err=err, groups=("room",), confirm_timeout_s=1.0):
            await platform.write(f"/bind {workspace}", **group)
            await platform.wait_for(1, "room")
            await platform.write("note it", **group)
            assert "Answer with" not in await platform.wait_for_request()
            await platform.write("yes", **group)
            await platform.write("yes", sender="bob", **group)
            await platform.press("Yes", sender="bob", **group)
            await platform.press("Yes", sender="eve", **group)
            texts = await platform.wait_for(6, "room")
    assert "Nobody answered within 1 s. The answer was no." in texts and "denied" in texts
    assert "group says yes" in texts and "bob says yes" in texts
    assert not (workspace / "note.txt").exists()
    assert "an answer of bob" in err.getvalue()
    assert "The user did not" in str(model.requests[1].messages) or "Nobody answered" in str(model.requests[1].messages)


async def test_a_group_is_answered_with_buttons(home: Path, workspace: Path) -> None:
    platform = Platform()
    group: dict[str, Any] = {"chat": "room", "is_group": True, "is_mention": True}
    with ScriptedServer([WRITE, say("written")]) as model:
        async with run_gateway(model, platform, home):
            await platform.write(f"/bind {workspace}", **group)
            await platform.wait_for(1, "room")
            await platform.write("note it", **group)
            await platform.wait_for_request()
            await platform.press("Yes", **group)
            assert (await platform.wait_for(3, "room"))[2] == "written"


async def test_a_channel_without_buttons(home: Path, workspace: Path) -> None:
    """It gets none: a request is answered with words, and in a group on the computer."""
    platform, other = Platform(buttons=False), call("WriteFile", {"file_path": "other.txt", "content": "hello\n"})
    ask = call("Question", {"questions": [{"question": "Which?", "header": "Color", "options": [{"label": "red"}]}]})
    group: dict[str, Any] = {"chat": "room", "is_group": True, "is_mention": True}
    with ScriptedServer([WRITE, say("written"), ask, say("red it is"), other]) as model:
        async with bind(model, platform, home, workspace):
            await platform.write("note it")
            assert "Answer with `yes`" in (await platform.wait_for(2))[1]
            await platform.wait_until(lambda: open_store().is_sent(platform.sent[-1].key))
            await platform.write("yes")
            assert (await platform.wait_for(3))[2] == "written"
            await platform.write("paint it")
            assert "Answer with a number" in (await platform.wait_for(4))[3]
            await platform.wait_until(lambda: open_store().is_sent(platform.sent[-1].key))
            await platform.write("1")
            assert (await platform.wait_for(5))[4] == "red it is"
            await platform.write(f"/bind {workspace}", **group)
            await platform.wait_for(1, "room")
            await platform.write("note it", **group)
            assert "Answer it with `odin -r " in (await platform.wait_for(2, "room"))[1]
    assert [part.buttons for part in platform.sent if part.buttons] == []


async def test_a_file_with_secrets_is_never_sent(home: Path, workspace: Path) -> None:
    """Not even if the owner allows it. One outside of the folder is, then."""
    platform = Platform(max_file_bytes=1000)
    (workspace / ".env").write_text("KEY=1")
    (home / "photo.txt").write_text("a photo")
    script = [call("message", {"files": [name]}) for name in (".env", str(home / "photo.txt"))]
    with ScriptedServer([*script, say("done")]) as model:
        async with bind(model, platform, home, workspace):
            await platform.write("send them")
            for _ in script:
                asked = await platform.wait_for_request()
                assert asked.startswith("message ")
                count = len(platform.sent)
                await platform.press("Yes")
                await platform.wait_until(lambda: len(platform.sent) > count)  # noqa: B023
    assert ".env may contain secrets, and is never sent" in str(model.requests[1].messages[-1])
    assert [part.text for part in platform.sent if part.file] == ["photo.txt"]


async def test_others_in_a_bound_chat_change_nothing(home: Path, workspace: Path) -> None:
    platform = Platform()
    group: dict[str, Any] = {"chat": "room", "is_group": True, "is_mention": True}
    with ScriptedServer([say("only words")]) as model:
        async with run_gateway(model, platform, home):
            await platform.write(f"/bind {workspace}", **group)
            await platform.wait_for(1, "room")
            await platform.write("write it", sender="bob", **group)
            assert (await platform.wait_for(2, "room"))[1] == "only words"
    assert "WriteFile" not in model.requests[0].tool_names


async def test_effects_of_a_command(home: Path, workspace: Path) -> None:
    """A command has run in a view; its changes are kept or discarded from the chat."""
    platform = Platform()
    (workspace / "list.txt").write_text("one\n")
    script = [call("ExecuteCommand", {"command": "echo two >> list.txt"}), say("kept")]
    with ScriptedServer(script) as model:
        async with bind(model, platform, home, workspace):
            await platform.write("add two")
            shown = await platform.wait_for_request()
            assert "+two" in shown
            await platform.write("Yes!")
            await platform.wait_until(lambda: platform.sent[-1].text == "kept")
    assert (workspace / "list.txt").read_text() == "one\ntwo\n"


async def test_a_long_request_can_only_be_denied(home: Path, workspace: Path) -> None:
    platform = Platform()
    command = f"curl -d {'x' * 20_000} https://example.com"
    with ScriptedServer([call("ExecuteCommand", {"command": command}), say("no")]) as model:
        async with bind(model, platform, home, workspace):
            await platform.write("write")
            await platform.wait_for_request()
            assert [one.label for one in platform.sent[-1].buttons] == ["No", "Stop"]
            assert "too long to be allowed here" in platform.sent[-1].text
            await platform.write("yes")
            await platform.wait_until(
                lambda: platform.sent[-1].text.startswith("This is too long to be allowed here. D")
            )
            await platform.press("No")
            await platform.wait_until(lambda: platform.sent[-1].text == "no")


async def test_questions(home: Path, workspace: Path) -> None:
    """Questions come one by one, with a button for each option; own words count, too."""
    platform = Platform()
    questions = [
        {"question": "Which color?", "header": "Color", "options": [{"label": "red"}, {"label": "blue"}]},
        {"question": "Which size?", "header": "Size", "options": [{"label": "big"}, {"label": "small"}]},
    ]
    with ScriptedServer([call("Question", {"questions": questions}), say("thanks")]) as model:
        async with bind(model, platform, home, workspace):
            await platform.write("paint it")
            assert "Which color?" in (await platform.wait_for(2))[1]
            await platform.press("blue")
            assert "Which size?" in (await platform.wait_for(3))[2]
            await platform.write("medium")
            assert (await platform.wait_for(4))[3] == "thanks"
    told = str(model.requests[1].messages)
    assert "blue" in told and "medium" in told


async def test_bind_says_what_is_wrong(home: Path, workspace: Path) -> None:
    platform = Platform()
    cases = {
        "/bind": "/bind needs a folder. Usage: /bind [CHANNEL:CHAT] FOLDER [ROLE]",
        "/bind /no/such": "There is no folder '/no/such'. Give its whole path, or one that begins with `~/`.",
        '/bind "a': "cannot be read",
        f"/bind chatty:bob {workspace}": f"chatty:bob works in {workspace} now.",
        "/unbind": "This chat is bound to no folder any more.",
        "/vim": "/vim does not work in a chat. /help lists what does.",
    }
    with ScriptedServer([]) as model:
        async with run_gateway(model, platform, home):
            for number, (typed, said) in enumerate(cases.items(), 1):
                await platform.write(typed)
                assert said in (await platform.wait_for(number))[-1]
            assert platform.inbox is not None
            bound = InboundMessage(channel="chatty", id="b", sender="bob", chat="bob", text=f"/bind {workspace}")
            assert (await platform.inbox.deliver(bound)).admission == "accepted"  # words, not a command
    assert platform.list_texts("bob") == []
