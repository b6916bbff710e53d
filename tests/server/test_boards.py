"""Boards: who may see and act on them, and what that of the gateway says."""

import os
from pathlib import Path

import pytest

from odin.core.errors import UsageError
from odin.core.op import Prompt
from odin.gateway.board import GatewayBoard
from odin.gateway.lock import hold_lock
from odin.remote.protocol import Board
from odin.testing import ScriptedServer, say
from tests.gateway.platform import locate_gateway, write_settings
from tests.gateway.stored import fill_store
from tests.server.served import serve

TOKEN = "8f3c1d0a9b7e4652a1c09d8e7f605142"


def read_texts(board: Board, heading: str) -> list[list[str]]:
    section = next(one for one in board.sections if one.heading == heading)
    return [[cell.text for cell in row.cells] for row in section.rows]


async def test_only_who_may_approve_sees_boards(home: Path, workspace: Path) -> None:
    """A board has texts of all chats of the user, whatever folders are served; a share has no token at all."""
    fill_store()
    with ScriptedServer([]) as model:
        async with serve(model, workspace, boards={"gateway": GatewayBoard(os.environ)}) as served:
            retry = {"name": "gateway", "action": "retry:in-2"}
            for right, status in (("", 401), ("no token", 401), ("view", 403), ("prompt", 403), ("approve", 200)):
                assert (await served.ask(right, "GET", "/boards")).status_code == status
                assert (await served.ask(right, "GET", "/board?name=gateway")).status_code == status
                assert (await served.ask(right, "POST", "/board", retry)).status_code == status
            listed = await served.ask("approve", "GET", "/boards")
            assert listed.json() == [{"name": "gateway", "title": "Gateway"}]
            assert "may approve' POST /board 200 BoardRequest" in served.log.read_text()
            for path, status in (("name=nothing", 404), ("", 400)):
                assert (await served.ask("approve", "GET", f"/board?{path}")).status_code == status
            for action in ("", "retry:in-2", "retry:in-x", "drop:../x", "format:disk", "run:nothing"):
                got = await served.ask("approve", "POST", "/board", {"name": "gateway", "action": action})
                assert got.status_code == 400 and got.json()["hint"], action


async def test_a_gateway_that_never_ran_has_no_board(home: Path, workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace, boards={"gateway": GatewayBoard(os.environ)}) as served:
            assert (await served.ask("approve", "GET", "/boards")).json() == []
            got = await served.ask("approve", "GET", "/board?name=gateway")
            assert got.status_code == 404 and "gateway" in got.json()["error"]
    assert not locate_gateway().exists()


async def test_sessions_that_are_not_served_are_not_linked(home: Path, workspace: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ScriptedServer([say("Hello.")]) as model:
        async with serve(model, elsewhere) as other:
            session = await other.open()
            await other.submit("approve", session, Prompt("p1", "Hello?"))
            await other.wait_until(session)
        fill_store(session=session)
        for folder, linked in ((elsewhere, [session]), (workspace, [])):
            async with serve(model, folder, boards={"gateway": GatewayBoard(os.environ)}) as served:
                board = (await served.ask("approve", "GET", "/board?name=gateway")).json()
                cells = [cell for one in board["sections"] for row in one.get("rows", ()) for cell in row["cells"]]
                assert [cell["session"] for cell in cells if "session" in cell] == linked


def test_the_board_of_the_gateway(home: Path) -> None:
    """What each section says, while no gateway runs and while one does, and what the actions change."""
    write_settings(home, channels={"chatty": {"token": TOKEN}})
    store = fill_store(text=f"Bearer {TOKEN} sk-ant-api03-{'a1B2' * 20}")
    source = GatewayBoard(os.environ)
    board = source.read()
    assert TOKEN not in str(board) and "a1B2" not in str(board)
    assert board.sections[0].facts == "Not running. `odin gateway` starts it."
    ((bob, *_), (ann, folder, mode, last, today)) = sorted(read_texts(board, "Chats"), reverse=True)
    assert (bob, ann, folder, mode, last, today) == ("chatty:bob", "chatty:ann", "~/garden", "edit", "now", "$0.25")
    failed, waiting = read_texts(board, "Inbox")
    assert failed[1] == "not answered" and "question" in failed[3] and "model failure" in failed[5]
    assert waiting[:3] == ["chatty:bob", "waiting", "now"]
    dead, late = read_texts(board, "Outbox")
    assert dead[1] == "not sent" and dead[4] == "1" and "dead platform" in dead[5]
    assert late[1] == "waiting" and late[4].startswith("1, next in ")
    ((name, when, *_),) = read_texts(board, "Schedules")
    assert (name, when) == ("evening", "0 18 * * *")
    assert [row[1] for row in read_texts(board, "Cost")] == ["$0.75"]

    ids = [action.id for one in board.sections for row in one.rows for action in row.actions]
    assert ids == ["retry:in-2", "drop:in-2", "retry:out-2", "drop:out-2", "run:evening"]
    with hold_lock(locate_gateway()):
        assert source.read().sections[0].facts == f"Running as process {os.getpid()}."
        assert source.act("retry:in-2") == "in-2 is tried again."
    assert source.act("drop:out-2") == "out-2 is forgotten."
    assert source.act("run:evening") == "evening runs when the gateway runs."
    assert [item.id for item in store.list_items("inbox")] == ["in-2", "in-3"] and store.list_failed() == []
    with pytest.raises(UsageError):
        source.act("drop:out-2")


def test_long_queues_are_cut(home: Path) -> None:
    store = fill_store()
    with store.transact() as db:
        rows = "INSERT INTO outbox (key, channel, chat, text, buttons, answers, state, due, created) VALUES"
        for number in range(450):
            db.execute(f"{rows} (?, 'chatty', 'bob', 'x', '[]', '', 'pending', 0, 0)", (f"k{number}",))
    outbox = next(one for one in GatewayBoard(os.environ).read().sections if one.heading == "Outbox")
    assert (len(outbox.rows), outbox.more, outbox.facts) == (200, 252, "451 waiting, 1 failed.")
    assert [action.label for action in outbox.rows[0].actions] == ["Retry", "Discard"]
