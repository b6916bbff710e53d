"""Sub-agents in the app: focus, prompts and Esc for one of them, their cards, and exiting while they work."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from rich.segment import Segment

from odin.core.call_events import PermissionAsked, ToolStarted, UsageRecorded
from odin.core.event import AgentEnded, AgentStarted, Envelope, PromptQueued, TurnEnded, TurnStarted, Warned
from odin.core.message import Usage
from odin.core.op import Answer, DropPrompt, Interrupt, Prompt, RunUserShell
from odin.core.team import MailSent, TaskChanged, TaskReport
from odin.testing import ScriptedServer, say
from odin.ui.slash_commands.agents import format_agents
from odin.ui.tui.dialogs.form import FormDialog
from odin.ui.tui.dialogs.sessions import ContentsDialog
from tests.engine.test_team import TeamScript, complete, delegate
from tests.tui.conftest import OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

STARTED = (
    AgentStarted("scout-1", "look for tests", "edit_mode", "find tests", task_id="adhoc-1", agent_type="scout"),
    AgentStarted("scout-2", "read the docs", "edit_mode", "read docs", task_id="adhoc-2", agent_type="scout"),
)


async def start_agents(stage: Stage, client: FakeClient, *, main: bool = False) -> None:
    """Start two delegated sub-agents and, with `main`, a turn of the main agent."""
    if main:
        client.emit(TurnStarted("m1", "delegate", "edit_mode"))
    client.emit(*STARTED)
    for number in (1, 2):
        client.emit(TaskChanged(f"adhoc-{number}", "running", f"scout-{number}"), agent=f"scout-{number}")
        client.emit(TurnStarted(f"s{number}", "", "edit_mode"), agent=f"scout-{number}")
    await stage.shows("2 agents working")


def list_ops(client: FakeClient, *kinds: type[Any]) -> list[Any]:
    return [op for op in client.submitted if isinstance(op, kinds)]


async def test_a_real_agent_is_focused_steered_interrupted_alone_and_read_after_its_end(open_app: OpenApp) -> None:
    gate, last = Event(), Event()
    script = TeamScript(
        [delegate("a"), delegate("b"), say("Both are started."), *(say("I see.") for _ in range(9))],
        a=[say("Counting sheep " * 300).stall(after=8), say("Goats?"), complete("Counted 300 sheep.").hold(gate)],
        b=[complete("Read it all.").hold(last)],
    )
    async with open_app(script, size=(140, 40)) as stage:
        agents = stage.app.facts.agents
        await stage.send("go")
        await stage.shows("Both are started.", "2 agents working")
        await stage.press("shift+tab")
        await stage.shows("agent general-1", "to general-1", "Counting sheep")
        await stage.press("escape")
        await stage.until(lambda: agents.all["general-1"].state == "idle")
        assert agents.all["general-2"].is_working and stage.app.agent == "general-1"
        await stage.send("count on")
        await stage.shows("Goats?")
        await stage.type("/loop @g")
        await stage.shows("› @general-1", "@general-2")
        await stage.press("tab")
        await stage.send(" on count sheep only")
        await stage.shows("loop 1/10")
        gate.set()
        await stage.until(lambda: not agents.is_live("general-1"))
        await stage.shows("general-1: completed. You are back at the main agent.")
        assert agents.all["general-2"].is_working and not stage.app.agent
        await stage.type("/focus ge")
        await stage.shows("› general-2")
        await stage.press("tab", "enter")
        await stage.shows("to general-2")
        last.set()
        await stage.until(lambda: not agents.running and not stage.app.executing)
        main = stage.app.transcripts[""]
        assert [(card.key, card.state, card.note) for card in main.agents] == [
            ("general-1", "completed", "Counted 300 sheep."),
            ("general-2", "completed", "Read it all."),
        ]
        assert not [block for block in main.blocks if getattr(block, "name", "") == "Delegate"]
        stage.app.action_look()
        stage.app.transcript.point_at(main.agents[0])
        await stage.press("a")
        await stage.shows("count on", "general-1 (completed)", "to the main agent · edit")
        assert stage.app.composer.target.recipient == ""
        assert stage.server.rejected == []


async def test_shift_tab_cycles_through_main_and_the_live_agents() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.press("shift+tab")
        await stage.shows("No sub-agent is running.")
        await start_agents(stage, client)
        seen: list[str] = []
        for _ in range(3):
            await stage.press("shift+tab")
            seen.append(stage.app.agent)
        assert seen == ["scout-1", "scout-2", ""]
        client.emit(TaskChanged("adhoc-1", "completed", "scout-1"), agent="scout-1")
        client.emit(AgentEnded("scout-1", "end_turn"))
        await stage.press("shift+tab")
        assert stage.app.agent == "scout-2"


@pytest.mark.slow
async def test_prompts_commands_queue_and_keys_follow_the_focus() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await start_agents(stage, client, main=True)
        client.emit(PromptQueued("p1", "for main", "edit_mode"))
        client.emit(PromptQueued("p2", "for the scout", "edit_mode"), agent="scout-1")
        await stage.shows("queued 1 · edit  for main")
        await stage.press("shift+tab")
        await stage.shows("queued 1 · edit  for the scout", "1 queued")
        assert "for main" not in stage.screen()
        await stage.send("look left")
        await stage.send("!echo hi")
        await stage.send("/steer main goes on")
        await stage.until(lambda: len(list_ops(client, Prompt, RunUserShell)) == 3)
        sent = list_ops(client, Prompt, RunUserShell)
        assert [(op.agent, getattr(op, "text", "")) for op in sent] == [
            ("scout-1", "look left"),
            ("scout-1", ""),
            ("", "main goes on"),
        ]
        await stage.press("ctrl+q", "d", "escape")
        assert list_ops(client, DropPrompt) == [DropPrompt("p2", "scout-1")]
        await stage.press("escape")
        await stage.press("ctrl+c")
        assert list_ops(client, Interrupt) == [Interrupt(agent="scout-1")] * 2
        await stage.press("shift+tab", "shift+tab", "escape")
        assert list_ops(client, Interrupt)[-1] == Interrupt()


async def test_focus_returns_to_main_when_the_agent_ends_and_keeps_the_draft() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await start_agents(stage, client)
        await stage.press("shift+tab")
        await stage.type("half a sent")
        client.emit(TaskChanged("adhoc-1", "failed", reason="It gave up."), agent="scout-1")
        client.emit(AgentEnded("scout-1", "error"))
        await stage.shows("scout-1: failed. You are back at the main agent.", "half a sent")
        assert stage.app.agent == "" and stage.app.composer.target.recipient == ""


async def test_esc_at_an_idle_main_agent_stops_the_sub_agents_only_if_pressed_twice() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await start_agents(stage, client)
        await stage.press("escape")
        await stage.shows("2 agents are at work: scout-1, scout-2. Press Esc again")
        await stage.press("ctrl+c")
        only_commands = Interrupt(alone=True)
        assert list_ops(client, Interrupt) == [only_commands, only_commands], (
            "Esc stops only shell commands of the user"
        )
        await stage.press("escape")
        assert list_ops(client, Interrupt)[-1] == Interrupt()


async def test_exit_and_session_switch_ask_first_while_agents_work() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await start_agents(stage, client)
        for leave in (stage.press("ctrl+d"), stage.send("/exit"), stage.press("ctrl+c", "ctrl+c")):
            await leave
            await stage.until(lambda: isinstance(stage.app.screen, FormDialog))
            await stage.shows("Agents are still at work. Exit anyway?", "scout-1: find tests", "scout-2: read docs")
            await stage.press("n")
        assert not stage.app._exit
        for switch in ("/new", "/resume other", "/fork"):
            await stage.send(switch)
            await stage.until(lambda: isinstance(stage.app.screen, FormDialog))
            await stage.shows("Switch to another session anyway?", "scout-2: read docs", "Switching stops them.")
            await stage.press("n")
        assert stage.app.client is client
        await stage.press("ctrl+d")
        await stage.until(lambda: isinstance(stage.app.screen, FormDialog))
        await stage.press("y")
        assert stage.app._exit


async def test_requests_of_sub_agents_outlive_the_main_turn_and_esc_stops_only_that_agent() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await start_agents(stage, client, main=True)
        client.emit(PermissionAsked("ask-1", "c1", "Bash", {"command": "make"}, "not allowed yet"), agent="scout-2")
        await stage.shows("scout-2 asks")
        client.emit(TurnEnded("m1", "end_turn"))
        client.emit(TurnEnded("s1", "end_turn"), agent="scout-1")
        scout = stage.app.facts.agents.all["scout-1"]
        await stage.until(lambda: not stage.app.executing and not scout.activity.is_in_turn)
        assert "scout-2 asks" in stage.screen()
        await stage.press("escape")
        await stage.until(lambda: list_ops(client, Answer))
        assert list_ops(client, Answer, Interrupt) == [Answer("ask-1", "stop")]


async def test_the_side_panel_shows_state_model_context_cost_and_unread_mail() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client), size=(150, 40)) as stage:
        await start_agents(stage, client)
        used = UsageRecorded("openai/small-1", Usage(4000, 1000), 0.25, 10_000)
        client.emit(used, agent="scout-1")
        client.emit(MailSent("mail-1", "", "scout-1", "message", "hurry", "urgent", "adhoc-1"))
        client.emit(MailSent("mail-2", "scout-2", "", "progress", "half", task_id="adhoc-2"), agent="scout-2")
        question = MailSent("mail-3", "scout-2", "", "decision_required", "left?", "interrupt", "adhoc-2")
        client.emit(TurnEnded("s2", "end_turn"), agent="scout-2")
        client.emit(TaskChanged("adhoc-2", "waiting_main", "scout-2", reason="left?", mail=question), agent="scout-2")
        await stage.shows("1 unread, 1 urgent · 50% context", "$0.25 · small-1", "2 unread, 1 urgent", "waits for main")
        client.emit(TurnStarted("m2", "", "edit_mode", mail=("mail-2", "mail-3")))
        await stage.until(lambda: "2 unread" not in stage.screen())


def test_one_card_shows_the_state_of_the_task_and_a_continued_task_has_a_second_card() -> None:
    from odin.ui.transcript.model import TranscriptModels

    models = TranscriptModels()
    asked = "Which side?"
    events: tuple[tuple[Any, str], ...] = (
        (STARTED[0], ""),
        (ToolStarted("c1", "Grep", {}, "todo"), "scout-1"),
        (TaskChanged("adhoc-1", "waiting_main", "scout-1", reason=asked), "scout-1"),
    )
    for seq, (event, agent) in enumerate(events):
        models.apply(Envelope(seq, float(seq), "s", event, agent))
    (card,) = models[""].agents
    assert (card.type, card.state, card.note, card.calls, card.is_animated) == (
        "scout",
        "waiting_main",
        asked,
        1,
        False,
    )
    models.apply(Envelope(3, 3.0, "s", TaskChanged("adhoc-1", "running", "scout-1"), "scout-1"))
    assert (card.state, card.note, card.is_animated) == ("running", "", True)
    ended = TaskChanged(
        "adhoc-1", "completed", "scout-1", "Found it.", "Completed.", completion=TaskReport("Found it.")
    )
    models.apply(Envelope(4, 4.0, "s", ended, "scout-1"))
    models.apply(Envelope(5, 5.0, "s", AgentEnded("scout-1", "end_turn", "Found it.")))
    models.apply(Envelope(5, 5.5, "s", Warned("Its worktree is kept.", "info"), "scout-1"))
    again = AgentStarted("scout-3", "more", "edit_mode", task_id="adhoc-1", call_id="d1", continues="scout-1")
    models.apply(Envelope(6, 6.0, "s", again))
    assert [(card.key, card.state, card.note) for card in models[""].agents] == [
        ("scout-1", "completed", "Found it.\nIts worktree is kept."),
        ("scout-3", "running", ""),
    ]


async def test_a_command_for_an_agent_shows_in_its_transcript(open_app: OpenApp, workspace: Path) -> None:
    script = TeamScript(
        [delegate("a"), say("Started."), say("ok")], a=[say("Waiting " * 99).stall(after=4), complete("done")]
    )
    async with open_app(script) as stage:
        await stage.send("go")
        await stage.shows("Started.")
        await stage.press("shift+tab")
        await stage.send("!echo mine; touch there")
        await stage.until((workspace / "there").exists)
        await stage.shows("! echo mine", "mine")
        assert not any("echo mine" in getattr(block, "command", "") for block in stage.app.transcripts[""].blocks)


@pytest.mark.slow
async def test_commands_list_focus_and_stop_agents(open_app: OpenApp) -> None:
    script = TeamScript([delegate("a"), say("Started."), say("ok")], a=[say("Waiting " * 99).stall(after=4)])
    async with open_app(script) as stage:
        await stage.send("go")
        await stage.shows("Started.")
        await stage.send("/agents")
        await stage.shows("Agents and tasks", "general-1: working, task adhoc-1")
        await stage.press("escape")
        await stage.send("/focus general-1")
        await stage.shows("to general-1")
        await stage.send("/focus nobody")
        await stage.shows("There is no running agent 'nobody'.")
        stage.app.composer.clear_draft()
        await stage.send("/agents stop general-1")
        await stage.shows("general-1: cancelled. You are back at the main agent.")
        (task,) = (await stage.app.client.snapshot()).tasks
        assert task.state == "cancelled"


async def test_an_agent_has_the_color_of_its_type_wherever_it_is_named() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client), size=(140, 30)) as stage:
        for name, color in (("scout-1", "pink"), ("scout-2", "#12ab34")):
            client.emit(AgentStarted(name, "look", "edit_mode", task_id="t", agent_type="scout", color=color))
            client.emit(TurnStarted(name, "", "edit_mode"), agent=name)
        await stage.shows("2 agents working")
        named = [part for strip in stage.strips() for part in strip if "scout-" in part.text]
        assert {(part.text.strip("• "), list_colors(part)) for part in named} == {
            ("scout-1", "#d68fb8"),
            ("scout-2", "#12ab34"),
        }
        await stage.press("shift+tab")
        await stage.shows("to scout-1")
        title, border = (
            next(part for strip in stage.strips() for part in strip if part.text.strip(" :") == text)
            for text in ("scout-1", "to scout-1")
        )
        assert (list_colors(title), list_colors(border)) == ("#d68fb8", "#d68fb8")


def list_colors(part: Segment) -> str:
    color = part.style.color if part.style is not None else None
    return color.get_truecolor().hex if color is not None else ""


async def test_mail_is_not_a_prompt(open_app: OpenApp, home: Path) -> None:
    script = TeamScript(
        [say("Hello."), delegate("a"), say("It is started."), say("I read it.")], a=[complete("Counted 300 sheep.")]
    )
    async with open_app(script, size=(120, 40)) as stage:
        await stage.send("first prompt")
        await stage.shows("Hello.")
        await stage.send("second prompt")
        await stage.shows("I read it.", "← [mail-2] completed from general-1, task adhoc-1:")
        await stage.until(lambda: not stage.app.executing)
        shot = await stage.app.client.snapshot()
        assert [turn.body for turn in shot.prompts] == ["first prompt", "second prompt"]
        assert [turn.source for turn in shot.messages] == ["user", "user", "mail"]
        await stage.send("/rewind")
        await stage.shows("Rewind to before", "1 second prompt", "2 first prompt")
        await stage.press("escape", "ctrl+t")
        await stage.shows("Contents", "second prompt")
        dialog = stage.app.screen
        assert isinstance(dialog, ContentsDialog) and len(dialog.rows.items) == 2
        await stage.press("escape")
        await stage.send("/undo")
        await stage.until(lambda: stage.app.composer.text == "second prompt")
        left = await stage.app.client.snapshot()
        assert [turn.body for turn in left.messages] == ["first prompt"]
        (listed,) = await stage.app.sessions.list_sessions()
        assert listed.turns == 1


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
async def test_views_of_a_resumed_session_agree_and_a_prompt_continues_an_idle_task(
    open_app: OpenApp, home: Path, killed: bool
) -> None:
    script = TeamScript(
        [delegate("a"), say("It is started."), say("I read it.")],
        a=[say("Counting sheep " * 300).stall(after=8), complete("Counted 300 sheep.")],
    )
    with ScriptedServer(script) as server:
        async with open_app(server=server, size=(140, 40)) as stage:
            await stage.send("go")
            await stage.shows("It is started.", "1 agent working")
            await stage.press("shift+tab")
            await stage.shows("Counting sheep")
        (log,) = home.glob(".local/state/odin/sessions/*/*/main.jsonl")
        if killed:  # as if it had been killed before it could record the ends
            lines = log.read_bytes().splitlines(keepends=True)
            ends = (b'"type":"AgentEnded"', b'"type":"TurnEnded","id":"mail-1"')
            log.write_bytes(b"".join(line for line in lines if not any(end in line for end in ends)))
        async with open_app(server=server, size=(140, 40), resume=log.parent.name) as stage:
            await stage.shows("• general-1 job a  idle")
            shot = await stage.app.client.snapshot()
            assert [(task.id, task.state) for task in shot.tasks] == [("adhoc-1", "idle")] and not shot.sub_agents
            assert "adhoc-1 (general-1): idle" in format_agents(shot, 100)
            await stage.press("shift+tab")
            await stage.shows("to general-1", "idle; your next prompt continues it")
            await stage.press("shift+tab", "ctrl+c")
            await stage.type("/focus ge")
            await stage.shows("› general-1", "job a")
            await stage.press("tab", "enter")
            await stage.shows("to general-1")
            await stage.send("count on")
            await stage.shows("✓ general-2 job a  completed", "Continued by general-2.", "I read it.")
            asked = next(seen for seen in server.requests if "count on" in str(seen.messages[-1]))
            assert "Counting sheep" in str(asked.messages) and "Delegate" not in asked.tool_names
            assert server.rejected == []
