"""Boards on the page: that of the gateway with all that it has, and any other with hostile texts."""

import os
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from odin.gateway.board import GatewayBoard
from odin.remote.protocol import Board, BoardAction, BoardCell, BoardRow, BoardSection
from odin.testing import ScriptedServer, say
from tests.gateway.stored import fill_store
from tests.page.conftest import OpenVisit, log_in, play
from tests.page.test_hostile_page import BAD, EVIL
from tests.page.visit import HandName
from tests.server.served import serve


@pytest.mark.parametrize("hand", ["keyboard", "touch"])
async def test_the_gateway(hand: HandName, home: Path, open_visit: OpenVisit, workspace: Path) -> None:
    """It is reached from the list of sessions and from a session, shows the five things, and stays up to date."""
    boards = {"gateway": GatewayBoard(os.environ)}
    with ScriptedServer(play([say("At six.")])) as model:
        async with serve(model, workspace, boards=boards) as served, open_visit(served.url, hand) as visit:
            await visit.pair(served.store)
            await expect(visit.page.get_by_role("navigation", name="Boards")).to_have_count(0)
            await visit.press("New session")
            await visit.send("When do I water?")
            await visit.shows("At six.")
            await visit.finish()
            session = visit.page.url.rpartition("/")[2]
            store = fill_store(session=session)
            await visit.command("/boards", "Boards")
            await visit.hand.press(visit.option("Gateway"))

            await expect(visit.page).to_have_title("Gateway")
            await visit.shows("chatty:ann", "~/garden", "edit", "$0.25", place=visit.region("Chats"))
            await visit.shows("not answered", "failed question", "model failure", place=visit.region("Inbox"))
            await visit.shows("waiting", "ann: Water: waiting question", place=visit.region("Inbox"))
            await visit.shows("not sent", "dead answer", "dead platform", "next in", place=visit.region("Outbox"))
            await visit.shows("evening", "0 18 * * *", "18:00", place=visit.region("Schedules"))
            await visit.shows("Today $0.75.", place=visit.region("Cost"))
            assert await visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")

            await visit.press("Retry chatty:bob", within=visit.region("Inbox"))
            await visit.shows("in-2 is tried again when the gateway runs.", place=visit.toasts)
            await expect(visit.region("Inbox")).not_to_contain_text("not answered")
            await visit.press("Discard chatty:bob", within=visit.region("Outbox"))
            question = visit.page.get_by_role("alertdialog", name="Discard?")
            await visit.shows("out-2 will be forgotten", place=question)
            await visit.press("Discard", within=question)
            await expect(visit.region("Outbox")).not_to_contain_text("not sent")
            assert store.list_failed() == []
            store.set_value("channel:chatty", "connected")
            store.save_chat(store.get_chat("chatty", "carl"))
            await visit.shows("chatty:carl", place=visit.region("Chats"))  # without being asked

            await visit.hand.press(visit.region("Chats").get_by_role("link", name="chatty:ann"))
            await visit.shows("At six.")
            await visit.hand.press(visit.page.get_by_role("link", name="All sessions"))
            await visit.hand.press(visit.page.get_by_role("link", name="Gateway"))
            await expect(visit.page.get_by_role("heading", name="Gateway")).to_be_visible()


class EvilBoard:
    """Nothing but hostile texts, and more rows than anybody reads."""

    title = f"board {EVIL}"

    def __init__(self) -> None:
        self.acted: list[str] = []

    def exists(self) -> bool:
        return True

    def read(self) -> Board:
        cells = BoardCell(f"cell {EVIL}", "bad"), BoardCell(f"share {EVIL}", progress=0.25)
        actions = (BoardAction(f"do {EVIL}", f"act {EVIL}", f"sure {EVIL}"),)
        rows = tuple(BoardRow(f"{number} {EVIL}", cells, actions) for number in range(40))
        section = BoardSection(f"heading {EVIL}", f"facts {EVIL}", (f"column {EVIL}", "share"), rows, 7)
        return Board("evil", self.title, (section,))

    def act(self, action: str) -> str:
        self.acted.append(action)
        return f"done {EVIL}"


async def test_texts_of_a_board_stay_text(open_visit: OpenVisit, workspace: Path) -> None:
    board = EvilBoard()
    with ScriptedServer() as model:
        async with serve(model, workspace, boards={"evil": board}) as served, open_visit(served.url) as visit:
            await log_in(visit, served)
            await visit.hand.press(visit.page.get_by_role("link", name=re.compile("^board <script>")))
            place = visit.page.get_by_role("main")
            await visit.shows(f"heading {EVIL}", f"facts {EVIL}", f"column {EVIL}", f"cell {EVIL}", place=place)
            await expect(place.get_by_role("row")).to_have_count(26)
            await expect(place.get_by_role("progressbar").first).to_have_attribute("value", "0.25")
            await visit.press("… and 22 more rows")
            await expect(place.get_by_role("row")).to_have_count(41)
            await visit.shows("… and 7 more rows", place=place)
            await visit.hand.press(place.get_by_role("button").first)
            await visit.shows(f"sure {EVIL}", place=visit.page.get_by_role("alertdialog"))
            await visit.press(f"do {EVIL}", within=visit.page.get_by_role("alertdialog"))
            await visit.shows(f"done {EVIL}", place=visit.toasts)
            assert board.acted == [f"act {EVIL}"]
            assert await visit.page.locator(BAD).count() == 0
            await visit.page.set_viewport_size({"width": 360, "height": 740})
            assert await place.evaluate("node => node.scrollWidth <= innerWidth")


async def test_who_may_not_approve_is_told_of_no_board(home: Path, open_visit: OpenVisit, workspace: Path) -> None:
    fill_store()
    with ScriptedServer() as model:
        async with (
            serve(model, workspace, boards={"gateway": GatewayBoard(os.environ)}) as served,
            open_visit(served.url) as visit,
        ):
            await log_in(visit, served, "prompt")
            await expect(visit.button("New session")).to_be_visible()
            await expect(visit.page.get_by_role("link", name="Gateway")).to_have_count(0)
            await visit.page.goto(f"{served.url}/#/b/gateway")
            await expect(visit.page.get_by_role("alert")).to_contain_text("This needs the right to approve")
            assert [url for url in visit.requests if url.endswith("/boards")] == []
