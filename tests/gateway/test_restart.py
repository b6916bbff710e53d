"""What a gateway leaves behind, the next one finishes: each message is answered once."""

import asyncio
import io
import threading
from pathlib import Path

import pytest

from odin.core.errors import UsageError
from odin.gateway.channel import DeliveryFailed, DeliveryRefused, InboundMessage
from odin.gateway.lock import hold_lock
from odin.gateway.store import MAX_ATTEMPTS
from odin.testing import ScriptedServer, say
from tests.conftest import RunHere
from tests.gateway.platform import Platform, locate_gateway, open_store, run_gateway
from tests.gateway.test_chats import list_starts


async def test_an_interrupted_turn_is_continued(home: Path) -> None:
    platform, gate = Platform(), threading.Event()
    with ScriptedServer([say("never").hold(gate), say("now"), say("next")]) as model:
        async with run_gateway(model, platform, home):
            await platform.write("work", id="1")
            await platform.write("more", id="2")
            await asyncio.to_thread(model.wait_for, 1)
        gate.set()
        assert platform.list_texts() == []
        async with run_gateway(model, platform, home):
            assert await platform.wait_for(2) == ["now", "next"]
            assert (await platform.write("work", id="1")).admission == "duplicate"
        async with run_gateway(model, platform, home):
            assert await platform.wait_for(2) == ["now", "next"]
    assert len(model.requests) == 3
    ids = [start.id for start in list_starts()]
    assert len(ids) == len(set(ids)) == 3 and ids[1] == f"{ids[0]}.1"
    assert list_starts()[1].provenance == list_starts()[0].provenance


async def test_an_answer_that_was_not_stored_is_in_the_log(home: Path) -> None:
    """The gateway ended between the end of the turn and its answer: the model is not asked again."""
    platform = Platform()
    with ScriptedServer([say("once"), say("twice")]) as model:
        async with run_gateway(model, platform, home):
            await platform.write("hi")
            await platform.wait_for(1)
        store = open_store()
        store._db.execute("UPDATE inbox SET state = 'claimed'")  # as it was before the answer was stored
        store._db.execute("UPDATE chats SET cursor = -1, counted_usd = 0")
        store._db.execute("DELETE FROM outbox")
        store._db.execute("DELETE FROM costs")
        store.close()
        async with run_gateway(model, platform, home):
            assert await platform.wait_for(2) == ["once", "once"]
    assert len(model.requests) == 1


async def test_a_message_that_ends_the_gateway_again_and_again_is_given_up(home: Path) -> None:
    platform = Platform()
    with ScriptedServer([say("never")]) as model:
        store = open_store()
        poison = InboundMessage(channel="chatty", id="1", sender="ann", chat="ann", text="poison")
        store.add_message(poison, "prompt")
        for _ in range(MAX_ATTEMPTS):
            store.claim_next("chatty", "ann")
        async with run_gateway(model, platform, home):
            assert "It was tried 10 times" in (await platform.wait_for(1))[0]
        assert [item.id for item in store.list_failed()] == ["in-1"]
    assert model.requests == []


async def test_parts_that_cannot_be_sent(home: Path, run_here: RunHere) -> None:
    """A part is tried again; one that is refused, or may have been sent, is listed. Others are not held up."""
    platform, err = Platform(), io.StringIO()
    with ScriptedServer([say(f"answer {number}") for number in range(4)]) as model:
        async with run_gateway(model, platform, home, err=err):
            platform.fails = [DeliveryFailed("busy"), DeliveryFailed("busy")]
            await platform.write("0")
            assert await platform.wait_for(1) == ["answer 0"]
            for error in (DeliveryRefused("blocked"), ConnectionResetError("gone"), TimeoutError()):
                platform.fails = [error]
                await platform.write("more")
                await platform.wait_until(lambda: platform.fails == [])
            store = open_store()
            await platform.wait_until(lambda: len(store.list_failed()) == 3)
            assert await platform.wait_for(1) == ["answer 0"]
            code, out, _ = run_here("gateway", "failed")
            lines = out.splitlines()
            assert code == 0 and "not sent" in lines[1] and "may have been sent" in lines[2] and "answer 3" in lines[3]
            assert run_here("gateway", "failed", "--retry", "out-2")[0] == 0
            assert run_here("gateway", "failed", "--drop", "out-3") == (0, "out-3 is forgotten.\n", "")
            await platform.inbox.resend("chatty", "ann")  # pyright: ignore[reportOptionalMemberAccess]
            assert await platform.wait_for(2) == ["answer 0", "answer 1"]
            assert run_here("gateway", "failed", "--retry", "out-3")[0] == 2
            assert run_here("gateway", "failed", "--drop", "7")[2].startswith("odin: '7' is no failed item.")
    assert err.getvalue().count(" retry ") == 2


@pytest.mark.parametrize(
    ("is_idempotent", "texts", "failed"), [(True, ["hello"], []), (False, [], ["may have been sent"])]
)
async def test_a_part_that_was_being_sent(home: Path, is_idempotent: bool, texts: list[str], failed: list[str]) -> None:
    """With a key that the platform knows it is sent again; else nobody knows whether it was sent."""
    platform = Platform(is_idempotent=is_idempotent)
    platform.hangs = True
    with ScriptedServer([say("hello")]) as model:
        async with run_gateway(model, platform, home):
            await platform.write("hi")
            await platform.wait_until(lambda: not platform.hangs)
        async with run_gateway(model, platform, home):
            store = open_store()
            await platform.wait_until(lambda: bool(platform.sent or store.list_failed()))
    assert platform.list_texts() == texts
    assert [item.state for item in store.list_failed()] == failed


async def test_a_second_gateway_is_refused(home: Path, run_here: RunHere) -> None:
    platform = Platform()
    with ScriptedServer([]) as model:
        async with run_gateway(model, platform, home):
            await platform.wait_until(lambda: platform.inbox is not None)
            code, out, _ = run_here("gateway", "status")
            assert code == 0 and out.startswith("Running as process") and "chatty: connected" in out
            with pytest.raises(UsageError, match="A gateway is running already"), hold_lock(locate_gateway()):
                pass
    assert run_here("gateway", "status")[1] == "Not running. `odin gateway` starts it.\n"
