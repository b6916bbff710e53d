"""The session facts that the status line and the side panel show, folded from events."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from odin.core.call_events import (
    KeyPoolChanged,
    PermissionAsked,
    RateLimitUpdated,
    RequestStarted,
    SkillUsed,
    SpawnFinished,
    SpawnStarted,
    TodosChanged,
    ToolEnded,
    UsageRecorded,
)
from odin.core.client import ContextReport, SessionInfo, SkillSummary
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Envelope,
    FilesChanged,
    LanguageServersChanged,
    LoopChanged,
    ModelChanged,
    PromptDropped,
    PromptQueued,
    Redone,
    Rewound,
    ServersChanged,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import FileChange, FileState, LanguageServerState, ServerStatus, Todo
from odin.core.format import format_count, format_seconds, format_usd, get_model_name
from odin.core.message import Usage
from odin.ui.edited_files import MAX_FILES
from odin.ui.session_facts import SessionFacts
from odin.ui.slash_commands.reports import format_context
from odin.ui.status_parts import list_parts
from odin.ui.tui.palette import DARK, make_palette
from odin.ui.tui.panels.side import SideSections
from odin.ui.tui.panels.status import lay_out

PALETTE = make_palette(DARK)
INFO = SessionInfo(
    session="s",
    cwd="/srv/project",
    model="anthropic/claude-sonnet-4-5",
    version="0.1.0",
    mode="edit_mode",
    permission_mode="default",
    tools=(),
    sandbox="bubblewrap, network off",
    branch="main",
)
HALF = ContextReport("m", 80_000, 200_000, 160_000, measured=True)
SPENT = UsageRecorded("m", Usage(input=1_000, output=500, cache_read=8_500), 0.5)


def make_facts(*events: Any, agent: str = "", info: SessionInfo = INFO) -> SessionFacts:
    found = SessionFacts(info)
    for seq, event in enumerate(events):
        found.apply(Envelope(seq, float(seq), "s", event, agent))
    return found


def get_status_line(found: SessionFacts, width: int, agent: str = "") -> str:
    return lay_out(list_parts(found, "edit_mode", agent), width, PALETTE).plain


def get_side_panel(found: SessionFacts, width: int = 38, now: float = 0.0, agent: str = "") -> str:
    return "\n".join(row.text.plain for row in SideSections(found, PALETTE, width, agent, now).build_rows())


def test_a_wide_status_line_shows_all_parts() -> None:
    found = make_facts(SPENT, PromptQueued("p2", "later", "edit_mode"))
    found.context = HALF
    shown = get_status_line(found, 140)
    assert len(shown) == 140
    assert shown.startswith("edit  claude-sonnet-4-5  context 40%  1 queued  $0.50  10k tokens  cache 89%   ")
    assert shown.endswith("   bubblewrap  main  /srv/project")


@pytest.mark.parametrize("width", [*range(1, 60), 80, 100, 160, 300])
def test_the_status_line_never_exceeds_the_width(width: int) -> None:
    found = make_facts(SPENT, ModelChanged("openai/gpt-5", "overloaded"), PromptQueued("p2", "later", "edit_mode"))
    found.context = HALF
    assert len(get_status_line(found, width)) <= width


def test_forty_columns_keep_the_mode_the_model_and_the_context() -> None:
    found = make_facts(SPENT, LoopChanged("executing", "x", 2, 10), PromptQueued("p2", "later", "edit_mode"))
    found.context = HALF
    shown = get_status_line(found, 40)
    assert shown.startswith("edit")
    assert "claude-sonnet-4-5" in shown
    assert "40%" in shown


def test_a_narrow_status_line_drops_the_least_important_parts_first() -> None:
    found = make_facts(SPENT)
    found.context = HALF
    gone = [
        word
        for word in ("/srv/project", "cache", "bubblewrap", "tokens", "main", "$0.50")
        if word in get_status_line(found, 200)
    ]
    order: list[str] = []
    for width in range(200, 30, -1):
        order += [word for word in gone if word not in get_status_line(found, width) and word not in order]
    assert order == ["/srv/project", "cache", "bubblewrap", "tokens", "main", "$0.50"]


def test_the_percentage_is_of_what_requests_may_fill_as_in_the_report() -> None:
    found = make_facts()
    found.context = HALF
    assert "context 40%" in get_status_line(found, 100)
    assert "80,000 of 200,000 tokens" in get_side_panel(found)
    assert "compacts at 160,000" in get_side_panel(found)
    assert "(40%)" in format_context(HALF)
    assert not HALF.is_nearly_full
    found.context = msgspec.structs.replace(HALF, budget=160_000)
    assert "context 50%" in get_status_line(found, 100)
    assert "80,000 of 160,000 tokens" in get_side_panel(found)
    assert ContextReport("m", 130_000, 200_000, 160_000, measured=True).is_nearly_full
    found.context = ContextReport("m", 80_000, 0, 0, measured=False)
    assert "context" not in get_status_line(found, 100)


def test_a_focused_sub_agent_shows_its_own_usage() -> None:
    """USAGE1. The main agent's view shows the totals of the session; all agents share the remaining budget."""
    found = make_facts(SPENT, info=msgspec.structs.replace(INFO, budget_usd=2.0))
    found.context = HALF
    for cost, window, purpose in ((0.25, 40_000, "main"), (0.05, 1_000, "title")):
        spent = UsageRecorded("m", Usage(input=3_000, output=1_000), cost, window, purpose)
        found.apply(Envelope(9, 9.0, "s", spent, "agent-1"))
    assert "context 40%  $0.80, $1.20 left  18k tokens" in get_status_line(found, 200)
    assert "context 10%  $0.30, $1.20 left  8.0k tokens" in get_status_line(found, 200, "agent-1")
    assert "$0.30 · 8.0k tokens\n$1.20 of $2.00 left" in get_side_panel(found, agent="agent-1")
    assert "4,000 of 40,000 tokens\nin the context window" in get_side_panel(found, agent="agent-1")
    assert "$0.80 · 18k tokens" in get_side_panel(found)
    fresh = get_status_line(found, 200, "agent-2")
    assert "$" not in fresh
    assert "context" not in fresh


def test_an_estimated_context_size_is_marked() -> None:
    found = make_facts()
    found.context = ContextReport("m", 8_000, 200_000, 160_000, measured=False)
    assert "~4%" in get_status_line(found, 100)


def test_a_fallback_model_is_shown_beside_the_chosen_one() -> None:
    found = make_facts(ModelChanged("openai/gpt-5", "the other one is overloaded"))
    assert "gpt-5 (instead of claude-sonnet-4-5)" in get_status_line(found, 100)
    assert "answering: openai/gpt-5" in get_side_panel(found)
    assert "instead" not in get_status_line(make_facts(ModelChanged("openai/gpt-5")), 100)
    back = make_facts(ModelChanged("openai/gpt-5", "overloaded"), RequestStarted(1, "anthropic/claude-sonnet-4-5"))
    assert "instead" not in get_status_line(back, 100)
    asked = make_facts(ModelChanged("openai/gpt-5", "overloaded"), RequestStarted(1, "gpt-5"))
    assert asked.running_model == "openai/gpt-5"
    offline = make_facts(ModelChanged("offline/planner"), RequestStarted(1, "planner"))
    assert "instead" not in get_status_line(offline, 100)


def test_past_model_changes_do_not_override_the_current_model() -> None:
    """The session was resumed with a different model."""
    found = SessionFacts(INFO)
    past = (ModelChanged("openai/gpt-5"), RequestStarted(1, "gpt-5"), ModelChanged("xai/grok-4", "overloaded"))
    for seq, event in enumerate(past):
        found.apply(Envelope(seq, float(seq), "s", event), live=False)
    assert "claude-sonnet-4-5" in get_status_line(found, 100)
    assert "instead" not in get_status_line(found, 100)


def test_unknown_costs_are_shown_as_unpriced() -> None:
    assert "unpriced" in get_status_line(make_facts(UsageRecorded("m", Usage(input=10), 0.0)), 120)
    assert "$0.50 + unpriced" in get_status_line(make_facts(SPENT, UsageRecorded("n", Usage(input=10), 0.0)), 120)
    assert "$0.00" in get_status_line(make_facts(UsageRecorded("m", Usage(input=10), 0.0, free=True)), 120)


def test_the_remaining_budget_is_shown() -> None:
    found = make_facts(SPENT)
    found.budget_usd = 2.0
    assert "$0.50, $1.50 left" in get_status_line(found, 120)
    assert "$1.50 of $2.00 left" in get_side_panel(found)


def test_a_low_rate_limit_is_shown_until_it_recovers() -> None:
    low = RateLimitUpdated("anthropic", requests_left=3, requests_limit=50)
    assert "3 of 50 requests left" in get_status_line(make_facts(low), 160)
    assert "left" not in get_status_line(make_facts(low, RateLimitUpdated("anthropic", 50, 50)), 160)


def test_queued_prompts_are_counted() -> None:
    queued = (PromptQueued("a", "1", "ask_mode"), PromptQueued("b", "2", "ask_mode"))
    assert "2 queued" in get_status_line(make_facts(*queued), 120)
    assert "1 queued" in get_status_line(make_facts(*queued, TurnStarted("a", "1", "ask_mode")), 120)
    assert "queued" not in get_status_line(make_facts(*queued, PromptDropped("a"), PromptDropped("b")), 120)


def test_loop_mode_is_shown_while_it_is_on() -> None:
    on = LoopChanged("executing", "all tests pass", 2, 10)
    assert "loop 2/10" in get_status_line(make_facts(on), 120)
    assert "loop" not in get_status_line(make_facts(on, LoopChanged("completed", iteration=2, limit=10)), 120)


def test_permission_modes_other_than_the_default_are_shown() -> None:
    found = make_facts()
    assert "default" not in get_status_line(found, 120)
    found.permission_mode = "bypassPermissions"
    assert "bypassPermissions" in get_status_line(found, 60)


def test_a_missing_sandbox_is_shown() -> None:
    from msgspec.structs import replace

    unsandboxed = make_facts(info=replace(INFO, sandbox="no sandbox (bubblewrap: not installed)"))
    assert "no sandbox" in get_status_line(unsandboxed, 70)


# --- the side panel ---


def file_state(path: str, sha: str, kind: Any = "file") -> FileState:
    return FileState(path, kind, sha)


def edit_events(call: str, path: str, before: str, after: str, diff: str) -> tuple[Any, ...]:
    left = FilesChanged(call, (FileChange(file_state(path, before), file_state(path, after)),))
    return left, ToolEnded(call, "Edit", "success", "ok", display=diff, files=(path,))


DIFF = "--- a.py\n+++ a.py\n@@ -1,2 +1,3 @@\n x\n-y\n+z\n+w\n"


@pytest.mark.parametrize("turned", [False, True], ids=["left-first", "ended-first"])
def test_changed_files_are_listed_with_added_and_removed_lines(turned: bool) -> None:
    events = edit_events("c1", "/srv/project/src/a.py", "1", "2", DIFF)
    found = make_facts(
        *(reversed(events) if turned else events), *edit_events("c2", "/srv/project/src/a.py", "2", "3", DIFF)
    )
    assert "src/a.py" in get_side_panel(found)
    assert "+4 -2" in get_side_panel(found)


def test_a_restored_file_is_not_listed() -> None:
    path = "/srv/project/a.py"
    found = make_facts(*edit_events("c1", path, "1", "2", DIFF))
    assert "a.py" in get_side_panel(found)
    back = FileChange(file_state(path, "2"), file_state(path, "1"))
    found.apply(Envelope(9, 9.0, "s", Rewound("r", "t", True, False, (back,))))
    assert "a.py" not in get_side_panel(found)


@pytest.mark.parametrize("event", [Rewound("r", "t", True, False), Redone("r")], ids=["rewound", "redone"])
def test_a_rewind_of_many_files_lists_at_most_the_maximum(event: Any) -> None:
    many = [
        FileChange(file_state(f"/srv/project/{at}", "1"), file_state(f"/srv/project/{at}", "2"))
        for at in range(MAX_FILES + 9)
    ]
    twice = [FileChange(file_state("/srv/project/a", "1"), file_state("/srv/project/a", after)) for after in ("2", "1")]
    found = make_facts(msgspec.structs.replace(event, changes=(*twice, *many)))
    assert len(found.edited_files.files) == MAX_FILES
    assert "/srv/project/a" not in found.edited_files.files


def test_a_deleted_file_is_marked_and_a_change_without_a_diff_has_no_numbers() -> None:
    gone = FilesChanged(
        "c1", (FileChange(file_state("/srv/project/old.py", "1"), file_state("/srv/project/old.py", "", "absent")),)
    )
    made = FilesChanged(
        "c2", (FileChange(file_state("/srv/project/x", "", "absent"), file_state("/srv/project/x", "7")),)
    )
    shown = get_side_panel(make_facts(gone, made))
    assert "old.py" in shown
    assert "deleted" in shown
    assert "+0" not in shown


def test_a_file_has_no_numbers_if_a_command_changed_it_too() -> None:
    path = "/srv/project/src/a.py"
    again = FilesChanged("c2", (FileChange(file_state(path, "2"), file_state(path, "3")),))
    shown = get_side_panel(make_facts(*edit_events("c1", path, "1", "2", DIFF), again))
    assert "src/a.py" in shown
    assert "+2" not in shown


def test_agents_show_their_state_and_waiting_ones_are_counted() -> None:
    found = make_facts(
        AgentStarted("agent-1", "look for tests", "ask_mode"), AgentStarted("agent-2", "read docs", "ask_mode")
    )
    asked = PermissionAsked("a", "c", "Bash", {}, "why")
    found.apply(Envelope(3, 3.0, "s", asked, "agent-2"))
    shown = get_side_panel(found)
    assert "1 waiting for you" in shown
    assert "? agent-2" in shown
    found.apply(Envelope(4, 4.0, "s", AgentEnded("agent-2", "end_turn")))
    assert "waiting" not in get_side_panel(found)
    assert "✓ agent-2" in get_side_panel(found)


def test_processes_are_listed_until_they_end() -> None:
    started = SpawnStarted("job-1", "c", "npm run dev", "the dev server")
    assert "job-1 the dev server" in get_side_panel(make_facts(started))
    assert "job-1" not in get_side_panel(make_facts(started, SpawnFinished("job-1", "finished")))


def test_a_finished_todo_list_disappears_with_the_next_prompt() -> None:
    todos = TodosChanged((Todo("1", "write it", "completed"), Todo("2", "drop it", "cancelled")))
    found = make_facts(TurnStarted("p", "x", "edit_mode"), todos, TurnEnded("p", "end_turn"))
    assert "write it" in get_side_panel(found)
    found.apply(Envelope(9, 9.0, "s", TurnStarted("q", "y", "edit_mode")))
    assert "write it" not in get_side_panel(found)
    open_ones = make_facts(TodosChanged((Todo("1", "write it", "pending"),)), TurnStarted("q", "y", "edit_mode"))
    assert "write it" in get_side_panel(open_ones)


def test_the_todo_list_of_an_interrupted_turn_goes_with_the_next_turn_that_ignores_it() -> None:
    todos = TodosChanged((Todo("1", "write it", "pending"),))
    found = make_facts(TurnStarted("p", "x", "edit_mode"), todos, TurnEnded("p", "interrupted"))
    found.apply(Envelope(8, 8.0, "s", TurnStarted("q", "y", "edit_mode")))
    assert "write it" in get_side_panel(found)
    found.apply(Envelope(9, 9.0, "s", TurnEnded("q", "end_turn")))
    assert "write it" not in get_side_panel(found)
    turn = TurnStarted("q", "y", "edit_mode")
    going_on = make_facts(todos, TurnEnded("p", "interrupted"), turn, todos, TurnEnded("q", "end_turn"))
    assert "write it" in get_side_panel(going_on)


def test_rewind_and_redo_restore_the_todo_list() -> None:
    first, second = (TodosChanged((Todo("1", text, "pending"),)) for text in ("plan it", "build it"))
    past = [
        TurnStarted("a", "x", "edit_mode"),
        TurnEnded("a", "end_turn"),
        TurnStarted("b", "x", "edit_mode"),
        first,
        TurnEnded("b", "end_turn"),
        TurnStarted("c", "x", "edit_mode"),
        second,
        TurnEnded("c", "end_turn"),
    ]
    to_c, to_b = (Rewound(name, name, files=True, chat=True) for name in "cb")
    only_files = Rewound("f", "b", files=True, chat=False)
    for later, shown in (
        ([], second),
        ([to_c], first),
        ([to_b], None),
        ([to_c, to_b], None),
        ([to_c, to_b, Redone("b")], first),
        ([to_c, to_b, Redone("b"), Redone("c")], second),
        ([only_files, to_b, Redone("b")], second),
    ):
        assert make_facts(*past, *later).todos.get("") == shown


def test_control_characters_in_names_are_escaped() -> None:
    evil = "\x1b]0;owned\x07\u202e"
    found = make_facts(
        ModelChanged(f"x/{evil}"),
        SpawnStarted("j", "c", evil, evil),
        AgentStarted("agent-1", evil, "ask_mode"),
        TodosChanged((Todo("1", evil, "pending"),)),
        *edit_events("c1", f"/srv/project/{evil}", "1", "2", DIFF),
    )
    for shown in (get_side_panel(found), get_status_line(found, 200)):
        assert not any(char in shown for char in "\x1b\x07\u202e")


def test_numbers_are_abbreviated() -> None:
    assert [format_count(n) for n in (0, 999, 1_000, 1_234, 9_960, 34_500, 999_600, 1_200_000)] == [
        "0", "999", "1.0k", "1.2k", "10k", "34k", "1.0M", "1.2M",
    ]  # fmt: skip
    assert [format_seconds(s) for s in (0, 59.9, 60, 3_600, -3)] == ["0 s", "59 s", "1 min 0 s", "1 h 0 min", "0 s"]
    assert [format_usd(n) for n in (0, 0.0123, 0.5, 1234.5)] == ["$0.00", "$0.0123", "$0.50", "$1,234.50"]
    assert get_model_name("openrouter/anthropic/claude") == "claude"


def test_facts_of_ended_agents_are_dropped() -> None:
    found = make_facts()
    for number in range(200):
        name = f"agent-{number}"
        found.apply(Envelope(number, 0.0, "s", AgentStarted(name, "look", "ask_mode")))
        found.apply(Envelope(number, 0.0, "s", TodosChanged((Todo("1", "x", "pending"),)), name))
        found.apply(Envelope(number, 0.0, "s", AgentEnded(name, "end_turn")))
        found.apply(Envelope(number, 0.0, "s", TurnEnded("p", "end_turn")))
    assert len(found.agents.all) <= 5
    assert not found.todos


def test_the_side_panel_shows_the_pool_the_running_model_and_the_keys() -> None:
    """The time until the next key counts down between two events."""
    info = replace(INFO, model="work/one", pool="main")
    switched = ModelChanged("work/two@deep", "busy", "work/one", "main")
    found = make_facts(switched, KeyPoolChanged("work", 1, 3, "cccc", 45.0), RequestStarted(1, "two"), info=info)
    rows = SideSections(found, PALETTE, 40, now=6.0).build_rows()
    assert [row.text.plain for row in rows[:6]] == [
        "Model",
        "pool main",
        "work/one",
        "answering: work/two@deep",
        "1 of 3 keys healthy, using …cccc",
        "next key in 40 s",
    ]


def test_the_side_panel_lists_language_servers_that_were_started() -> None:
    servers = (
        LanguageServerState("ruff", "ready", errors=2, warnings=1),
        LanguageServerState("ty\x1b", "failed", "it ended"),
        LanguageServerState("gopls", "idle"),
    )
    shown = get_side_panel(make_facts(LanguageServersChanged(servers))).split("Language servers\n")[1].splitlines()
    rows = ["• ruff 2 err 1 warn", r"✗ ty\x1b failed", ""]
    assert [" ".join(line.split()) for line in shown[:3]] == rows
    assert "Language servers" not in get_side_panel(make_facts(LanguageServersChanged(servers[2:])))


def test_the_side_panel_lists_mcp_servers() -> None:
    servers = (
        ServerStatus("time", "ready", tools=2, seconds=0.5),
        ServerStatus("git\x1b", "failed", detail="it ended"),
        ServerStatus("web", "connecting", attempt=2, attempts=3),
        ServerStatus("db", "disabled", manual=True),
        *(ServerStatus(f"s{number}", "pending") for number in range(7)),
    )
    shown = get_side_panel(make_facts(ServersChanged(servers))).split("MCP (1 of 11 connected)\n")[1].splitlines()
    rows = [
        "✓ time ok, 2 tools, 0.5 s",
        r"✗ git\x1b failed: it ended",
        "… web retrying, attempt 2 of 3",
        "○ db disabled",
    ]
    assert [" ".join(line.split()) for line in shown[:4]] == rows
    assert shown[8] == "3 more"
    assert "MCP" not in get_side_panel(make_facts())


def test_the_side_panel_lists_skills_and_marks_those_the_agent_used() -> None:
    skills = tuple(SkillSummary(f"s{number}\x1b", "d", "user", "p") for number in range(12))
    found = make_facts(SkillUsed("s9\x1b"), info=replace(INFO, skills=skills))
    shown = get_side_panel(found).split("Skills (12)\n")[1].splitlines()
    assert shown[:2] == [r"✓ s9\x1b", r"• s0\x1b"] and shown[8] == "4 more"
    assert "✓" not in get_side_panel(found, agent="agent-1")
    assert "Skills" not in get_side_panel(make_facts())
