"""A case for every key of the key table: how to prepare the app, and how to check that the key did its action."""

import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from odin.core.call_events import PermissionAsked, PlanAsked, QuestionsAsked, TodosChanged
from odin.core.client import ProcessRecord, RewindPlan, SessionSummary, TurnRecord
from odin.core.event import AgentStarted, PromptQueued, TurnStarted
from odin.core.event_values import FileChange, FileState, Option, Question, ServerStatus, SkippedFile, Todo
from odin.core.interaction import TrustRequest, ask_for_trust
from odin.core.op import (
    Answer,
    ChangePrompt,
    ControlProcess,
    ControlServers,
    DropPrompt,
    Interrupt,
    MoveToBackground,
    Prompt,
    RemoveRule,
    SetEffort,
    SetPermissionMode,
    SetRole,
)
from odin.core.setup import ModelOption
from odin.ui.transcript.blocks import CallBlock
from odin.ui.tui.app import OdinApp
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.dialogs.form import FormDialog
from odin.ui.tui.dialogs.interaction import InteractionDialog
from odin.ui.tui.dialogs.onboarding import ModelPicker, OnboardingDialog
from odin.ui.tui.dialogs.processes import ProcessesDialog
from odin.ui.tui.dialogs.reports import ErrorsDialog, HelpDialog, ReportDialog, Sheet
from odin.ui.tui.dialogs.rules import RulesDialog, make_rule_form
from odin.ui.tui.dialogs.servers import ServersDialog
from odin.ui.tui.dialogs.sessions import ContentsDialog, RewindPicker, RewindScopePicker, SessionPicker
from odin.ui.tui.dialogs.stats import StatsDialog
from odin.ui.tui.dialogs.widgets import ChoiceBar, TextPage
from odin.ui.tui.search import SearchBar
from tests.tui.conftest import Stage, assert_all_painted
from tests.tui.fake_sessions import START, FakeClient, FakeSessions
from tests.tui.test_request_snapshots import COMMAND, EDIT
from tests.tui.test_transcript import make_turns

ASKED = PermissionAsked(
    "a",
    "c",
    "Edit",
    {"x": [1], "y": "text"},
    "It changes a file.",
    subject="f",
    rules=("E(f)",),
    preview="\n".join(f"+line {number}" for number in range(90)),
)
PLAN = PlanAsked(
    "ask-9", "c9", "/p/.odin/plans/plan-001.md", "Rename it", "1. Rename it.\n", ("builder",), ("acceptEdits",)
)

QUESTIONS = QuestionsAsked(
    "q",
    "c",
    (
        Question("One", "Which one?\n" + "\n".join(f"line {n}" for n in range(40)), (Option("A"), Option("B"))),
        Question("Two", "Which ones?", (Option("C"), Option("D")), multiple=True),
    ),
)


class FakeSetup:
    """The setup of a first run that finds two models and a server."""

    is_done, keys_file, providers, other_agents = False, "~/auth.json", ("anthropic", "openai"), ""

    def __init__(self) -> None:
        self.stored: list[str] = []

    async def find_options(self) -> tuple[ModelOption, ...]:
        key = ModelOption("key", "anthropic", "anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY")
        return key, ModelOption("planner", "offline planner", "offline/planner", "no network")

    async def find_local_servers(self) -> tuple[ModelOption, ...]:
        return (ModelOption("server", "ollama", "ollama/qwen3", "http://localhost:11434"),)

    async def store_key(self, provider: str, key: str) -> ModelOption:
        self.stored.append(key)
        return ModelOption("stored", provider, f"{provider}/model", "auth.json")

    async def add_server(self, url: str) -> tuple[ModelOption, ...]:
        return (ModelOption("server", "server", "server/model", url),)

    async def use_offline_planner(self) -> None:
        return None

    async def choose_model(self, ref: str) -> str:
        return "~/odinconfig.json"


class RecordingSessions(FakeSessions):
    """Fake sessions that record forks, resumes, exports and usage reports."""

    def __init__(self, client: FakeClient) -> None:
        titles = [SessionSummary(f"2026010112000000{n}", START - n, title=f"Session {n}", turns=1) for n in range(9)]
        super().__init__(client, summaries=titles)
        self.forked: list[str] = []
        self.resumed: list[str] = []
        self.exported: list[str] = []
        self.requested: list[tuple[str, int, bool]] = []

    async def fork(self, turn: str = "") -> Any:
        self.forked.append(turn)
        return await super().fork(turn)

    async def resume(self, session: str) -> Any:
        self.resumed.append(session)
        return self._open

    async def export(self, session: str, form: Any, path: str = "") -> str:
        self.exported.append(session)
        return await super().export(session, form, path)

    async def report_usage(self, by: Any = "day", *, days: int = 0, session: str = "") -> Any:
        self.requested.append((by, days, bool(session)))
        return await super().report_usage(by, days=days, session=session)


class Scene:
    """The app over a session of twelve turns. `results` collects the results of dialogs."""

    def __init__(self) -> None:
        self.client = FakeClient(make_turns(12), cwd="/p", scratch=tempfile.gettempdir())
        self.client.snapshot_fields["messages"] = (
            TurnRecord("t1", "What does it do?", "ask_mode", started=START),
            TurnRecord("t2", "Make it faster", "edit_mode", started=START, files=1),
        )
        self.client.plan = RewindPlan(
            (FileChange(FileState("/p/a", "file"), FileState("/p/a", "absent")),),
            (SkippedFile("/p/b", "changed since"),),
        )
        self.sessions = RecordingSessions(self.client)
        self.setup = FakeSetup()
        self.results: list[Any] = []
        self.notes: dict[str, Any] = {}
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        assert self._stage is not None
        return self._stage

    async def wait_until_loaded(self, stage: Stage) -> None:
        """Wait until the transcript is shown and no turn runs."""
        self._stage = stage
        await stage.until(lambda: len(stage.app.transcript.blocks) >= 60 and not stage.app.executing)

    async def take_over(self, earlier: "Scene") -> None:
        """Show this scene in the app of an earlier one, after resetting the app to its initial state."""
        stage, app = earlier.stage, earlier.app
        for name in REPLACED_METHODS & app.__dict__.keys():
            delattr(app, name)
        while len(app.screen_stack) > 1:
            await app.pop_screen()
        if (bar := app.query_one(SearchBar)).is_open:
            bar._notify_listener("", True)
        app.composer.clear_draft()
        app.composer.show_draft(PromptDraft())
        app.composer.focus()
        app.side.user_choice = app.todos.folded = None
        app.side.update_placement()
        app.is_mode_chosen = False
        app._quit_press.forget()
        app._escape_press.forget()
        app.clear_notifications()
        assert_all_painted(app)
        app.error_log._entries.clear()
        app._clipboard = ""
        app._sessions = self.sessions
        await app.show_session()
        await self.wait_until_loaded(stage)

    @property
    def app(self) -> OdinApp:
        return self.stage.app

    @property
    def dialog(self) -> Any:
        """The open dialog."""
        return self.stage.app.screen

    def has_submitted(self, op: object) -> bool:
        return op in self.client.submitted

    async def write(self, text: str) -> None:
        await self.stage.type(text)

    async def open_dialog(self, name: str, kind: type[Any], rest: str = "") -> None:
        await self.app.run_command(name, rest)
        await self.stage.until(
            lambda: isinstance(self.dialog, kind) and (not hasattr(self.dialog, "rows") or self.dialog.rows.items)
        )
        await self.stage.pilot.pause()

    async def ask(self, event: Any) -> None:
        self.client.emit(TurnStarted("t", "work", "edit_mode"), event)
        await self.wait_until_ready()

    async def wait_until_ready(self) -> None:
        await self.stage.until(lambda: getattr(self.dialog, "ready", False))
        await self.stage.pilot.pause()
        self.stage.render_request()

    async def push_dialog(self, dialog: Any) -> None:
        self.app.push_screen(dialog, self.results.append)
        await self.wait_until_ready()


REPLACED_METHODS = {"action_suspend_process", "_display"}
"""Methods of the app that a case replaces."""

Prepare = Callable[[Scene], Awaitable[None]]


class Case(Struct):
    """`name` is the name of the key, `prepare` prepares the app, `is_done` tells whether the key did its action."""

    name: str
    prepare: Prepare
    is_done: Callable[[Scene], object]


# --- preparations ---


async def do_nothing(scene: Scene) -> None:
    """Leave the composer empty and focused."""


def type_text(text: str) -> Prepare:
    async def prepare(scene: Scene) -> None:
        await scene.write(text)
        if text.startswith("/"):
            await scene.stage.until(lambda: scene.app.composer.popup.open)

    return prepare


async def start_turn(scene: Scene) -> None:
    scene.client.emit(TurnStarted("t", "work", "edit_mode"))
    await scene.stage.until(lambda: scene.app.executing)


async def queue_two_prompts(scene: Scene) -> None:
    await start_turn(scene)
    scene.client.emit(PromptQueued("p1", "one", "edit_mode"), PromptQueued("p2", "two", "edit_mode"))
    await scene.stage.shows("queued 1 · edit  one", "queued 2 · edit  two")


async def focus_queue(scene: Scene) -> None:
    await queue_two_prompts(scene)
    scene.app.input_panel.focus_queue()
    await scene.stage.shows("› queued 2 · edit  two")


async def focus_first_queued(scene: Scene) -> None:
    await focus_queue(scene)
    scene.app.input_panel.queue.action_queue_up()
    await scene.stage.shows("› queued 1 · edit  one")


async def type_and_undo(scene: Scene) -> None:
    await scene.write("abc")
    scene.app.composer.action_undo()
    assert scene.app.composer.text != "abc"


async def fill_clipboard(scene: Scene) -> None:
    scene.app.copy_to_clipboard("from elsewhere")


async def start_sub_agent(scene: Scene) -> None:
    scene.client.emit(AgentStarted("sub-1", "look", "ask_mode"))
    scene.client.emit(TurnStarted("s", "look", "ask_mode"), agent="sub-1")
    await scene.stage.until(lambda: "sub-1" in scene.app.transcripts)


async def select_agent_card(scene: Scene) -> None:
    await start_sub_agent(scene)
    scene.app.action_look()
    await scene.stage.until(lambda: scene.app.transcript.has_focus)
    scene.app.transcript.point_at(scene.app.transcripts[""].agents[0])


async def show_todos(scene: Scene) -> None:
    scene.client.emit(TodosChanged((Todo("1", "Read it", "completed"), Todo("2", "Write it", "pending"))))
    await scene.stage.shows("Write it")


async def record_suspends(scene: Scene) -> None:
    scene.app.action_suspend_process = lambda: scene.results.append("suspended")


async def record_redraws(scene: Scene) -> None:
    """Record every redraw, after the one caused by the initial size is done or cancelled."""
    app: Any = scene.app
    app._redraw_timer.cancel()
    await scene.stage.pilot.pause()
    display = app._display

    def record_and_display(screen: Any, update: Any) -> None:
        scene.results.append(update)
        display(screen, update)

    app._display = record_and_display


async def scroll_to_middle(scene: Scene) -> None:
    scene.app.transcript.scroll_to(y=30, animate=False)
    await scene.stage.until(lambda: scene.app.transcript.scroll_offset.y == 30)


async def enter_card_mode(scene: Scene) -> None:
    scene.app.action_look()
    await scene.stage.until(lambda: scene.app.transcript.has_focus and scene.app.transcript.cursor is not None)
    scene.app.transcript.action_previous_card()
    scene.app.transcript.action_previous_card()
    scene.notes["at"] = get_cursor_index(scene)


def get_cursor_index(scene: Scene) -> int:
    view = scene.app.transcript
    assert view.cursor is not None
    return view.blocks.index(view.cursor)


async def select_call_card(scene: Scene) -> None:
    await enter_card_mode(scene)
    view = scene.app.transcript
    view.point_at([block for block in view.blocks if isinstance(block, CallBlock)][-1])
    scene.notes["folds"] = list_folds(scene)


def list_folds(scene: Scene) -> list[Any]:
    return [block.folded for block in scene.app.transcript.blocks]


async def start_search(scene: Scene) -> None:
    await enter_card_mode(scene)
    scene.app.transcript.action_search()
    await scene.write("Question")
    await scene.stage.shows(" of ")


async def finish_search(scene: Scene) -> None:
    await start_search(scene)
    scene.app.transcript._update_search("Question", True)
    scene.notes["here"] = scene.app.transcript._search.here


def has_moved_to_match(scene: Scene, step: int) -> bool:
    search = scene.app.transcript._search
    places = search._places
    return search.here == places[(places.index(scene.notes["here"]) + step) % len(places)]


async def ask_permission(scene: Scene) -> None:
    await scene.ask(ASKED)


async def ask_for_edit(scene: Scene) -> None:
    await scene.ask(EDIT)


async def ask_for_command(scene: Scene) -> None:
    await scene.ask(COMMAND)


async def ask_while_typing(scene: Scene) -> None:
    await ask_for_command(scene)
    await scene.stage.press("exclamation_mark")


def ask_and_run(action: str, event: Any = COMMAND) -> Prepare:
    async def prepare(scene: Scene) -> None:
        await scene.ask(event)
        await scene.dialog.run_action(action)
        await scene.stage.pilot.pause()

    return prepare


async def open_rule_step(scene: Scene) -> None:
    await ask_and_run("allow_session")(scene)


async def scroll_request(scene: Scene) -> None:
    await ask_permission(scene)
    page = scene.dialog.query_one(TextPage)
    await scene.stage.until(lambda: page.max_scroll_y > 20)
    page.scroll_to(y=10, animate=False)
    await scene.stage.until(lambda: page.scroll_offset.y == 10)


def get_page_offset(scene: Scene) -> int:
    return scene.dialog.query_one(TextPage).scroll_offset.y


async def mark_answer(scene: Scene) -> None:
    await ask_for_command(scene)
    scene.dialog.query_one(ChoiceBar).move(1)


async def ask_plan(scene: Scene) -> None:
    await scene.ask(PLAN)


async def ask_questions(scene: Scene) -> None:
    await scene.ask(QUESTIONS)


async def go_to_second_question(scene: Scene) -> None:
    await ask_questions(scene)
    await scene.dialog.action_pick(0)
    await scene.stage.shows("Which ones?")


async def ask_trust(scene: Scene) -> None:
    await scene.push_dialog(InteractionDialog(ask_for_trust(TrustRequest("/p", starts=("a program",)))))


async def open_onboarding(scene: Scene) -> None:
    await scene.push_dialog(OnboardingDialog(scene.setup))
    await scene.stage.shows("anthropic/claude")


def open_list(name: str, kind: type[Any], rest: str = "", mark: int = 0, *, in_rows: bool = True) -> Prepare:
    async def prepare(scene: Scene) -> None:
        await scene.open_dialog(name, kind, rest)
        if in_rows:
            scene.dialog.rows.focus()
            scene.dialog.rows.move_to(mark)
            await scene.stage.pilot.pause()

    return prepare


async def open_contents(scene: Scene) -> None:
    scene.app.action_contents()
    await scene.stage.until(lambda: isinstance(scene.dialog, ContentsDialog) and scene.dialog.rows.items)
    await scene.stage.pilot.pause()


async def open_rewind_scopes(scene: Scene) -> None:
    scene.app.push_screen(RewindScopePicker("t2"), scene.results.append)
    await scene.stage.until(lambda: isinstance(scene.dialog, RewindScopePicker) and scene.dialog.rows.items)


async def open_errors(scene: Scene) -> None:
    scene.app.error_log.add(START, "broken", "It broke.")
    await scene.open_dialog("errors", ErrorsDialog)


async def ask_to_remove_rule(scene: Scene) -> None:
    await open_list("rules", RulesDialog)(scene)
    await scene.dialog.act("remove_rule", scene.dialog.rows.marked)
    await scene.stage.shows("Remove “")


async def open_new_rule(scene: Scene) -> None:
    scene.app.push_screen(make_rule_form(), scene.results.append)
    await scene.stage.until(lambda: isinstance(scene.dialog, FormDialog) and scene.dialog.focused is not None)
    await scene.write("Bash")


async def open_diagnostics(scene: Scene) -> None:
    await scene.app.run_command("diagnostics")
    await scene.stage.until(lambda: isinstance(scene.dialog, ReportDialog) and scene.dialog.query(Sheet))
    sheet = scene.dialog.query_one(Sheet)
    sheet.styles.max_height = 4
    await scene.stage.until(lambda: sheet.max_scroll_y > 5)
    sheet.scroll_to(y=4, animate=False)
    await scene.stage.until(lambda: sheet.scroll_offset.y == 4)


def get_report_offset(scene: Scene) -> int:
    return scene.dialog.query_one(Sheet).scroll_offset.y


def open_stats(rest: str = "") -> Prepare:
    async def prepare(scene: Scene) -> None:
        await scene.app.run_command("stats", rest)
        await scene.stage.until(lambda: isinstance(scene.dialog, StatsDialog) and scene.sessions.requested)

    return prepare


async def enter_provider_key(scene: Scene) -> None:
    await open_onboarding(scene)
    scene.dialog.action_welcome_key()
    await scene.dialog.action_welcome_use()
    await scene.write("secret")


# --- checks ---


def is_open(kind: type[Any]) -> Callable[[Scene], bool]:
    return lambda scene: isinstance(scene.dialog, kind)


def shows(words: str) -> Callable[[Scene], bool]:
    return lambda scene: words in scene.stage.screen()


def has_submitted(wanted: object) -> Callable[[Scene], bool]:
    return lambda scene: scene.has_submitted(wanted)


def has_answered(**fields: Any) -> Callable[[Scene], bool]:
    """Check that an answer with these fields was submitted."""

    def is_done(scene: Scene) -> bool:
        given = [one for one in scene.client.submitted if isinstance(one, Answer)]
        return any(all(getattr(one, name) == value for name, value in fields.items()) for one in given)

    return is_done


def has_prompted(delivery: str | None) -> Callable[[Scene], bool]:
    return lambda scene: [one.delivery for one in scene.client.submitted if isinstance(one, Prompt)] == [delivery]


def is_in_step(name: str, **fields: Any) -> Callable[[Scene], bool]:
    def is_done(scene: Scene) -> bool:
        rule = scene.dialog._rule
        return scene.dialog._step == name and all(getattr(rule, field) == value for field, value in fields.items())

    return is_done


def is_marked(number: int) -> Callable[[Scene], bool]:
    return lambda scene: scene.dialog.rows.mark == number


def has_requested_usage(by: str, days: int, of_session: bool) -> Callable[[Scene], bool]:
    return lambda scene: scene.sessions.requested[-1] == (by, days, of_session)


def is_closed(scene: Scene) -> bool:
    return len(scene.app.screen_stack) == 1


SESSIONS = open_list("sessions", SessionPicker, mark=4)
RULES = open_list("rules", RulesDialog, mark=1)


async def open_servers(scene: Scene) -> None:
    """Open the list of MCP servers, with one manual server."""
    scene.client._info["servers"] = (ServerStatus("tiny", "disabled", manual=True),)
    await open_list("mcp", ServersDialog)(scene)


async def open_processes(scene: Scene) -> None:
    scene.client.processes = (ProcessRecord("spawn-1", "make watch", "running", urls={8899: ""}),)
    await open_list("ps", ProcessesDialog)(scene)


CASES: tuple[Case, ...] = (
    Case("send", type_text("hello"), has_prompted(None)),
    Case("steer", type_text("hello"), has_prompted("steer")),
    Case("newline", type_text("abc"), lambda scene: scene.app.composer.text == "abc\n"),
    Case("edit_outside", type_text("abc"), shows("does not support running another program")),
    Case("search_history", do_nothing, lambda scene: scene.app.composer.searching),
    Case("paste_image", fill_clipboard, lambda scene: scene.app.composer.text == "from elsewhere"),
    Case("undo", type_text("abc"), lambda scene: scene.app.composer.text != "abc"),
    Case("redo", type_and_undo, lambda scene: scene.app.composer.text == "abc"),
    Case("next_role", do_nothing, has_submitted(SetRole("planner"))),
    Case("next_mode", do_nothing, lambda scene: scene.app.mode == "ask_mode"),
    Case("errors_here", do_nothing, is_open(ErrorsDialog)),
    Case("choose_next", type_text("/"), lambda scene: scene.app.composer.popup.at == 1),
    Case("choose_previous", type_text("/"), lambda scene: scene.app.composer.popup.at > 1),
    Case("choose", type_text("/resu"), lambda scene: scene.app.composer.text.rstrip() == "/resume"),
    Case("choose_and_send", type_text("/hel"), is_open(HelpDialog)),
    Case("close_list", type_text("/resu"), lambda scene: not scene.app.composer.popup.open and scene.app.composer.text),
    Case("queue_up", focus_queue, shows("› queued 1 · edit  one")),
    Case("queue_down", focus_first_queued, shows("› queued 2 · edit  two")),
    Case("queue_edit", focus_queue, lambda scene: scene.app.composer.text == "two"),
    Case("queue_drop", focus_queue, has_submitted(DropPrompt("p2"))),
    Case("queue_steer", focus_queue, has_submitted(ChangePrompt("p2", delivery="steer"))),
    Case("queue_mode", focus_queue, has_submitted(ChangePrompt("p2", mode="ask_mode"))),
    Case("queue_send", focus_queue, has_submitted(ChangePrompt("p2", delivery="queue"))),
    Case("queue_leave", focus_queue, lambda scene: scene.app.composer.has_focus),
    Case("stop", start_turn, has_submitted(Interrupt())),
    Case("leave", type_text("abc"), lambda scene: not scene.app.composer.text),
    Case("end_of_input", do_nothing, lambda scene: scene.app._exit),
    Case("suspend", record_suspends, lambda scene: scene.results == ["suspended"]),
    Case("next_agent", start_sub_agent, lambda scene: scene.app.agent == "sub-1"),
    Case("models", do_nothing, is_open(ModelPicker)),
    Case("effort", do_nothing, has_submitted(SetEffort("low"))),
    Case("mcp", do_nothing, is_open(ServersDialog)),
    Case("diagnostics", do_nothing, shows("Diagnostics")),
    Case("contents", do_nothing, is_open(ContentsDialog)),
    Case("errors", do_nothing, is_open(ErrorsDialog)),
    Case("queue", queue_two_prompts, shows("› queued 2 · edit  two")),
    Case("todos", show_todos, lambda scene: scene.app.todos.folded),
    Case("side_panel", do_nothing, lambda scene: scene.app.side.display),
    Case("to_background", do_nothing, has_submitted(MoveToBackground())),
    Case("help", do_nothing, is_open(HelpDialog)),
    Case("redraw", record_redraws, lambda scene: any("LayoutUpdate" in type(one).__name__ for one in scene.results)),
    Case("permissions", do_nothing, has_submitted(SetPermissionMode("acceptEdits"))),
    Case("page_up", scroll_to_middle, lambda scene: 0 < scene.app.transcript.scroll_offset.y < 30),
    Case(
        "page_down",
        scroll_to_middle,
        lambda scene: 30 < scene.app.transcript.scroll_offset.y < scene.app.transcript.max_scroll_y,
    ),
    Case("to_top", scroll_to_middle, lambda scene: scene.app.transcript.scroll_offset.y == 0),
    Case("to_end", scroll_to_middle, lambda scene: scene.app.transcript.following),
    Case("look", do_nothing, lambda scene: scene.app.transcript.has_focus),
    Case("write", enter_card_mode, lambda scene: scene.app.composer.has_focus),
    Case("next_card", enter_card_mode, lambda scene: get_cursor_index(scene) == scene.notes["at"] + 1),
    Case("previous_card", enter_card_mode, lambda scene: get_cursor_index(scene) == scene.notes["at"] - 1),
    Case("first_card", enter_card_mode, lambda scene: get_cursor_index(scene) == 0),
    Case("last_card", enter_card_mode, lambda scene: get_cursor_index(scene) > scene.notes["at"] + 1),
    Case("search", enter_card_mode, lambda scene: scene.app.query_one(SearchBar).is_open),
    Case("next_match", finish_search, lambda scene: has_moved_to_match(scene, 1)),
    Case("previous_match", finish_search, lambda scene: has_moved_to_match(scene, -1)),
    Case(
        "fold", select_call_card, lambda scene: list_folds(scene).count(False) == scene.notes["folds"].count(False) + 1
    ),
    Case("fold_all", select_call_card, lambda scene: list_folds(scene).count(False) > 10),
    Case("edit_prompt", enter_card_mode, lambda scene: isinstance(scene.dialog, FormDialog)),
    Case("open_agent", select_agent_card, lambda scene: scene.app.agent == "sub-1"),
    Case("copy_card", enter_card_mode, shows("Copied.")),
    Case("stats", enter_card_mode, is_open(StatsDialog)),
    Case("help_here", enter_card_mode, is_open(HelpDialog)),
    Case("quit", enter_card_mode, shows("again to exit.")),
    Case(
        "search_done",
        start_search,
        lambda scene: scene.app.transcript.has_focus and scene.app.query_one(SearchBar).is_open,
    ),
    Case("search_close", start_search, lambda scene: not scene.app.query_one(SearchBar).is_open),
    Case("answer_request", ask_while_typing, lambda scene: scene.dialog.ready),
    Case("allow_once", ask_for_command, has_answered(choice="allow_once", rule="")),
    Case("allow_session", ask_for_command, is_in_step("rule", allow=True, scope="session")),
    Case("allow_project", ask_for_command, is_in_step("rule", allow=True, scope="project")),
    Case("allow_everywhere", ask_for_command, is_in_step("rule", allow=True, scope="user")),
    Case("allow_mode", ask_for_edit, has_answered(choice="allow_mode")),
    Case("more_answers", ask_for_command, shows("Deny always")),
    Case("allow_note", ask_for_command, is_in_step("note")),
    Case("deny", ask_for_command, has_answered(choice="deny")),
    Case("deny_words", ask_for_command, is_in_step("text")),
    Case("deny_always", ask_for_command, is_in_step("rule", allow=False, scope="project")),
    Case("edit_call", ask_for_command, is_in_step("edit")),
    Case("show_call", ask_for_command, lambda scene: scene.dialog._view == "all"),
    Case("explain_keys", ask_for_command, shows("Edit the arguments before the call runs.")),
    Case("stop_work", ask_for_command, has_answered(choice="stop")),
    Case("approve_plan", ask_plan, has_answered(choice="approve")),
    Case("approve_edits", ask_plan, has_answered(choice="approve_edits")),
    Case("plan_session", ask_plan, has_answered(choice="approve_new_session")),
    Case("change_plan", ask_plan, is_in_step("text")),
    Case("keep_planning", ask_plan, has_answered(choice="keep_planning")),
    Case("next_option", ask_questions, lambda scene: scene.dialog._draft.cursor == 1),
    Case("previous_option", ask_questions, lambda scene: scene.dialog._draft.cursor == 2),
    Case("toggle_option", go_to_second_question, shows("[x] C")),
    Case("own_words", ask_questions, lambda scene: scene.dialog._draft.is_writing),
    Case("previous_question", go_to_second_question, lambda scene: scene.dialog._draft.number == 0),
    Case("settle", ask_questions, lambda scene: scene.dialog._draft.number == 1),
    Case("cancel", ask_questions, has_answered(choice="cancel")),
    Case("next_answer", ask_trust, lambda scene: scene.dialog.query_one(ChoiceBar).chosen == "yes"),
    Case("previous_answer", ask_trust, lambda scene: scene.dialog.query_one(ChoiceBar).chosen == "yes"),
    Case("take_answer", mark_answer, has_answered(choice="allow_once")),
    Case("asked_down", scroll_request, lambda scene: get_page_offset(scene) == 11),
    Case("asked_up", scroll_request, lambda scene: get_page_offset(scene) == 9),
    Case("asked_page_down", scroll_request, lambda scene: get_page_offset(scene) > 11),
    Case("asked_page_up", scroll_request, lambda scene: get_page_offset(scene) < 9),
    Case("asked_first", scroll_request, lambda scene: get_page_offset(scene) == 0),
    Case(
        "asked_last",
        scroll_request,
        lambda scene: get_page_offset(scene) == scene.dialog.query_one(TextPage).max_scroll_y,
    ),
    Case("confirm", open_rule_step, has_answered(rule="Bash(git push origin main)", scope="session")),
    Case("use_arguments", ask_and_run("edit_call", ASKED), shows("No changes.")),
    Case("other", open_rule_step, is_in_step("rule", scope="project")),
    Case("next_rule", open_rule_step, lambda scene: _get_rule_text(scene) == "Bash(git push:*)"),
    Case("previous_rule", open_rule_step, lambda scene: _get_rule_text(scene) == "Bash(git push:*)"),
    Case("back", open_rule_step, is_in_step("ask")),
    Case("yes", ask_to_remove_rule, has_submitted(RemoveRule(1))),
    Case("no", ask_trust, lambda scene: scene.results == ["no"]),
    Case(
        "welcome_use",
        open_onboarding,
        lambda scene: [one.ref for one in scene.results] == ["anthropic/claude-sonnet-4-5"],
    ),
    Case("welcome_next", open_onboarding, lambda scene: scene.dialog._cursor == 1),
    Case("welcome_previous", open_onboarding, lambda scene: scene.dialog._cursor == 1),
    Case("welcome_key", open_onboarding, shows("Which provider is the key for?")),
    Case("welcome_url", open_onboarding, lambda scene: scene.dialog._step == "url"),
    Case("welcome_look", open_onboarding, shows("ollama/qwen3")),
    Case("welcome_back", open_onboarding, lambda scene: scene.results == [None]),
    Case("close", SESSIONS, is_closed),
    Case("list_up", SESSIONS, is_marked(3)),
    Case("list_down", SESSIONS, is_marked(5)),
    Case("list_page_up", SESSIONS, is_marked(0)),
    Case("list_page_down", SESSIONS, is_marked(8)),
    Case("list_first", SESSIONS, is_marked(0)),
    Case("list_last", SESSIONS, is_marked(8)),
    Case("list_choose", open_list("models", ModelPicker), is_closed),
    Case("list_narrow", SESSIONS, lambda scene: scene.dialog.filter.has_focus),
    Case("list_other", SESSIONS, lambda scene: scene.dialog.filter.has_focus),
    Case("rename_session", SESSIONS, is_open(FormDialog)),
    Case("copy_session", SESSIONS, lambda scene: isinstance(scene.dialog, FormDialog)),
    Case("export_session", SESSIONS, lambda scene: scene.sessions.exported == ["20260101120000004"]),
    Case("delete_session", SESSIONS, shows("permanently?")),
    Case(
        "use_once",
        open_list("models", ModelPicker),
        lambda scene: bool(scene.client.submitted) and not scene.sessions.saved,
    ),
    Case("look_for_servers", open_list("models", ModelPicker), shows("ollama/qwen3")),
    Case("add_rule", RULES, is_open(FormDialog)),
    Case("remove_rule", RULES, shows("Remove “")),
    Case("open_rule", RULES, shows("This rule is not stored in a file.")),
    Case("enable_server", open_servers, has_submitted(ControlServers("enable", ("tiny",)))),
    Case("disable_server", open_servers, has_submitted(ControlServers("disable", ("tiny",)))),
    Case("stop_process", open_processes, has_submitted(ControlProcess("stop", "spawn-1"))),
    Case("open_port", open_processes, has_submitted(ControlProcess("open", "spawn-1"))),
    Case("reconnect_server", open_servers, has_submitted(ControlServers("reconnect", ("tiny",)))),
    Case("rule_action", open_new_rule, lambda scene: scene.dialog._options["rule_action"][0] == "ask"),
    Case("rule_scope", open_new_rule, shows(" for this project")),
    Case("redo_rewind", open_list("rewind", RewindPicker), is_closed),
    Case("force_rewind", open_rewind_scopes, shows("overwriting foreign changes")),
    Case("fork_there", open_contents, lambda scene: isinstance(scene.dialog, FormDialog)),
    Case("copy_errors", open_errors, shows("Copied all errors.")),
    Case("read_down", open_diagnostics, lambda scene: get_report_offset(scene) == 5),
    Case("read_up", open_diagnostics, lambda scene: get_report_offset(scene) == 3),
    Case("read_page_down", open_diagnostics, lambda scene: get_report_offset(scene) == 7),
    Case("read_page_up", open_diagnostics, lambda scene: get_report_offset(scene) == 1),
    Case("read_first", open_diagnostics, lambda scene: get_report_offset(scene) == 0),
    Case(
        "read_last",
        open_diagnostics,
        lambda scene: get_report_offset(scene) == scene.dialog.query_one(Sheet).max_scroll_y,
    ),
    Case("read_copy", open_diagnostics, lambda scene: "warnings" in scene.app.clipboard),
    Case("read_close", open_diagnostics, is_closed),
    Case("stats_scope", open_stats(), has_requested_usage("purpose", 0, False)),
    Case("stats_next", open_stats(), has_requested_usage("model", 0, True)),
    Case("stats_previous", open_stats(), has_requested_usage("day", 0, True)),
    Case("stats_today", open_stats(), has_requested_usage("purpose", 1, True)),
    Case("stats_week", open_stats(), has_requested_usage("purpose", 7, True)),
    Case("stats_month", open_stats(), has_requested_usage("purpose", 30, True)),
    Case("stats_quarter", open_stats(), has_requested_usage("purpose", 90, True)),
    Case("stats_all", open_stats("today"), has_requested_usage("purpose", 0, True)),
)


def _get_rule_text(scene: Scene) -> str:
    return scene.dialog.query_one("#line").value


MORE_CASES: tuple[Case, ...] = (
    Case("confirm", open_new_rule, lambda scene: [one.text for one in scene.results] == ["Bash"]),
    Case("confirm", enter_provider_key, lambda scene: scene.setup.stored == ["secret"]),
    Case("back", enter_provider_key, shows("Which provider is the key for?")),
    Case("no", ask_to_remove_rule, lambda scene: "Remove “" not in scene.stage.screen()),
    Case("yes", ask_trust, lambda scene: scene.results == ["yes"]),
    Case("next_answer", ask_for_command, lambda scene: scene.dialog.query_one(ChoiceBar).chosen == "allow_once"),
    Case("take_answer", ask_trust, lambda scene: scene.results == ["no"]),
    Case("close", ask_trust, lambda scene: scene.results == ["no"]),
    Case("close", open_diagnostics, is_closed),
    Case("close", open_stats(), is_closed),
    Case("close", open_new_rule, is_closed),
    Case("list_choose", open_rewind_scopes, lambda scene: scene.results == ["both"]),
    Case("list_down", open_list("help", HelpDialog, in_rows=False), is_marked(1)),
)
"""The same keys in other dialogs."""
