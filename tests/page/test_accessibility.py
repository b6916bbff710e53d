"""What axe-core, the usual checker of accessibility, says about every part of the page: nothing that matters."""

import sys
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from playwright.async_api import expect

from odin.testing import say
from tests.page.conftest import OpenStage
from tests.page.routes import give_answers, read_state, show_view
from tests.page.samples import fill_state, make_blocks, make_requests
from tests.page.test_boards import EvilBoard
from tests.page.visit import HandName, Visit

AXE = Path(sys.prefix, "axe/node_modules/axe-core/axe.min.js")
RUN = """async () => {
    const {violations} = await axe.run(document, {resultTypes: ['violations']});
    return violations.filter(({impact}) => ['serious', 'critical'].includes(impact)).map(
        ({id, help, nodes}) => `${id}: ${help}: ${nodes.slice(0, 4).map(({html, failureSummary}) =>
            `${html.slice(0, 200)} (${failureSummary.slice(0, 200)})`).join(' | ')}`);
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not AXE.exists(), reason=f"axe-core is not there: npm install --prefix {sys.prefix}/axe axe-core"
    ),
]
Theme = Literal["light", "dark"]


class Checker:
    """Collects what axe finds in each part of the page, so that one run tells all."""

    def __init__(self, visit: Visit) -> None:
        self.found: dict[str, list[str]] = {}
        self._visit = visit

    async def check(self, part: str) -> None:
        page = self._visit.page
        if not await page.evaluate("'axe' in globalThis"):
            await page.evaluate(f"(() => {{ {AXE.read_text()} }})()")
        if found := await page.evaluate(RUN):
            self.found[part] = found


@pytest.mark.parametrize(("hand", "theme"), [("keyboard", "light"), ("keyboard", "dark"), ("touch", "light")])
async def test_nothing_serious(hand: HandName, theme: Theme, open_stage: OpenStage) -> None:
    def text(name: str) -> str:
        return f"The {name}."

    async with open_stage([say("Hello.")], hand, theme=theme, bypass_csp=True, reduced_motion="reduce") as stage:
        visit = stage.visit
        checker = Checker(visit)
        await checker.check("a new session")
        await visit.send("Hello?")
        await visit.shows("Hello.")
        await visit.finish()
        for command in ("/status", "/context", "/usage", "/diff", "/rewind", "/help", "/agents", "/ps", "/errors"):
            await visit.command(command)
            await expect(visit.page.get_by_role("dialog")).to_be_visible()
            await expect(visit.page.get_by_role("dialog")).not_to_contain_text("Loading…")
            await checker.check(command)
            await visit.page.keyboard.press("Escape")
        for command in ("/model", "/effort", "/role", "/permissions", "/theme", "/menu"):
            await visit.command(command)
            await expect(visit.page.get_by_role("dialog")).to_be_visible()
            await checker.check(command)
            await visit.page.keyboard.press("Escape")
        await visit.hand.write(visit.prompt, "/")
        await expect(visit.page.get_by_role("listbox")).to_be_visible()
        await checker.check("completion")
        await visit.page.keyboard.press("Escape")
        await visit.hand.write(visit.prompt, "")

        state = await read_state(stage.served, stage.session)
        for name, request in {"no request": None, **make_requests(text)}.items():
            blocks = make_blocks(text)
            await show_view(visit, blocks, fill_state(state, text, [request] if request else []))
            await visit.page.reload()
            await expect(visit.block("prompt").first).to_be_visible()
            if request:
                await expect(visit.request).to_be_visible()
            else:
                for number in range(await visit.conversation.locator("[aria-expanded=false]").count()):
                    folded = visit.conversation.locator("[aria-expanded=false]")
                    await folded.first.click()
                    assert number < 30
                if visit.is_touch:
                    await visit.press("Side panel")
            await checker.check(f"all blocks, {name}")
            if name == "permission":
                await visit.press("More…")
                await checker.check("all answers")
                await visit.press("For this session") if visit.is_touch else await visit.page.keyboard.press("s")
                await checker.check("a rule")

        await visit.context.unroute("**/view*")
        await visit.page.goto(f"{visit.url}/#/")
        await expect(visit.page.get_by_role("list", name="Sessions").get_by_role("listitem")).to_have_count(1)
        await checker.check("the list")
        await give_answers(visit, "**/board?*", msgspec.to_builtins(EvilBoard().read()))
        await visit.page.goto(f"{visit.url}/#/b/evil")
        await expect(visit.page.get_by_role("progressbar").first).to_be_visible()
        await checker.check("a board")
        await visit.page.goto(f"{visit.url}/#/")
        await visit.press("Actions for Hello")
        await visit.hand.press(visit.option("Delete"))
        await expect(visit.page.get_by_role("alertdialog")).to_be_visible()
        await checker.check("a confirmation")
        await visit.page.evaluate("localStorage.clear()")
        await visit.page.reload()
        await expect(visit.page.get_by_role("heading", name="Pair this browser")).to_be_visible()
        await checker.check("pairing")
        assert checker.found == {}, "\n".join(
            f"{part}: {line}" for part, lines in checker.found.items() for line in lines
        )
