"""Slack, against the stand-in for its API and its sockets."""

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.config import Options, get_state_dir
from odin.core.errors import ConfigError
from odin.gateway.channels.slack import SlackChannel
from odin.gateway.service import Gateway, open_gateway
from odin.gateway.store import make_key
from odin.testing import ScriptedServer, call, say
from tests.gateway.http_stand_in import Reply
from tests.gateway.platform import locate_gateway, open_store, write_settings
from tests.gateway.slack_stand_in import APP_TOKEN, BOT, TOKEN, SlackStandIn
from tests.pictures import png


@asynccontextmanager
async def connect(
    model: ScriptedServer,
    slack: SlackStandIn,
    home: Path,
    *,
    token: str = TOKEN,
    app_token: str = APP_TOKEN,
    err: io.StringIO | None = None,
    ping_s: float = 20.0,
    progress_s: float = 60.0,
    groups: tuple[str, ...] = (),
) -> AsyncGenerator[Gateway]:
    """Run a gateway with an app whose owner is Ann, and to which Bob may write."""
    options = {"app_token": app_token, "api_url": f"{slack.url}/api"}
    people = {"owners": ["UANN"], "allow_from": ["UBOB"], "groups": groups}
    write_settings(home, channels={"slack": {"token": token, **people, "options": options}})

    def make(setup: Any) -> SlackChannel:
        return SlackChannel(setup, ping_s=ping_s, short_s=0.0)

    async with open_gateway(
        Options(env={**os.environ, **model.env("anthropic")}),
        err or io.StringIO(),
        built_in={"slack": make},
        first_pause_s=0.01,
        progress_s=progress_s,
    ) as gateway:
        yield gateway


async def test_a_chat(home: Path) -> None:
    """A message is acknowledged when it is stored, answered once however often it comes, and as Markdown."""
    slack = SlackStandIn()
    early: list[str] = []
    with ScriptedServer([say("**bold** <!channel> & `x`"), say("second"), say("third")]) as model:
        async with slack.serve():
            async with connect(model, slack, home):
                await slack.wait_until(lambda: bool(slack.sockets))
                slack.on_ack = lambda envelope: early.append(envelope) if not open_store().list_chats() else None
                ts = await slack.write("hello &amp; <https://e.org|a link>, <@UBOB>")
                await slack.wait_for(1)
                await slack.write("hello", ts=ts)
                await slack.write("let me in", user="UEVE", channel="DEVE")
                await slack.write("from a bot", bot_id="B1")
                await slack.wait_until(lambda: slack.unacknowledged == 0)
                slack.keeps_quiet = True
                await slack.write("again")
                await slack.wait_for(2)
                slack.keeps_quiet = False
                await slack.disconnect("refresh_requested")
                await slack.wait_until(lambda: slack.unacknowledged == 0)
                assert len(slack.acks) == 5
            await slack.write("while you were away")
            async with connect(model, slack, home):
                await slack.wait_for(3)
    assert slack.list_texts() == ["**bold** <\u200b!channel> & `x`", "second", "third"] and early == []
    assert slack.list_texts("DEVE") == [] and slack.complaints == [] and len(model.requests) == 3
    assert "hello & a link (https://e.org), @UBOB" in str(model.requests[0].messages)
    assert [seen.body for seen in slack.seen if seen.path.endswith("users.info")] == [b"user=UANN", b"user=UANN"]


async def test_files_that_are_sent(home: Path) -> None:
    """In a thread, too. What fails before the file is in the chat, is tried again."""
    slack = SlackStandIn()
    (home / "odin").mkdir()
    (home / "odin/a.txt").write_text("hello")
    with ScriptedServer([call("message", {"files": ["a.txt"]}), say("done")]) as model:
        async with slack.serve(), connect(model, slack, home):
            slack.faults["getUploadURLExternal"] = [Reply(500, b""), Reply(429, b"", {"retry-after": "0"})]
            slack.faults["/upload/F3"] = [Reply(503, b"")]
            await slack.write("send it", thread_ts="1700000000.000001")
            assert await slack.wait_for(1) == ["[a.txt: hello]"]
    assert [one["thread_ts"] for one in slack.channels["DANN"].values()] == ["1700000000.000001"]
    assert slack.complaints == [] and open_store().list_failed() == []


async def test_requests_have_buttons(home: Path, workspace: Path) -> None:
    slack = SlackStandIn()
    script = [call("WriteFile", {"file_path": "note.txt", "content": "hello\n"}), say("written")]
    with ScriptedServer(script) as model:
        async with slack.serve(), connect(model, slack, home):
            command = {"command": "/odin", "text": f"bind {workspace}", "user_id": "UANN", "trigger_id": "t1"}
            slack.channels["DANN"] = {}
            await slack.push("slash_commands", {**command, "channel_id": "DANN"})
            assert "works in" in (await slack.wait_for(1))[0]
            await slack.write("note it")
            assert "+hello" in (await slack.wait_for(2))[1]
            await slack.press("Yes", user="UBOB")
            await slack.press("Yes")
            assert (await slack.wait_for(3))[2] == "written"
    assert (workspace / "note.txt").read_text() == "hello\n" and slack.complaints == []


async def test_channels_threads_and_edits(home: Path) -> None:
    slack, gate = SlackStandIn(), threading.Event()
    answers = [say("one"), say("in the thread"), say("x").hold(gate), say("edited")]
    with ScriptedServer(answers) as model:
        async with slack.serve(), connect(model, slack, home, groups=("C1",)):
            await slack.write("nobody is asked", channel="C1")
            text = f"<@{BOT}> what is up?"
            ts = await slack.write(text, channel="C1", user="UBOB")
            await slack.write(text, channel="C1", user="UBOB", type="app_mention", ts=ts)  # the same as two events
            assert await slack.wait_for(1, "C1") == ["one"]
            await slack.write(f"<@{BOT}> and here?", channel="C1", thread_ts=ts)
            assert await slack.wait_for(2, "C1") == ["one", "in the thread"]
            first = await slack.write("first")
            await asyncio.to_thread(model.wait_for, 3)
            old = {"type": "message", "user": "UANN", "text": "first", "ts": first}
            new = {**old, "text": "changed", "edited": {"user": "UANN", "ts": "1800000009.000001"}}
            more: dict[str, Any] = {"subtype": "message_changed", "message": new, "previous_message": old}
            await slack.write("", **more)
            more["previous_message"] = new  # a preview was added
            await slack.write("", **more)
            await slack.wait_until(lambda: slack.unacknowledged == 0)
            gate.set()
            assert (await slack.wait_for(1))[-1] in ("x", "edited")
    assert [message["thread_ts"] for message in slack.channels["C1"].values()] == ["", ts]
    assert "Bob wrote this" in str(model.requests[0].messages) and "> what is up?" in str(model.requests[0].messages)
    assert "what is up" not in str(model.requests[1].messages)
    store = open_store()
    assert store.has_message(make_key("slack", "T31", f"DANN:{first}:1800000009.000001"))


async def test_files(home: Path) -> None:
    slack = SlackStandIn()
    slack.files = {"it.png": png(), "note.txt": b"a note\n"}
    with ScriptedServer([say("seen")]) as model:
        async with slack.serve(), connect(model, slack, home):
            base = f"{slack.url}/files"
            image = {"id": "F1", "name": "it.png", "mimetype": "image/png", "size": 70}
            given = [
                {**image, "url_private_download": f"{base}/it.png", "url_private": "https://example.org/other"},
                {"id": "F2", "name": "note.txt", "mimetype": "text/plain", "url_private": f"{base}/note.txt"},
                {"id": "F3", "name": "gone.txt", "mimetype": "text/plain", "url_private": f"{base}/gone.txt"},
                {"id": "F4", "name": "far.txt", "mimetype": "text/plain", "url_private": "https://example.org/far.txt"},
                {"id": "F5", "name": "a.mp3", "mimetype": "audio/mpeg", "url_private": f"{base}/a.mp3"},
            ]
            await slack.write("look", subtype="file_share", files=given)
            assert await slack.wait_for(2) == [
                "Odin reads text, pictures and files, but no audio.\n"
                "The file gone.txt cannot be used: Slack answered with 302.\n"
                "The file far.txt cannot be used: it is not on Slack.",
                "seen",
            ]
    assert "'type': 'image'" in str(model.requests[0].messages) and "> a note" in str(model.requests[0].messages)
    assert len(list((locate_gateway() / "files/slack").iterdir())) == 2


async def test_what_slack_refuses(home: Path) -> None:
    slack, err = SlackStandIn(), io.StringIO()
    with ScriptedServer([say("one"), say("two"), say("three"), say("four")]) as model:
        async with slack.serve(), connect(model, slack, home, err=err):
            limited = Reply(429, {"ok": False, "error": "ratelimited"}, {"retry-after": "1"})
            no_markdown = Reply(200, {"ok": False, "error": "invalid_blocks"})
            slack.faults["chat.postMessage"] = [limited, no_markdown]
            await slack.write("1")
            assert await slack.wait_for(1) == ["one"]
            assert next(iter(slack.channels["DANN"].values()))["blocks"][0]["type"] == "section"
            store = open_store()
            for at, fault in enumerate((Reply(200, {"ok": False, "error": "is_archived"}), "lose"), 1):
                slack.faults["chat.postMessage"] = [fault]  # pyright: ignore[reportArgumentType]
                await slack.write("more")
                await slack.wait_until(lambda at=at: len(store.list_failed()) == at)
            await slack.write("4")
            assert (await slack.wait_for(3))[2] == "four"
    assert [item.state for item in store.list_failed()] == ["not sent", "may have been sent"]
    assert "in 1 s: Slack: ratelimited (chat.postMessage)." in err.getvalue()


async def test_connections_that_fail(home: Path) -> None:
    """A socket that is dead is noticed, whatever is sent over HTTP; wrong tokens and a switched-off app are told."""
    slack, err = SlackStandIn(), io.StringIO()
    with ScriptedServer([say("here")]) as model:
        async with slack.serve():
            slack.faults["apps.connections.open"] = ["cut", Reply(503, b"<html>")]
            async with connect(model, slack, home, err=err, ping_s=0.2):
                await slack.wait_until(lambda: bool(slack.sockets))
                slack.sockets[-1].transport.pause_reading()  # pings are not answered any more
                await slack.wait_until(lambda: err.getvalue().count(" failed slack") == 3)
                await slack.wait_until(lambda: bool(slack.sockets))
                await slack.write("hello")
                await slack.wait_for(1)
                await slack.disconnect("link_disabled")
                await slack.wait_until(lambda: "Socket mode is switched off" in err.getvalue())
            store = open_store()
            for token, app_token in ((f"{TOKEN}X", APP_TOKEN), (TOKEN, f"{APP_TOKEN}X")):
                async with connect(model, slack, home, err=err, token=token, app_token=app_token):
                    key = "slack.token" if token != TOKEN else "slack.options.app_token"
                    said = f"Check gateway.channels.{key} and the scopes of the app."
                    await slack.wait_until(lambda said=said: store.list_values("channel:")["slack"].endswith(said))
    log = (get_state_dir(os.environ) / "logs/gateway.log").read_text() + err.getvalue()
    assert TOKEN not in log and APP_TOKEN not in log
    assert "invalid_auth (auth.test)" in log and "invalid_auth (apps.connections.open)" in log
    for key in ("token", "app_token"):
        given = {"token": TOKEN, "app_token": APP_TOKEN, key: "something else entirely"}
        with pytest.raises(ConfigError, match=f"{key} is not set"):
            async with connect(ScriptedServer([]), slack, home, token=given["token"], app_token=given["app_token"]):
                pass


async def test_a_package_that_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "odin.gateway.channels.slack", None)
    write_settings(home, channels={"slack": {"token": TOKEN}})
    with pytest.raises(ConfigError, match=r"Slack needs a package: pip install 'odin-code\[slack\]'"):
        async with open_gateway(Options(env={**os.environ}), io.StringIO()):
            pass


async def test_long_work_is_one_message(home: Path) -> None:
    slack, gate = SlackStandIn(), threading.Event()
    with ScriptedServer([say("done").hold(gate)]) as model:
        async with slack.serve(), connect(model, slack, home, progress_s=0.01):
            await slack.write("work")
            await slack.wait_until(lambda: any(seen.path.endswith("chat.update") for seen in slack.seen))
            gate.set()
            texts = await slack.wait_for(2)
    assert texts[0].startswith("Worked for ") and texts[1] == "done" and slack.complaints == []
