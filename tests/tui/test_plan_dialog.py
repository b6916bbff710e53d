"""The plan dialog over real sessions: each decision has its effect."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.op import Answer, Interrupt
from odin.testing import call, say
from odin.ui.tui.dialogs.dialog import RequestDialog
from odin.ui.tui.dialogs.interaction import InteractionDialog
from tests.tui.conftest import OpenApp, Stage
from tests.tui.test_permission_dialog import click_text, list_last_results, wait_for_request, wait_until_closed

TEXT = "## Steps\n\n1. Rename **it**.\n2. Run `make test`.\n"
LONG = TEXT + "\n".join(f"{number}. Step {number}." for number in range(3, 90))


def handoff_call(text: str = TEXT, id: str = "h1", **args: Any):
    return call("Handoff", {"plan": text, "title": "Rename it", **args}, id=id)


async def open_plan_dialog(stage: Stage) -> None:
    await stage.send("/plan Plan it.")
    await wait_for_request(stage, "Plan: Rename it (.odin/plans/plan-00", "Steps", "1. Rename it.", "y Approve")


async def test_approving_continues_in_edit_mode(open_app: OpenApp) -> None:
    async with open_app([handoff_call(), say("Done.")]) as stage:
        await open_plan_dialog(stage)
        await stage.press("y")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        assert list_last_results(stage)["h1"].startswith("The user approved the plan")
        assert stage.app.mode == "edit_mode"
        assert "WriteFile" in stage.server.requests[1].tool_names


async def test_approving_can_accept_edits(open_app: OpenApp, workspace: Path) -> None:
    write = call("WriteFile", {"path": "b.py", "content": "b\n"}, id="w")
    async with open_app([handoff_call(), write, say("Done.")]) as stage:
        await open_plan_dialog(stage)
        await stage.press("a")
        await stage.shows("Done.", "permissions: acceptEdits")
    assert (workspace / "b.py").read_text() == "b\n"


async def test_requested_changes_reach_the_model(open_app: OpenApp) -> None:
    again = handoff_call("1. Shorter.", "h2", plan_path=".odin/plans/plan-001.md")
    async with open_app([handoff_call(), again, say("Fine.")]) as stage:
        await open_plan_dialog(stage)
        await stage.press("r", "enter")
        await stage.shows("Say what to change")
        await stage.type("Shorter, please.")
        await stage.press("escape")
        await stage.shows("y Approve")
        await stage.press("r", "enter")
        await wait_for_request(stage, "1. Shorter.")
        assert "The user says: Shorter, please." in list_last_results(stage)["h1"]
        await stage.press("escape")
        await wait_until_closed(stage)
        await stage.idle()
        assert len(stage.server.requests) == 2
        assert stage.app.mode == "plan_mode"


async def test_arrows_numbers_and_clicks_choose_an_answer(open_app: OpenApp) -> None:
    for act in (("right", "enter"), ("1",), None):
        async with open_app([handoff_call(), say("Done.")]) as stage:
            await open_plan_dialog(stage)
            await stage.press("enter")
            await stage.shows("Choose an answer: y approves the plan.")
            if act is None:
                await click_text(stage, "Approve, and carry it out here")
            else:
                await stage.press(*act)
            await stage.shows("Done.")


@pytest.mark.slow
async def test_s_carries_out_the_plan_in_a_new_session(open_app: OpenApp) -> None:
    async with open_app([handoff_call(), say("Done.")]) as stage:
        await open_plan_dialog(stage)
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


async def test_a_plan_that_another_client_approves_is_carried_out_there(open_app: OpenApp) -> None:
    """Two front ends of one session must not both start the work."""
    async with open_app([handoff_call(), say("Done.")]) as stage:
        await open_plan_dialog(stage)
        first = stage.app.info.session if stage.app.info else ""
        asked = (await stage.app.client.snapshot()).interactions[0]
        assert await stage.app.client.submit(Answer(asked.id, "approve_new_session", client="phone"))
        await stage.shows("This was answered from phone.")
        await stage.idle()
        assert stage.app.info is not None and stage.app.info.session == first
        assert len(stage.server.requests) == 1


async def test_execute_with_an_unknown_plan_stays_in_the_session(open_app: OpenApp) -> None:
    async with open_app([say("Hi.")]) as stage:
        first = stage.app.info.session if stage.app.info else ""
        await stage.send("/execute plan-004.md")
        await stage.shows("There is no plan .odin/plans/plan-004.md.")
        assert stage.app.info is not None and stage.app.info.session == first


async def test_a_long_plan_scrolls_and_leaves_the_answers_in_view(open_app: OpenApp) -> None:
    async with open_app([handoff_call(LONG), say("Done.")]) as stage:
        await open_plan_dialog(stage)
        assert "Step 89" not in stage.screen()
        await stage.press("end")
        await stage.shows("Step 89", "y Approve")
        await stage.press("home")
        await stage.shows("1. Rename it.")


async def test_an_interrupt_by_another_client_closes_the_dialog(open_app: OpenApp) -> None:
    async with open_app([handoff_call(), say("Done.")]) as stage:
        await open_plan_dialog(stage)
        assert isinstance(stage.app.screen, InteractionDialog)
        await stage.app.client.submit(Interrupt())
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))
