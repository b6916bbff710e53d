"""What all windows share: Esc closes them, every word that says what can be done can be clicked, and every row, too."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest

from odin.core.call_events import PlanAsked
from odin.core.event_values import ServerStatus
from odin.core.setup import TrustRequest
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.dialogs.dialog import ConfirmDialog, Dialog
from odin.ui.tui.dialogs.onboarding import ModelPicker, OnboardingDialog, TrustDialog
from odin.ui.tui.dialogs.permission import PermissionDialog
from odin.ui.tui.dialogs.plan import PlanDialog
from odin.ui.tui.dialogs.questions import QuestionsDialog
from odin.ui.tui.dialogs.reports import ErrorsDialog, HelpDialog, make_diagnostics_report
from odin.ui.tui.dialogs.rules import NewRuleDialog, RulesDialog
from odin.ui.tui.dialogs.servers import ServersDialog
from odin.ui.tui.dialogs.sessions import ContentsDialog, RewindPicker, RewindScopePicker, SessionPicker
from odin.ui.tui.dialogs.stats import StatsDialog
from odin.ui.tui.dialogs.widgets import ChoiceBar, Hints
from odin.ui.tui.keys import KEYS
from tests.tui.conftest import play
from tests.tui.key_cases import QUESTIONS, Scene
from tests.tui.played import START
from tests.tui.test_asking_pictures import COMMAND

Make = Callable[[Scene], Dialog[Any]]
SIZES = [(100, 30), (60, 20)]


PLAN = PlanAsked(
    "plan-1", "c9", "/p/.odin/plans/plan-001.md", "Round totals", "# Round totals\n\n1. Edit cart.py", ("builder",)
)


def giving(scene: Scene) -> Callable[..., Awaitable[str]]:
    async def give(*answer: object) -> str:
        scene.given.append(answer)
        return ""

    return give


def make_servers_dialog(scene: Scene) -> ServersDialog:
    scene.client._info["servers"] = (ServerStatus("tiny", "disabled", manual=True), ServerStatus("big", "ready"))
    return ServersDialog()


DIALOGS: dict[str, Make] = {
    "PermissionDialog": lambda scene: PermissionDialog(COMMAND, "", giving(scene)),
    "QuestionsDialog": lambda scene: QuestionsDialog(QUESTIONS, "", giving(scene)),
    "PlanDialog": lambda scene: PlanDialog(PLAN, giving(scene)),
    "TrustDialog": lambda scene: TrustDialog(TrustRequest("/p", starts=("a program",))),
    "OnboardingDialog": lambda scene: OnboardingDialog(scene.setup),
    "SessionPicker": lambda scene: SessionPicker(),
    "ModelPicker": lambda scene: ModelPicker(),
    "RulesDialog": lambda scene: RulesDialog(),
    "NewRuleDialog": lambda scene: NewRuleDialog(),
    "RewindPicker": lambda scene: RewindPicker(),
    "RewindScopePicker": lambda scene: RewindScopePicker("t2"),
    "ContentsDialog": lambda scene: ContentsDialog(scene.app.transcript.blocks),
    "ErrorsDialog": lambda scene: ErrorsDialog(),
    "HelpDialog": lambda scene: HelpDialog("command"),
    "ServersDialog": lambda scene: make_servers_dialog(scene),
    "StatsDialog": lambda scene: StatsDialog(days=7),
    "ReportDialog": lambda scene: make_diagnostics_report(scene.app),
    "ConfirmDialog": lambda scene: ConfirmDialog("Do it?", "It cannot be undone."),
}


def leaves(kind: type[Any]) -> Iterator[str]:
    below = kind.__subclasses__()
    if not below:
        yield kind.__name__
    for one in below:
        yield from leaves(one)


def test_every_window_is_tried() -> None:
    assert {name for name in leaves(Dialog) if not name.startswith("_")} - {"Dialog[str]"} == set(DIALOGS)


async def begin(scene: Scene, name: str) -> Any:
    """The window, open and filled."""
    app, stage = scene.app, scene.stage
    while len(app.screen_stack) > 1:
        app.pop_screen()
        await stage.pilot.pause()
    scene.given.clear()
    dialog: Any = DIALOGS[name](scene)
    app.push_screen(dialog, scene.given.append)
    await stage.until(lambda: app.screen is dialog and getattr(dialog, "ready", True))
    if hasattr(dialog, "rows"):
        await stage.until(lambda: dialog.rows.items)
    elif name == "NewRuleDialog":
        await scene.write("Bash")
    await stage.pilot.pause()
    return dialog


def spots(dialog: Any) -> dict[str, tuple[int, int]]:
    """Where the words are that can be clicked, by what they do."""
    found: dict[str, tuple[int, int]] = {}
    for hints in dialog.query(Hints):
        for x, y in product(hints.region.column_range, hints.region.line_range):
            if dialog.get_widget_at(x, y)[0] is hints and (meta := dialog.get_style_at(x, y).meta.get("@click", "")):
                found[meta.partition("'")[2].partition("'")[0]] = (x, y)
    for choices in dialog.query(ChoiceBar):
        rows = choices._lay_out_rows(choices.size.width)
        names = [choice.name for choice in choices._choices]
        for y, row in enumerate(rows):
            for number, start, _ in row:
                found[names[number]] = (choices.region.x + start + 1, choices.region.y + y)
    return found


def seen(scene: Scene) -> tuple[object, ...]:
    """What a click may change."""
    app = scene.app
    toasts = [str(toast) for toast in app._notifications]
    focus = app.screen.focused
    done = len(scene.client.submitted), len(scene.given), len(scene.sessions.exported), len(app.screen_stack)
    return scene.stage.screen(), app.clipboard, tuple(toasts), focus and focus.id, *done


def changed(scene: Scene, before: tuple[object, ...]) -> bool:
    return seen(scene) != before


def stage_for(scene: Scene, size: tuple[int, int] = (100, 30)) -> Any:
    settings = TuiSettings(bell=False, title=False, side_panel=False)
    return play(scene.sessions, size=size, settings=settings, clock=lambda: scene.client.now)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALOGS)
async def test_everything_that_is_offered_can_be_clicked_and_esc_leaves(name: str) -> None:
    scene = Scene()
    async with stage_for(scene) as stage:
        await scene.begin(stage)
        scene.app.error_log.add(START, "broken", "It broke.")
        offered = spots(await begin(scene, name))
        assert offered
        for what in offered:
            dialog = await begin(scene, name)
            before = seen(scene)
            await stage.pilot.click(offset=spots(dialog)[what])
            await stage.until(partial(changed, scene, before))
        dialog = await begin(scene, name)
        await stage.press("escape")
        await stage.until(lambda: scene.app.screen is not dialog)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.slow
async def test_whatever_a_key_does_is_offered_to_the_mouse(size: tuple[int, int]) -> None:
    """Moving and scrolling are done by the wheel and by clicking a row; all else has a word that can be clicked."""
    scene = Scene()
    async with stage_for(scene, size) as stage:
        await scene.begin(stage)
        scene.app.error_log.add(START, "broken", "It broke.")
        for name in DIALOGS:
            dialog = await begin(scene, name)
            own = {key.name for key in KEYS if key.scope in (set(dialog.KEY_SCOPES) | OWN.get(name, set())) - SHARED}
            offered = set(spots(dialog))
            if "more_answers" in offered:
                await stage.press("m")
                offered |= set(spots(dialog))
            missing = own - offered - ELSEWHERE
            assert not missing, f"{name} does not offer {missing}\n{stage.screen()}"


OWN: dict[str, set[str]] = {
    "PermissionDialog": {"permission"},
    "QuestionsDialog": {"questions"},
    "TrustDialog": {"confirm"},
    "OnboardingDialog": {"welcome"},
}
SHARED = {"dialog", "list", "reading", "stats"}
"""Moving, scrolling and closing; the tabs of the statistics are clicked in a test of their own."""

ELSEWHERE = {
    "allow_mode",
    "next_option",
    "previous_option",
    "toggle_option",
    "previous_question",
    "welcome_next",
    "welcome_previous",
    "stop_work",
    "redo_rewind",
    "force_rewind",
}
"""Rows are clicked instead, or it is offered in another step; redo and force are each offered in one of two windows;
a permission mode is offered for edits and sandboxed commands only."""


@pytest.mark.slow
async def test_every_row_can_be_clicked() -> None:
    scene = Scene()
    async with stage_for(scene) as stage:
        await scene.begin(stage)
        scene.app.error_log.add(START, "broken", "It broke.")
        for name in DIALOGS:
            dialog = await begin(scene, name)
            if not hasattr(dialog, "rows"):
                continue
            rows = dialog.rows
            last = min(len(rows.items), rows.size.height) - 1
            await stage.pilot.click(rows, offset=(5, last))
            assert rows.mark == rows.scroll_offset.y + last
