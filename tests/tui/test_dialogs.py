"""Behavior common to all dialogs: Esc closes them, and every offered action and every row can be clicked."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from textual.geometry import Region

from odin.core.call_events import PlanAsked
from odin.core.client import ProcessRecord
from odin.core.event_values import ServerStatus
from odin.core.interaction import TrustRequest, ask_for_trust, make_interaction
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.form import FormDialog
from odin.ui.tui.dialogs.interaction import InteractionDialog
from odin.ui.tui.dialogs.onboarding import ModelPicker, OnboardingDialog
from odin.ui.tui.dialogs.processes import ProcessesDialog, ProcessOutputDialog
from odin.ui.tui.dialogs.reports import REPORTS, ErrorsDialog, HelpDialog, ReportDialog
from odin.ui.tui.dialogs.rules import RulesDialog, make_rule_form
from odin.ui.tui.dialogs.servers import ServersDialog
from odin.ui.tui.dialogs.sessions import ContentsDialog, RewindPicker, RewindScopePicker, SessionPicker
from odin.ui.tui.dialogs.stats import StatsDialog
from odin.ui.tui.dialogs.widgets import ChoiceBar, Hints
from odin.ui.tui.keys import KEYS
from tests.tui.conftest import run_app
from tests.tui.fake_sessions import START
from tests.tui.key_cases import QUESTIONS, Scene
from tests.tui.test_request_snapshots import COMMAND

MakeDialog = Callable[[Scene], Dialog[Any]]
SIZES = [(100, 30), (60, 20)]


PLAN = PlanAsked(
    "plan-1",
    "c9",
    "/p/.odin/plans/plan-001.md",
    "Round totals",
    "# Round totals\n\n1. Edit cart.py",
    ("builder",),
    ("acceptEdits",),
)


TRUST = TrustRequest("/p", starts=("a program",))


def make_recorder(scene: Scene) -> Callable[..., Awaitable[str]]:
    async def record(*answer: object) -> str:
        scene.results.append(answer)
        return ""

    return record


def make_servers_dialog(scene: Scene) -> ServersDialog:
    scene.client._info["servers"] = (ServerStatus("tiny", "disabled", manual=True), ServerStatus("big", "ready"))
    return ServersDialog()


PROCESS = ProcessRecord("spawn-1", "make watch", "running", urls={8899: ""})


def make_processes_dialog(scene: Scene) -> ProcessesDialog:
    scene.client.processes = (PROCESS,)
    return ProcessesDialog()


DIALOGS: dict[str, MakeDialog] = {
    "InteractionDialog, permission": lambda scene: InteractionDialog(make_interaction(COMMAND), make_recorder(scene)),
    "InteractionDialog, questions": lambda scene: InteractionDialog(make_interaction(QUESTIONS), make_recorder(scene)),
    "InteractionDialog, plan": lambda scene: InteractionDialog(make_interaction(PLAN), make_recorder(scene)),
    "InteractionDialog, trust": lambda scene: InteractionDialog(ask_for_trust(TRUST)),
    "OnboardingDialog": lambda scene: OnboardingDialog(scene.setup),
    "SessionPicker": lambda scene: SessionPicker(),
    "ModelPicker": lambda scene: ModelPicker(),
    "RulesDialog": lambda scene: RulesDialog(),
    "FormDialog": lambda scene: make_rule_form(),
    "RewindPicker": lambda scene: RewindPicker(),
    "RewindScopePicker": lambda scene: RewindScopePicker("t2"),
    "ContentsDialog": lambda scene: ContentsDialog(scene.app.transcript.blocks),
    "ErrorsDialog": lambda scene: ErrorsDialog(),
    "HelpDialog": lambda scene: HelpDialog("command"),
    "ServersDialog": lambda scene: make_servers_dialog(scene),
    "ProcessesDialog": lambda scene: make_processes_dialog(scene),
    "ProcessOutputDialog": lambda scene: ProcessOutputDialog(PROCESS),
    "StatsDialog": lambda scene: StatsDialog(days=7),
    "ReportDialog": lambda scene: ReportDialog(*REPORTS["diagnostics"]),
    "FormDialog, question": lambda scene: FormDialog("Do it?", "It cannot be undone."),
}


def list_class_names(kind: type[Any]) -> Iterator[str]:
    for one in kind.__subclasses__():
        yield one.__name__
        yield from list_class_names(one)


def test_every_dialog_class_is_listed() -> None:
    names = {name for name in list_class_names(Dialog) if not name.startswith("_") and "[" not in name}
    assert names - {"RequestDialog", "PickerDialog"} == {name.partition(",")[0] for name in DIALOGS}


async def open_dialog(scene: Scene, name: str) -> Any:
    """Open the dialog in place of others and wait until it is filled."""
    app, stage = scene.app, scene.stage
    while len(app.screen_stack) > 1:
        app.pop_screen()
        await stage.pilot.pause()
    scene.results.clear()
    dialog: Any = DIALOGS[name](scene)
    app.push_screen(dialog, scene.results.append)
    await stage.until(lambda: app.screen is dialog and getattr(dialog, "ready", True))
    if hasattr(dialog, "rows"):
        await stage.until(lambda: dialog.rows.items)
    elif name == "FormDialog":
        await scene.write("Bash")
    await stage.pilot.pause()
    return dialog


def find_clickable_spots(dialog: Any) -> dict[str, tuple[int, int]]:
    """Return the position of each clickable text, by the name of its action."""
    found: dict[str, tuple[int, int]] = {}
    for hints in dialog.query(Hints):
        left, top, width, height = hints.region
        for y, strip in enumerate(hints.render_lines(Region(0, 0, width, height)), top):
            x = left
            for segment in strip:
                meta = segment.style.meta.get("@click", "") if segment.style else ""
                columns = range(x, x := x + segment.cell_length)
                for column in columns if meta else ():
                    if dialog.get_widget_at(column, y)[0] is hints:
                        found[meta.partition("'")[2].partition("'")[0]] = (column, y)
    for choices in dialog.query(ChoiceBar):
        rows = choices._lay_out_rows(choices.size.width)
        names = [choice.name for choice in choices._choices]
        for y, row in enumerate(rows):
            for number, start, _ in row:
                found[names[number]] = (choices.region.x + start + 1, choices.region.y + y)
    return found


def get_visible_state(scene: Scene) -> tuple[object, ...]:
    """Return everything that a click may change."""
    app = scene.app
    toasts = [str(toast) for toast in app._notifications]
    focus = app.screen.focused
    done = len(scene.client.submitted), len(scene.results), len(scene.sessions.exported), len(app.screen_stack)
    return scene.stage.screen(), app.clipboard, tuple(toasts), focus and focus.id, *done


def has_changed(scene: Scene, before: tuple[object, ...]) -> bool:
    return get_visible_state(scene) != before


def run_scene(scene: Scene, size: tuple[int, int] = (100, 30)) -> Any:
    settings = TuiSettings(bell=False, title=False, side_panel=False)
    return run_app(scene.sessions, size=size, settings=settings, clock=lambda: scene.client.now)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALOGS)
async def test_every_offered_action_can_be_clicked_and_esc_closes(name: str) -> None:
    scene = Scene()
    async with run_scene(scene) as stage:
        await scene.wait_until_loaded(stage)
        scene.app.error_log.add(START, "broken", "It broke.")
        dialog = await open_dialog(scene, name)
        offered = find_clickable_spots(dialog)
        assert offered
        for number, action in enumerate(offered):
            if number:
                dialog = await open_dialog(scene, name)
            before = get_visible_state(scene)
            await stage.pilot.click(offset=find_clickable_spots(dialog)[action])
            await stage.until(partial(has_changed, scene, before))
        dialog = await open_dialog(scene, name)
        await stage.press("escape")
        await stage.until(lambda: scene.app.screen is not dialog)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.slow
async def test_every_key_action_can_also_be_clicked(size: tuple[int, int]) -> None:
    """Except moving and scrolling, which are done with the wheel and by clicking a row."""
    scene = Scene()
    async with run_scene(scene, size) as stage:
        await scene.wait_until_loaded(stage)
        scene.app.error_log.add(START, "broken", "It broke.")
        for name in DIALOGS:
            dialog = await open_dialog(scene, name)
            own = {
                key.name
                for key in KEYS
                if key.scope in (set(dialog.KEY_SCOPES) | EXTRA_SCOPES.get(name, set())) - SHARED_SCOPES
            }
            offered = set(find_clickable_spots(dialog))
            if "more_answers" in offered:
                await stage.press("m")
                offered |= set(find_clickable_spots(dialog))
            missing = own - offered - OFFERED_ELSEWHERE
            assert not missing, f"{name} does not offer {missing}\n{stage.screen()}"


EXTRA_SCOPES: dict[str, set[str]] = {
    "InteractionDialog, permission": {"permission"},
    "InteractionDialog, questions": {"questions"},
    "InteractionDialog, plan": {"plan"},
    "InteractionDialog, trust": {"confirm"},
    "OnboardingDialog": {"welcome"},
}
SHARED_SCOPES = {"dialog", "list", "reading", "stats"}
"""Moving, scrolling and closing. `test_report_dialogs` clicks the tabs of the statistics."""

OFFERED_ELSEWHERE = {
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
"""Actions done by clicking a row or offered in another step. Redo and force are each offered in one of two dialogs; a
permission mode is offered for edits and sandboxed commands only."""


@pytest.mark.slow
async def test_every_row_can_be_clicked() -> None:
    scene = Scene()
    async with run_scene(scene) as stage:
        await scene.wait_until_loaded(stage)
        scene.app.error_log.add(START, "broken", "It broke.")
        for name in DIALOGS:
            dialog = await open_dialog(scene, name)
            if not hasattr(dialog, "rows"):
                continue
            rows = dialog.rows
            last = min(len(rows.items), rows.size.height) - 1
            await stage.pilot.click(rows, offset=(5, last))
            assert rows.mark == rows.scroll_offset.y + last
