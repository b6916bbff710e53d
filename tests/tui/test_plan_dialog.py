"""The dialog of a plan, over real sessions: what is decided is what happens next."""

from typing import Any

import pytest

from odin.core.op import Interrupt
from odin.testing import call, say
from odin.ui.tui.dialogs.dialog import RequestDialog
from odin.ui.tui.dialogs.plan import PlanDialog
from tests.tui.conftest import OpenApp, Stage
from tests.tui.test_permission_dialog import asked, click, over, results

TEXT = "## Steps\n\n1. Rename **it**.\n2. Run `make test`.\n"
LONG = TEXT + "\n".join(f"{number}. Step {number}." for number in range(3, 90))


def present(text: str = TEXT, id: str = "h1", **args: Any):
    return call("Handoff", {"plan": text, "title": "Rename it", **args}, id=id)


async def presented(stage: Stage) -> None:
    await stage.send("/plan Plan it.")
    await asked(stage, "Plan: Rename it (.odin/plans/plan-00", "Steps", "1. Rename it.", "y Approve")


async def test_yes_goes_on_in_edit_mode(open_app: OpenApp) -> None:
    async with open_app([present(), say("Done.")]) as stage:
        await presented(stage)
        await stage.press("y")
        await stage.shows("Done.")
        await over(stage)
        assert results(stage)["h1"].startswith("The user approved the plan")
        assert stage.app.mode == "edit_mode"
        assert "WriteFile" in stage.server.requests[1].tool_names


@pytest.mark.slow
async def test_changes_are_told_to_the_model(open_app: OpenApp) -> None:
    again = present("1. Shorter.", "h2", plan_path=".odin/plans/plan-001.md")
    async with open_app([present(), again, say("Fine.")]) as stage:
        await presented(stage)
        await stage.press("r", "enter")
        await stage.shows("Say what to change")
        await stage.type("Shorter, please.")
        await stage.press("escape")
        await stage.shows("y Approve")
        await stage.press("r", "enter")
        await asked(stage, "1. Shorter.")
        assert "The user says: Shorter, please." in results(stage)["h1"]
        await stage.press("escape")
        await over(stage)
        await stage.idle()
        assert len(stage.server.requests) == 2
        assert stage.app.mode == "plan_mode"


async def test_arrows_numbers_and_clicks_choose(open_app: OpenApp) -> None:
    for act in (("right", "enter"), ("1",), None):
        async with open_app([present(), say("Done.")]) as stage:
            await presented(stage)
            await stage.press("enter")
            await stage.shows("Choose an answer: y approves the plan.")
            if act is None:
                await click(stage, "Approve, and carry it out here")
            else:
                await stage.press(*act)
            await stage.shows("Done.")


@pytest.mark.slow
async def test_a_new_session_begins_with_the_plan(open_app: OpenApp) -> None:
    async with open_app([present(), say("Done.")]) as stage:
        await presented(stage)
        first = stage.app.info.session if stage.app.info else ""
        await stage.press("s")
        await stage.shows("Carry out .odin/plans/plan-001.md", "Done.")
        await stage.idle()
        assert stage.app.info is not None and stage.app.info.session != first
        assert stage.app.mode == "edit_mode"
        sent = str(stage.server.requests[1].messages)
        assert "The user approved this plan (.odin/plans/plan-001.md). Carry it out." in sent
        assert "Rename **it**" in sent
        assert "Plan it." not in sent


async def test_execute_without_a_plan_stays_here(open_app: OpenApp) -> None:
    async with open_app([say("Hi.")]) as stage:
        first = stage.app.info.session if stage.app.info else ""
        await stage.send("/execute plan-004.md")
        await stage.shows("There is no plan .odin/plans/plan-004.md.")
        assert stage.app.info is not None and stage.app.info.session == first


async def test_a_long_plan_scrolls_and_leaves_the_answers_in_view(open_app: OpenApp) -> None:
    async with open_app([present(LONG), say("Done.")]) as stage:
        await presented(stage)
        assert "Step 89" not in stage.screen()
        await stage.press("end")
        await stage.shows("Step 89", "y Approve")
        await stage.press("home")
        await stage.shows("1. Rename it.")


async def test_an_interrupt_elsewhere_closes_it(open_app: OpenApp) -> None:
    async with open_app([present(), say("Done.")]) as stage:
        await presented(stage)
        assert isinstance(stage.app.screen, PlanDialog)
        await stage.app.client.submit(Interrupt())
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))
