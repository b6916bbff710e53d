"""Telegram, against the stand-in for its Bot API."""

import asyncio
import io
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.config import Options, get_state_dir
from odin.core.errors import ConfigError
from odin.gateway.channels.telegram import TelegramChannel
from odin.gateway.channels.telegram_html import render_html
from odin.gateway.parts import split_text
from odin.gateway.service import Gateway, open_gateway
from odin.gateway.store import MAX_WAITING
from odin.testing import ScriptedServer, call, say
from tests.gateway.platform import locate_gateway, open_store, write_settings
from tests.gateway.telegram_stand_in import BOT, TOKEN, TelegramStandIn, deny
from tests.pictures import png
from tests.table import each

ANN, BOB = 7, 8


@asynccontextmanager
async def connect(
    model: ScriptedServer,
    telegram: TelegramStandIn,
    home: Path,
    *,
    token: str = TOKEN,
    err: io.StringIO | None = None,
    poll_s: float = 1.0,
    grace_s: float = 5.0,
    progress_s: float = 60.0,
    groups: tuple[str, ...] = (),
) -> AsyncGenerator[Gateway]:
    """Run a gateway with a bot whose owner is Ann, and to which Bob may write."""
    settings: dict[str, Any] = {"token": token, "owners": [str(ANN)], "allow_from": [str(BOB)], "groups": groups}
    write_settings(home, channels={"telegram": {**settings, "options": {"api_url": telegram.url}}})
    options = Options(env={**os.environ, **model.env("anthropic")})

    def make(setup: Any) -> TelegramChannel:
        return TelegramChannel(setup, poll_s=poll_s, grace_s=grace_s)

    async with open_gateway(
        options, err or io.StringIO(), built_in={"telegram": make}, first_pause_s=0.01, progress_s=progress_s
    ) as gateway:
        yield gateway


async def test_a_chat(home: Path) -> None:
    """Messages are answered once, in HTML; what a stranger writes is not, and a restart answers nothing twice."""
    telegram = TelegramStandIn()
    with ScriptedServer([say("**bold** & `x < y`\n\n- one\n- two"), say("second")]) as model:
        async with telegram.serve():
            async with connect(model, telegram, home):
                telegram.write("hello")
                telegram.write("let me in", sender=99)
                await telegram.wait_for(1)
                telegram.write("and?")
                await telegram.wait_for(2)
            polls = len(telegram.list_calls("getUpdates"))
            async with connect(model, telegram, home):
                await telegram.wait_until(lambda: len(telegram.list_calls("getUpdates")) > polls)
    assert telegram.list_texts() == ["bold & x < y\n\n• one\n• two", "second"]
    assert telegram.list_texts(99) == [] and telegram.complaints == []
    assert len(model.requests) == 2 and telegram.waiting == 0
    assert telegram.list_calls("sendChatAction")[0] == {"action": "typing", "chat_id": ANN}


async def test_an_update_is_stored_before_it_is_confirmed(home: Path) -> None:
    """Telegram repeats what was not confirmed; it is answered once."""
    telegram = TelegramStandIn()
    with ScriptedServer([say("one"), say("two")]) as model:
        async with telegram.serve():
            telegram.faults["getUpdates"] = ["lose", "cut", deny(502, "Bad Gateway")]
            telegram.write("hello")
            async with connect(model, telegram, home):
                await telegram.wait_for(1)
                for update in tuple(telegram._updates):  # the same update once more
                    telegram._updates.append(update)
                telegram.write("more", id=900)
                telegram.write("more", id=900)
                await telegram.wait_for(2)
    assert telegram.list_texts() == ["one", "two"] and len(model.requests) == 2


async def test_requests_have_buttons(home: Path, workspace: Path) -> None:
    telegram = TelegramStandIn()
    script = [call("WriteFile", {"file_path": "note.txt", "content": "hello\n"}), say("written")]
    with ScriptedServer(script) as model:
        async with telegram.serve(), connect(model, telegram, home):
            telegram.write(f"/bind {workspace}")
            await telegram.wait_for(1)
            telegram.write("note it")
            await telegram.wait_for(2)
            assert "+hello" in telegram.list_texts()[-1]
            telegram.press("Yes", sender=BOB, chat=ANN)
            telegram.press("Yes")
            await telegram.wait_until(lambda: telegram.list_texts()[-1] == "written")
            await telegram.wait_until(lambda: len(telegram.pressed) == 2)
    assert (workspace / "note.txt").read_text() == "hello\n"
    assert telegram.complaints == []


async def test_groups_and_edits(home: Path) -> None:
    telegram, gate = TelegramStandIn(), threading.Event()
    answers = [say("group"), say("command"), say("reply"), say("topic"), say("x").hold(gate), say("edited")]
    with ScriptedServer(answers) as model:
        async with telegram.serve(), connect(model, telegram, home, groups=("-5", "-6/3")):
            telegram.write("nobody is asked", chat=-5)
            telegram.write("@ODIN_test_bot, what is up?", chat=-5, sender=BOB)
            assert await telegram.wait_for(1, -5) == ["group"]
            telegram.write("/help@odin_test_bot", chat=-5)
            assert "/clear" in (await telegram.wait_for(2, -5))[1]
            said = {"message_id": 1, "chat": {"id": -5, "type": "supergroup"}, "from": BOT, "text": "group"}
            telegram.write("go on", chat=-5, reply_to_message=said)
            assert (await telegram.wait_for(3, -5))[2] == "command"
            other = said | {"from": {"id": 99, "is_bot": False, "first_name": "Eve"}, "text": "obey me"}
            telegram.write("@odin_test_bot is this true?", chat=-5, reply_to_message=other)
            assert (await telegram.wait_for(4, -5))[3] == "reply"
            telegram.write("@odin_test_bot here", chat=-6, message_thread_id=3, is_topic_message=True)
            await telegram.wait_for(1, -6)
            first = telegram.write("first")
            await asyncio.to_thread(model.wait_for, 5)
            telegram.write("changed", update="edited_message", id=first, edit_date=1_800_000_009)
            await telegram.wait_until(lambda: telegram.waiting == 0)
            gate.set()
            assert (await telegram.wait_for(1, ANN))[-1] in ("edited", "x")
    assert next(iter(telegram.chats[-6].values()))["message_thread_id"] == 3
    assert "> what is up?" in str(model.requests[0].messages)
    assert "is this true?\\n\\nIn reply to Eve:\\n\\n> obey me" in str(model.requests[2].messages)


async def test_files(home: Path) -> None:
    """Pictures, albums and documents are read up to a size; the rest is refused in a sentence."""
    telegram = TelegramStandIn()
    telegram.files = {"small": png(), "large": png(90, 90), "note": b"a note\n", "long": bytes(10_000_001)}
    photo = [{"file_id": "small", "file_unique_id": "a", "width": 9, "height": 9, "file_size": 70}]
    document = {"file_id": "note", "file_unique_id": "n", "file_name": "note.txt", "mime_type": "text/plain"}
    with ScriptedServer([say("seen"), say("read"), say("forwarded")]) as model:
        async with telegram.serve(), connect(model, telegram, home):
            telegram.write(sender=99, document=document)
            both = [*photo, {"file_id": "large", "file_unique_id": "b", "width": 90, "height": 90, "file_size": 80}]
            telegram.write(caption="compare", photo=both, media_group_id="1")
            telegram.write(photo=photo, media_group_id="1")
            assert await telegram.wait_for(1) == ["seen"]
            telegram.write(document=document)
            assert (await telegram.wait_for(2))[1] == "read"
            telegram.write(voice={"file_id": "v", "file_unique_id": "v", "duration": 1})
            telegram.write(document=document | {"file_size": 48_000_000, "file_name": "big.zip"})
            telegram.write(document=document | {"file_id": "long", "file_name": "unsized.bin"})
            telegram.write(document=document | {"file_id": "gone", "file_name": "gone.bin"})
            said = (await telegram.wait_for(6))[2:]
            origin = {"type": "user", "sender_user": {"id": 99, "first_name": "Eve", "is_bot": False}, "date": 1}
            telegram.write("/bind /", forward_origin=origin)
            assert (await telegram.wait_for(7))[6] == "forwarded"
    assert said == [
        "Odin reads text, pictures and documents, but no voice.",
        "The file big.zip cannot be used: it has 48.0 MB, and at most 10.0 MB are read.",
        "The file unsized.bin cannot be used: it is too large.",
        "The file gone.bin cannot be used: Telegram: Bad Request: invalid file_id.",
    ]
    assert [seen.path.rpartition("/")[2] for seen in telegram.seen if "/file/" in seen.path] == [
        *("large", "small", "note", "long")
    ]
    assert str(model.requests[0].messages).count("'type': 'image'") == 2
    assert "compare" in str(model.requests[0].messages) and "> a note" in str(model.requests[1].messages)
    assert "forwarded from Eve:\\n\\n> /bind /" in str(model.requests[2].messages)
    kept = locate_gateway() / "files/telegram"
    assert kept.stat().st_mode & 0o777 == 0o700 and all(one.stat().st_mode & 0o777 == 0o600 for one in kept.iterdir())


async def test_files_of_the_model(home: Path) -> None:
    """Pictures are sent as such, and as documents if Telegram does not take them."""
    telegram, names = TelegramStandIn(), ("a.png", "bad.png", 'odd "ü".txt')
    (home / "odin").mkdir()
    for name, content in zip(names, (png(), b"no picture", b"text\n"), strict=True):
        (home / "odin" / name).write_bytes(content)
    with ScriptedServer([call("message", {"content": "Here:", "files": names}), say("done")]) as model:
        async with telegram.serve(), connect(model, telegram, home):
            telegram.write("send them")
            sent = await telegram.wait_for(4)
    assert sent == ["Here:", "[photo a.png]", "[document bad.png]", "[document odd _ü_.txt]"]
    *_, last = telegram.chats[ANN].values()
    assert (last["content"], last["media_type"]) == (b"text\n", "text/plain")
    assert telegram.complaints == [
        "sendPhoto: {'ok': False, 'error_code': 400, 'description': 'Bad Request: IMAGE_PROCESS_FAILED'}"
    ]


async def test_what_telegram_refuses(home: Path) -> None:
    """It says when to come back; a chat that has blocked the bot is given up; entities it cannot read become plain."""
    telegram, err = TelegramStandIn(), io.StringIO()
    with ScriptedServer([say("*one*"), say("two"), say("three"), say("x" * 3000 + "\n\n" + "y" * 3000)]) as model:
        async with telegram.serve(), connect(model, telegram, home, err=err):
            await telegram.wait_until(lambda: telegram.list_calls("getUpdates") != [])
            telegram.faults["sendMessage"] = [
                deny(429, "Too Many Requests: retry after 1", retry_after=1),
                deny(400, "Bad Request: can't parse entities: Can't find end of the entity"),
            ]
            telegram.write("1")
            assert await telegram.wait_for(1) == ["*one*"]
            telegram.faults["sendMessage"] = [deny(403, "Forbidden: bot was blocked by the user")]
            telegram.write("2")
            store = open_store()
            await telegram.wait_until(lambda: len(store.list_failed()) == 1)
            telegram.faults["sendMessage"] = ["lose"]
            telegram.write("3")
            await telegram.wait_until(lambda: len(store.list_failed()) == 2)
            telegram.write("4")
            assert [text[0] for text in await telegram.wait_for(4)] == ["*", "t", "x", "y"]
    assert [item.state for item in store.list_failed()] == ["not sent", "may have been sent"]
    assert "in 1 s: Telegram: Too Many Requests" in err.getvalue()


async def test_polls_that_fail(home: Path) -> None:
    """A poll that does not end is given up, whatever is sent meanwhile; another poller and a wrong token are told."""
    telegram, err = TelegramStandIn(), io.StringIO()
    with ScriptedServer([say("here")]) as model:
        async with telegram.serve():
            telegram.faults["getUpdates"] = ["hang"]
            store = open_store()
            async with connect(model, telegram, home, err=err, poll_s=0.1, grace_s=0.2):
                await telegram.wait_until(lambda: " failed telegram" in err.getvalue())
                polls = len(telegram.list_calls("getUpdates"))
                await telegram.wait_until(lambda: len(telegram.list_calls("getUpdates")) > polls)
                assert store.list_values("channel:")["telegram"] == "Telegram did not answer within 0 s."
                telegram.faults["getUpdates"] = [deny(409, "Conflict: terminated by other getUpdates request")]
                await telegram.wait_until(lambda: "only one can receive the messages of a bot" in err.getvalue())
                telegram.write("hello")
                await telegram.wait_for(1)
            assert "Telegram did not answer within 0 s. It starts again in 0 s." in err.getvalue()
            wrong = TOKEN.replace("AAH", "AAX")
            async with connect(model, telegram, home, err=err, token=wrong):
                said = "Telegram does not accept the token. Get the token from @BotFather"
                await telegram.wait_until(lambda: store.list_values("channel:")["telegram"].startswith(said))
                await telegram.wait_until(lambda: "is not used until the next start" in err.getvalue())
    log = (get_state_dir(os.environ) / "logs/gateway.log").read_text() + err.getvalue()
    assert TOKEN not in log and wrong not in log and TOKEN.partition(":")[2] not in log
    assert len([seen for seen in telegram.seen if wrong in seen.path]) == 1
    with pytest.raises(ConfigError, match="is no token of a Telegram bot"):
        async with connect(ScriptedServer([]), telegram, home, token="a token with spaces in it"):
            pass


async def test_a_full_chat_holds_up_nothing_else(home: Path) -> None:
    """Who writes faster than Odin answers is told once; other chats and `/stop` still get through."""
    telegram, gate = TelegramStandIn(), threading.Event()
    with ScriptedServer([say("never").hold(gate), say("to Bob")]) as model:
        async with telegram.serve(), connect(model, telegram, home):
            telegram.write("work")
            await asyncio.to_thread(model.wait_for, 1)
            for number in range(MAX_WAITING + 3):
                telegram.write(f"more {number}")
            telegram.write("hello", sender=BOB)
            assert await telegram.wait_for(1, BOB) == ["to Bob"]
            telegram.write("/help")
            texts = await telegram.wait_for(2)
    gate.set()
    assert texts[0].startswith(f"{MAX_WAITING} messages of this chat wait") and "/stop: " in texts[1]


async def test_long_work_is_one_message(home: Path) -> None:
    telegram, gate = TelegramStandIn(), threading.Event()
    with ScriptedServer([say("done").hold(gate)]) as model:
        async with telegram.serve(), connect(model, telegram, home, progress_s=0.01):
            telegram.write("work")
            await telegram.wait_until(lambda: telegram.list_calls("editMessageText") != [])
            gate.set()
            texts = await telegram.wait_for(2)
    assert texts[0].startswith("Worked for ") and texts[1] == "done" and telegram.complaints == []


async def test_start_of_a_chat(home: Path) -> None:
    """The link `t.me/BOT?start=CODE` pairs; the button of a new chat shows the commands."""
    telegram = TelegramStandIn()
    with ScriptedServer([]) as model:
        async with telegram.serve(), connect(model, telegram, home):
            code = open_store().create_code("sender").replace("-", "")
            telegram.write(f"/start {code}", sender=99)
            assert "You are paired." in (await telegram.wait_for(1, 99))[0]
            telegram.write("/start", sender=99)
            assert "/help: " in (await telegram.wait_for(2, 99))[1]
    assert model.requests == []


@each(
    ("markdown", "html"),
    [
        ("# Title\n\ntext *a* **b** ~~c~~", "<b>Title</b>\n\ntext <i>a</i> <b>b</b> <s>c</s>"),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("```py\nif a < b:\n    pass\n```", '<pre><code class="language-py">if a &lt; b:\n    pass</code></pre>'),
        ("1. one\n2. two\n   - deep", "1. one\n2. two\n  • deep"),
        ("> a\n> > b", "<blockquote>a\n\nb</blockquote>"),
        ("[x](https://e.org/?a=1&b=2)", '<a href="https://e.org/?a=1&amp;b=2">x</a>'),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "<pre>| a | b |\n|---|---|\n| 1 | 2 |</pre>"),
        ("---", "———"),
        ("![alt](https://e.org/i.png)", "alt"),
    ],
)
def test_html(markdown: str, html: str) -> None:
    assert render_html(markdown) == html


def test_characters_that_count_twice() -> None:
    """Telegram counts in UTF-16: a text of emoji is cut earlier."""
    parts = split_text("😀" * 3000 + "\n\n" + "a" * 3000, 4000)
    assert "".join(parts) == "😀" * 3000 + "a" * 3000
    assert max(len(part.encode("utf-16-le")) // 2 for part in parts) <= 4000
