"""For every key of the table: the situation in which it works, and how one sees that it did."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from odin.core.call_events import PermissionAsked, PlanAsked, QuestionsAsked, TodosChanged
from odin.core.client import RewindPlan, SessionSummary, TurnRecord
from odin.core.event import AgentStarted, PromptQueued, TurnStarted
from odin.core.event_values import FileChange, FileState, Option, Question, ServerStatus, SkippedFile, Todo
from odin.core.op import (
    AddRule,
    AnswerPermission,
    AnswerPlan,
    AnswerQuestions,
    ChangePrompt,
    ControlServers,
    DropPrompt,
    Interrupt,
    Prompt,
    RemoveRule,
    SetEffort,
    SetPermissionMode,
    SetRole,
)
from odin.core.setup import ModelOption, TrustRequest
from odin.ui.tui.app import OdinApp
from odin.ui.tui.blocks import CallBlock
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.dialogs.dialog import ConfirmDialog
from odin.ui.tui.dialogs.onboarding import ModelPicker, OnboardingDialog, TrustDialog
from odin.ui.tui.dialogs.reports import ErrorsDialog, HelpDialog, ReportDialog, Sheet
from odin.ui.tui.dialogs.rules import NewRuleDialog, RulesDialog
from odin.ui.tui.dialogs.servers import ServersDialog
from odin.ui.tui.dialogs.sessions import ContentsDialog, RewindPicker, RewindScopePicker, SessionPicker
from odin.ui.tui.dialogs.stats import StatsDialog
from odin.ui.tui.dialogs.widgets import ChoiceBar, TextPage
from odin.ui.tui.search import SearchBar
from tests.tui.conftest import Stage, all_painted
from tests.tui.played import START, PlayedClient, PlayedSessions
from tests.tui.test_asking_pictures import COMMAND, EDIT
from tests.tui.test_transcript import turns

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
PLAN = PlanAsked("ask-9", "c9", "/p/.odin/plans/plan-001.md", "Rename it", "1. Rename it.\n", ("builder",))

QUESTIONS = QuestionsAsked(
    "q",
    "c",
    (
        Question("One", "Which one?\n" + "\n".join(f"line {n}" for n in range(40)), (Option("A"), Option("B"))),
        Question("Two", "Which ones?", (Option("C"), Option("D")), multiple=True),
    ),
)


class FakeSetup:
    """A first run that finds two models and a server."""

    is_done, keys_file, providers = False, "~/auth.json", ("anthropic", "openai")

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


class Keeping(PlayedSessions):
    """Sessions that keep what was asked of them."""

    def __init__(self, client: PlayedClient) -> None:
        titles = [SessionSummary(f"2026010112000000{n}", START - n, title=f"Session {n}", turns=1) for n in range(9)]
        super().__init__(client, summaries=titles)
        self.forked: list[str] = []
        self.resumed: list[str] = []
        self.exported: list[str] = []
        self.asked: list[tuple[str, int, bool]] = []

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
        self.asked.append((by, days, bool(session)))
        return await super().report_usage(by, days=days, session=session)


class Scene:
    """The app over a conversation of some turns, and what came of it."""

    def __init__(self) -> None:
        self.client = PlayedClient(turns(12), cwd="/p")
        self.client.shot["messages"] = (
            TurnRecord("t1", "What does it do?", "ask_mode", started=START),
            TurnRecord("t2", "Make it faster", "edit_mode", started=START, files=1),
        )
        self.client.plan = RewindPlan(
            (FileChange(FileState("/p/a", "file"), FileState("/p/a", "absent")),),
            (SkippedFile("/p/b", "changed since"),),
        )
        self.sessions = Keeping(self.client)
        self.setup = FakeSetup()
        self.given: list[Any] = []
        self.notes: dict[str, Any] = {}
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        assert self._stage is not None
        return self._stage

    async def begin(self, stage: Stage) -> None:
        """The conversation is there and nothing runs."""
        self._stage = stage
        await stage.until(lambda: len(stage.app.transcript.blocks) >= 60 and not stage.app.executing)

    async def replace(self, earlier: "Scene") -> None:
        """Open this scene in the app of an earlier one, as it was when that app began."""
        stage, app = earlier.stage, earlier.app
        for name in SET_ASIDE & app.__dict__.keys():
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
        all_painted(app)
        app.error_log._entries.clear()
        app._clipboard = ""
        app._sessions = self.sessions
        await app.show_session()
        await self.begin(stage)

    @property
    def app(self) -> OdinApp:
        return self.stage.app

    @property
    def top(self) -> Any:
        """The dialog that is open."""
        return self.stage.app.screen

    def submitted(self, op: object) -> bool:
        return op in self.client.submitted

    async def write(self, text: str) -> None:
        await self.stage.type(text)

    async def open(self, name: str, kind: type[Any], rest: str = "") -> None:
        await self.app.run_command(name, rest)
        await self.stage.until(
            lambda: isinstance(self.top, kind) and (not hasattr(self.top, "rows") or self.top.rows.items)
        )
        await self.stage.pilot.pause()

    async def asks(self, event: Any) -> None:
        self.client.play(TurnStarted("t", "work", "edit_mode"), event)
        await self.ready()

    async def ready(self) -> None:
        await self.stage.until(lambda: getattr(self.top, "ready", False))
        await self.stage.pilot.pause()
        self.stage.look()

    async def push(self, dialog: Any) -> None:
        self.app.push_screen(dialog, self.given.append)
        await self.ready()


SET_ASIDE = {"action_suspend_process", "_display"}
"""Methods of the app that a situation replaces."""

Before = Callable[[Scene], Awaitable[None]]


class Case(Struct):
    """`name` is that of the key, `before` brings about the situation, `done` tells whether the key did its work."""

    name: str
    before: Before
    done: Callable[[Scene], object]


# --- situations ---


async def idle(scene: Scene) -> None:
    """The composer is empty and has the keys."""


def typed(text: str) -> Before:
    async def before(scene: Scene) -> None:
        await scene.write(text)
        if text.startswith("/"):
            await scene.stage.until(lambda: scene.app.composer.popup.open)

    return before


async def busy(scene: Scene) -> None:
    scene.client.play(TurnStarted("t", "work", "edit_mode"))
    await scene.stage.until(lambda: scene.app.executing)


async def waiting(scene: Scene) -> None:
    await busy(scene)
    scene.client.play(PromptQueued("p1", "one", "edit_mode"), PromptQueued("p2", "two", "edit_mode"))
    await scene.stage.shows("queued 1 · edit  one", "queued 2 · edit  two")


async def in_queue(scene: Scene) -> None:
    await waiting(scene)
    scene.app.input_panel.focus_queue()
    await scene.stage.shows("› queued 2 · edit  two")


async def in_queue_above(scene: Scene) -> None:
    await in_queue(scene)
    scene.app.input_panel.queue.action_queue_up()
    await scene.stage.shows("› queued 1 · edit  one")


async def taken_back(scene: Scene) -> None:
    await scene.write("abc")
    scene.app.composer.action_undo()
    assert scene.app.composer.text != "abc"


async def clipped(scene: Scene) -> None:
    scene.app.copy_to_clipboard("from elsewhere")


async def agents(scene: Scene) -> None:
    scene.client.play(AgentStarted("sub-1", "look", "ask_mode"))
    scene.client.play(TurnStarted("s", "look", "ask_mode"), agent="sub-1")
    await scene.stage.until(lambda: "sub-1" in scene.app.transcripts)


async def on_agent(scene: Scene) -> None:
    await agents(scene)
    scene.app.action_look()
    await scene.stage.until(lambda: scene.app.transcript.has_focus)
    scene.app.transcript.point_at(scene.app.transcripts[""].agents[0])


async def todos(scene: Scene) -> None:
    scene.client.play(TodosChanged((Todo("1", "Read it", "completed"), Todo("2", "Write it", "pending"))))
    await scene.stage.shows("Write it")


async def no_suspending(scene: Scene) -> None:
    scene.app.action_suspend_process = lambda: scene.given.append("suspended")


async def counting_drawing(scene: Scene) -> None:
    """Nothing is drawn anew by itself: the new size of the beginning has been drawn, or never will be."""
    app: Any = scene.app
    app._redraw_timer.cancel()
    await scene.stage.pilot.pause()
    display = app._display

    def drawn(screen: Any, what: Any) -> None:
        scene.given.append(what)
        display(screen, what)

    app._display = drawn


async def in_middle(scene: Scene) -> None:
    scene.app.transcript.scroll_to(y=30, animate=False)
    await scene.stage.until(lambda: scene.app.transcript.scroll_offset.y == 30)


async def looking(scene: Scene) -> None:
    scene.app.action_look()
    await scene.stage.until(lambda: scene.app.transcript.has_focus and scene.app.transcript.cursor is not None)
    scene.app.transcript.action_previous_card()
    scene.app.transcript.action_previous_card()
    scene.notes["at"] = cursor(scene)


def cursor(scene: Scene) -> int:
    view = scene.app.transcript
    assert view.cursor is not None
    return view.blocks.index(view.cursor)


async def on_call(scene: Scene) -> None:
    await looking(scene)
    view = scene.app.transcript
    view.point_at([block for block in view.blocks if isinstance(block, CallBlock)][-1])
    scene.notes["folds"] = folds(scene)


def folds(scene: Scene) -> list[Any]:
    return [block.folded for block in scene.app.transcript.blocks]


async def searching(scene: Scene) -> None:
    await looking(scene)
    scene.app.transcript.action_search()
    await scene.write("Question")
    await scene.stage.shows(" of ")


async def found(scene: Scene) -> None:
    await searching(scene)
    scene.app.transcript._update_search("Question", True)
    scene.notes["here"] = scene.app.transcript._search.here


def moved(scene: Scene, step: int) -> bool:
    search = scene.app.transcript._search
    places = search._places
    return search.here == places[(places.index(scene.notes["here"]) + step) % len(places)]


async def asked(scene: Scene) -> None:
    await scene.asks(ASKED)


async def edited(scene: Scene) -> None:
    await scene.asks(EDIT)


async def commanded(scene: Scene) -> None:
    await scene.asks(COMMAND)


def step(action: str, event: Any = COMMAND) -> Before:
    async def before(scene: Scene) -> None:
        await scene.asks(event)
        await scene.top.run_action(action)
        await scene.stage.pilot.pause()

    return before


async def ruling(scene: Scene) -> None:
    await step("allow_session")(scene)


async def scrolled(scene: Scene) -> None:
    await asked(scene)
    page = scene.top.query_one(TextPage)
    await scene.stage.until(lambda: page.max_scroll_y > 20)
    page.scroll_to(y=10, animate=False)
    await scene.stage.until(lambda: page.scroll_offset.y == 10)


def page_at(scene: Scene) -> int:
    return scene.top.query_one(TextPage).scroll_offset.y


async def marked(scene: Scene) -> None:
    await commanded(scene)
    scene.top.query_one(ChoiceBar).move(1)


async def planned(scene: Scene) -> None:
    await scene.asks(PLAN)


async def questioned(scene: Scene) -> None:
    await scene.asks(QUESTIONS)


async def second_question(scene: Scene) -> None:
    await questioned(scene)
    await scene.top.action_pick(0)
    await scene.stage.shows("Which ones?")


async def trusting(scene: Scene) -> None:
    await scene.push(TrustDialog(TrustRequest("/p", starts=("a program",))))


async def welcomed(scene: Scene) -> None:
    await scene.push(OnboardingDialog(scene.setup))
    await scene.stage.shows("anthropic/claude")


def listed(name: str, kind: type[Any], rest: str = "", mark: int = 0, *, in_rows: bool = True) -> Before:
    async def before(scene: Scene) -> None:
        await scene.open(name, kind, rest)
        if in_rows:
            scene.top.rows.focus()
            scene.top.rows.move_to(mark)
            await scene.stage.pilot.pause()

    return before


async def contents(scene: Scene) -> None:
    scene.app.action_contents()
    await scene.stage.until(lambda: isinstance(scene.top, ContentsDialog) and scene.top.rows.items)
    await scene.stage.pilot.pause()


async def how(scene: Scene) -> None:
    scene.app.push_screen(RewindScopePicker("t2"), scene.given.append)
    await scene.stage.until(lambda: isinstance(scene.top, RewindScopePicker) and scene.top.rows.items)


async def erred(scene: Scene) -> None:
    scene.app.error_log.add(START, "broken", "It broke.")
    await scene.open("errors", ErrorsDialog)


async def sure(scene: Scene) -> None:
    await listed("rules", RulesDialog)(scene)
    await scene.top.act("remove_rule", scene.top.rows.marked)
    await scene.stage.shows("Remove “")


async def new_rule(scene: Scene) -> None:
    scene.app.push_screen(NewRuleDialog(), scene.given.append)
    await scene.stage.until(lambda: isinstance(scene.top, NewRuleDialog) and scene.top.focused is not None)
    await scene.write("Bash")


async def reading(scene: Scene) -> None:
    await scene.app.run_command("diagnostics")
    await scene.stage.until(lambda: isinstance(scene.top, ReportDialog) and scene.top.query(Sheet))
    sheet = scene.top.query_one(Sheet)
    sheet.styles.max_height = 4
    await scene.stage.until(lambda: sheet.max_scroll_y > 5)
    sheet.scroll_to(y=4, animate=False)
    await scene.stage.until(lambda: sheet.scroll_offset.y == 4)


def read_at(scene: Scene) -> int:
    return scene.top.query_one(Sheet).scroll_offset.y


def stats(rest: str = "") -> Before:
    async def before(scene: Scene) -> None:
        await scene.app.run_command("stats", rest)
        await scene.stage.until(lambda: isinstance(scene.top, StatsDialog) and scene.sessions.asked)

    return before


async def key_of_provider(scene: Scene) -> None:
    await welcomed(scene)
    scene.top.action_welcome_key()
    await scene.top.action_welcome_use()
    await scene.write("secret")


# --- what one sees ---


def opened(kind: type[Any]) -> Callable[[Scene], bool]:
    return lambda scene: isinstance(scene.top, kind)


def says(words: str) -> Callable[[Scene], bool]:
    return lambda scene: words in scene.stage.screen()


def op(wanted: object) -> Callable[[Scene], bool]:
    return lambda scene: scene.submitted(wanted)


def answered(**fields: Any) -> Callable[[Scene], bool]:
    """An answer whose fields are these was given."""

    def done(scene: Scene) -> bool:
        answers = AnswerPermission | AnswerQuestions | AnswerPlan
        given = [one for one in scene.client.submitted if isinstance(one, answers)]
        return any(all(getattr(one, name) == value for name, value in fields.items()) for one in given)

    return done


def prompted(delivery: str | None) -> Callable[[Scene], bool]:
    return lambda scene: [one.delivery for one in scene.client.submitted if isinstance(one, Prompt)] == [delivery]


def in_step(name: str, **fields: Any) -> Callable[[Scene], bool]:
    def done(scene: Scene) -> bool:
        rule = scene.top._rule
        return scene.top._step == name and all(getattr(rule, field) == value for field, value in fields.items())

    return done


def mark(number: int) -> Callable[[Scene], bool]:
    return lambda scene: scene.top.rows.mark == number


def spent(by: str, days: int, of_session: bool) -> Callable[[Scene], bool]:
    return lambda scene: scene.sessions.asked[-1] == (by, days, of_session)


def closed(scene: Scene) -> bool:
    return len(scene.app.screen_stack) == 1


SESSIONS = listed("sessions", SessionPicker, mark=4)
RULES = listed("rules", RulesDialog, mark=1)


async def servers(scene: Scene) -> None:
    """The list of MCP servers, with one that is manual."""
    scene.client._info["servers"] = (ServerStatus("tiny", "disabled", manual=True),)
    await listed("mcp", ServersDialog)(scene)


CASES: tuple[Case, ...] = (
    Case("send", typed("hello"), prompted(None)),
    Case("steer", typed("hello"), prompted("steer")),
    Case("newline", typed("abc"), lambda scene: scene.app.composer.text == "abc\n"),
    Case("edit_outside", typed("abc"), says("does not support running another program")),
    Case("search_history", idle, lambda scene: scene.app.composer.searching),
    Case("paste_image", clipped, lambda scene: scene.app.composer.text == "from elsewhere"),
    Case("undo", typed("abc"), lambda scene: scene.app.composer.text != "abc"),
    Case("redo", taken_back, lambda scene: scene.app.composer.text == "abc"),
    Case("next_role", idle, op(SetRole("planner"))),
    Case("next_mode", idle, lambda scene: scene.app.mode == "ask_mode"),
    Case("errors_here", idle, opened(ErrorsDialog)),
    Case("choose_next", typed("/"), lambda scene: scene.app.composer.popup.at == 1),
    Case("choose_previous", typed("/"), lambda scene: scene.app.composer.popup.at > 1),
    Case("choose", typed("/resu"), lambda scene: scene.app.composer.text.rstrip() == "/resume"),
    Case("choose_and_send", typed("/hel"), opened(HelpDialog)),
    Case("close_list", typed("/resu"), lambda scene: not scene.app.composer.popup.open and scene.app.composer.text),
    Case("queue_up", in_queue, says("› queued 1 · edit  one")),
    Case("queue_down", in_queue_above, says("› queued 2 · edit  two")),
    Case("queue_edit", in_queue, lambda scene: scene.app.composer.text == "two"),
    Case("queue_drop", in_queue, op(DropPrompt("p2"))),
    Case("queue_steer", in_queue, op(ChangePrompt("p2", delivery="steer"))),
    Case("queue_mode", in_queue, op(ChangePrompt("p2", mode="ask_mode"))),
    Case("queue_send", in_queue, op(ChangePrompt("p2", delivery="queue"))),
    Case("queue_leave", in_queue, lambda scene: scene.app.composer.has_focus),
    Case("stop", busy, op(Interrupt())),
    Case("leave", typed("abc"), lambda scene: not scene.app.composer.text),
    Case("end_of_input", idle, lambda scene: scene.app._exit),
    Case("suspend", no_suspending, lambda scene: scene.given == ["suspended"]),
    Case("next_agent", agents, lambda scene: scene.app.agent == "sub-1"),
    Case("models", idle, opened(ModelPicker)),
    Case("effort", idle, op(SetEffort("low"))),
    Case("mcp", idle, opened(ServersDialog)),
    Case("diagnostics", idle, says("Diagnostics")),
    Case("contents", idle, opened(ContentsDialog)),
    Case("errors", idle, opened(ErrorsDialog)),
    Case("queue", waiting, says("› queued 2 · edit  two")),
    Case("todos", todos, lambda scene: scene.app.todos.folded),
    Case("side_panel", idle, lambda scene: scene.app.side.display),
    Case("help", idle, opened(HelpDialog)),
    Case("redraw", counting_drawing, lambda scene: any("LayoutUpdate" in type(one).__name__ for one in scene.given)),
    Case("permissions", idle, op(SetPermissionMode("acceptEdits"))),
    Case("page_up", in_middle, lambda scene: 0 < scene.app.transcript.scroll_offset.y < 30),
    Case(
        "page_down",
        in_middle,
        lambda scene: 30 < scene.app.transcript.scroll_offset.y < scene.app.transcript.max_scroll_y,
    ),
    Case("to_top", in_middle, lambda scene: scene.app.transcript.scroll_offset.y == 0),
    Case("to_end", in_middle, lambda scene: scene.app.transcript.following),
    Case("look", idle, lambda scene: scene.app.transcript.has_focus),
    Case("write", looking, lambda scene: scene.app.composer.has_focus),
    Case("next_card", looking, lambda scene: cursor(scene) == scene.notes["at"] + 1),
    Case("previous_card", looking, lambda scene: cursor(scene) == scene.notes["at"] - 1),
    Case("first_card", looking, lambda scene: cursor(scene) == 0),
    Case("last_card", looking, lambda scene: cursor(scene) > scene.notes["at"] + 1),
    Case("search", looking, lambda scene: scene.app.query_one(SearchBar).is_open),
    Case("next_match", found, lambda scene: moved(scene, 1)),
    Case("previous_match", found, lambda scene: moved(scene, -1)),
    Case("fold", on_call, lambda scene: folds(scene).count(False) == scene.notes["folds"].count(False) + 1),
    Case("fold_all", on_call, lambda scene: folds(scene).count(False) > 10),
    Case("edit_prompt", looking, lambda scene: isinstance(scene.top, ConfirmDialog)),
    Case("open_agent", on_agent, lambda scene: scene.app.agent == "sub-1"),
    Case("copy_card", looking, says("Copied.")),
    Case("stats", looking, opened(StatsDialog)),
    Case("help_here", looking, opened(HelpDialog)),
    Case("quit", looking, says("again to exit.")),
    Case(
        "search_done",
        searching,
        lambda scene: scene.app.transcript.has_focus and scene.app.query_one(SearchBar).is_open,
    ),
    Case("search_close", searching, lambda scene: not scene.app.query_one(SearchBar).is_open),
    Case("allow_once", commanded, answered(allow=True, rule="")),
    Case("allow_session", commanded, in_step("rule", allow=True, scope="session")),
    Case("allow_project", commanded, in_step("rule", allow=True, scope="project")),
    Case("allow_everywhere", commanded, in_step("rule", allow=True, scope="user")),
    Case("allow_mode", edited, answered(allow=True, permission_mode="acceptEdits")),
    Case("more_answers", commanded, says("Deny always")),
    Case("allow_note", commanded, in_step("note")),
    Case("deny", commanded, answered(allow=False, interrupt=False)),
    Case("deny_words", commanded, in_step("no")),
    Case("deny_always", commanded, in_step("rule", allow=False, scope="project")),
    Case("edit_call", commanded, in_step("edit")),
    Case("show_call", commanded, lambda scene: scene.top._view == "all"),
    Case("explain_keys", commanded, says("Edit the arguments before the call runs.")),
    Case("stop_work", commanded, answered(allow=False, interrupt=True)),
    Case("approve_plan", planned, answered(decision="approve")),
    Case("plan_session", planned, answered(decision="approve_new_session")),
    Case("change_plan", planned, lambda scene: scene.top._writing),
    Case("keep_planning", planned, answered(decision="keep_planning")),
    Case("next_option", questioned, lambda scene: scene.top._draft.cursor == 1),
    Case("previous_option", questioned, lambda scene: scene.top._draft.cursor == 2),
    Case("toggle_option", second_question, says("[x] C")),
    Case("own_words", questioned, lambda scene: scene.top._writing),
    Case("previous_question", second_question, lambda scene: scene.top._draft.number == 0),
    Case("settle", questioned, lambda scene: scene.top._draft.number == 1),
    Case("cancel", questioned, answered(cancelled=True)),
    Case("next_answer", trusting, lambda scene: scene.top.query_one(ChoiceBar).chosen == "yes"),
    Case("previous_answer", trusting, lambda scene: scene.top.query_one(ChoiceBar).chosen == "yes"),
    Case("take_answer", marked, answered(allow=True)),
    Case("asked_down", scrolled, lambda scene: page_at(scene) == 11),
    Case("asked_up", scrolled, lambda scene: page_at(scene) == 9),
    Case("asked_page_down", scrolled, lambda scene: page_at(scene) > 11),
    Case("asked_page_up", scrolled, lambda scene: page_at(scene) < 9),
    Case("asked_first", scrolled, lambda scene: page_at(scene) == 0),
    Case("asked_last", scrolled, lambda scene: page_at(scene) == scene.top.query_one(TextPage).max_scroll_y),
    Case("confirm", ruling, answered(rule="Bash(git push origin main)", remember="session")),
    Case("use_arguments", step("edit_call", ASKED), says("No changes.")),
    Case("other", ruling, in_step("rule", scope="project")),
    Case("next_rule", ruling, lambda scene: _line(scene) == "Bash(git push:*)"),
    Case("previous_rule", ruling, lambda scene: _line(scene) == "Bash(git push:*)"),
    Case("back", ruling, in_step("ask")),
    Case("yes", sure, op(RemoveRule(1))),
    Case("no", trusting, lambda scene: scene.given == [False]),
    Case("welcome_use", welcomed, lambda scene: [one.ref for one in scene.given] == ["anthropic/claude-sonnet-4-5"]),
    Case("welcome_next", welcomed, lambda scene: scene.top._cursor == 1),
    Case("welcome_previous", welcomed, lambda scene: scene.top._cursor == 1),
    Case("welcome_key", welcomed, says("Which provider is the key for?")),
    Case("welcome_url", welcomed, lambda scene: scene.top._step == "url"),
    Case("welcome_look", welcomed, says("ollama/qwen3")),
    Case("welcome_back", welcomed, lambda scene: scene.given == [None]),
    Case("close", SESSIONS, closed),
    Case("list_up", SESSIONS, mark(3)),
    Case("list_down", SESSIONS, mark(5)),
    Case("list_page_up", SESSIONS, mark(0)),
    Case("list_page_down", SESSIONS, mark(8)),
    Case("list_first", SESSIONS, mark(0)),
    Case("list_last", SESSIONS, mark(8)),
    Case("list_choose", listed("models", ModelPicker), closed),
    Case("list_narrow", SESSIONS, lambda scene: scene.top.filter.has_focus),
    Case("list_other", SESSIONS, lambda scene: scene.top.filter.has_focus),
    Case("rename_session", SESSIONS, lambda scene: scene.top.entry.has_focus),
    Case("copy_session", SESSIONS, lambda scene: isinstance(scene.top, ConfirmDialog)),
    Case("export_session", SESSIONS, lambda scene: scene.sessions.exported == ["20260101120000004"]),
    Case("delete_session", SESSIONS, says("permanently?")),
    Case(
        "use_once",
        listed("models", ModelPicker),
        lambda scene: bool(scene.client.submitted) and not scene.sessions.saved,
    ),
    Case("look_for_servers", listed("models", ModelPicker), says("ollama/qwen3")),
    Case("add_rule", RULES, opened(NewRuleDialog)),
    Case("remove_rule", RULES, says("Remove “")),
    Case("open_rule", RULES, says("This rule is not stored in a file.")),
    Case("enable_server", servers, op(ControlServers("enable", ("tiny",)))),
    Case("disable_server", servers, op(ControlServers("disable", ("tiny",)))),
    Case("reconnect_server", servers, op(ControlServers("reconnect", ("tiny",)))),
    Case("rule_action", new_rule, lambda scene: scene.top.action == "ask"),
    Case("rule_scope", new_rule, lambda scene: scene.top.scope == "project"),
    Case("redo_rewind", listed("rewind", RewindPicker), closed),
    Case("force_rewind", how, says("overwriting foreign changes")),
    Case("fork_there", contents, lambda scene: isinstance(scene.top, ConfirmDialog)),
    Case("copy_errors", erred, says("Copied all errors.")),
    Case("read_down", reading, lambda scene: read_at(scene) == 5),
    Case("read_up", reading, lambda scene: read_at(scene) == 3),
    Case("read_page_down", reading, lambda scene: read_at(scene) == 7),
    Case("read_page_up", reading, lambda scene: read_at(scene) == 1),
    Case("read_first", reading, lambda scene: read_at(scene) == 0),
    Case("read_last", reading, lambda scene: read_at(scene) == scene.top.query_one(Sheet).max_scroll_y),
    Case("read_copy", reading, lambda scene: "warnings" in scene.app.clipboard),
    Case("read_close", reading, closed),
    Case("stats_scope", stats(), spent("purpose", 0, False)),
    Case("stats_next", stats(), spent("model", 0, True)),
    Case("stats_previous", stats(), spent("day", 0, True)),
    Case("stats_today", stats(), spent("purpose", 1, True)),
    Case("stats_week", stats(), spent("purpose", 7, True)),
    Case("stats_month", stats(), spent("purpose", 30, True)),
    Case("stats_quarter", stats(), spent("purpose", 90, True)),
    Case("stats_all", stats("today"), spent("purpose", 0, True)),
)


def _line(scene: Scene) -> str:
    return scene.top.query_one("#line").value


MORE: tuple[Case, ...] = (
    Case("confirm", new_rule, lambda scene: scene.given == [AddRule("Bash", "allow", "session")]),
    Case("confirm", key_of_provider, lambda scene: scene.setup.stored == ["secret"]),
    Case("back", key_of_provider, says("Which provider is the key for?")),
    Case("no", sure, lambda scene: "Remove “" not in scene.stage.screen()),
    Case("yes", trusting, lambda scene: scene.given == [True]),
    Case("next_answer", commanded, lambda scene: scene.top.query_one(ChoiceBar).chosen == "allow_once"),
    Case("take_answer", trusting, lambda scene: scene.given == [False]),
    Case("close", trusting, lambda scene: scene.given == [False]),
    Case("close", reading, closed),
    Case("close", stats(), closed),
    Case("close", new_rule, closed),
    Case("list_choose", how, lambda scene: scene.given == ["both"]),
    Case("list_down", listed("help", HelpDialog, in_rows=False), mark(1)),
)
"""The same keys in other places."""
