"""Each part of the state declares the events that change it; a missing one would be ignored."""

import ast
import inspect
import textwrap
from typing import cast

import pytest

from odin.core.call_events import SkillUsed
from odin.core.event import AnyEvent, Envelope, PromptChanged, PromptDropped, PromptQueued, TurnStarted
from odin.core.team import MailSent, TaskChanged, TaskCreated
from odin.core.timeline import OpenWork
from odin.session.conversation import MainConversation, UsedSkills
from odin.session.history import FileHistory
from odin.session.state import LoopModeState, PromptQueueState, SessionPermissions, SessionState
from odin.session.team import SubAgentThreads, TaskBoard
from odin.session.thread import Thread


def find_handled(part: type, method: str) -> set[str]:
    """Return the events that the method handles with a `case` or `isinstance`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(part, method))))
    found = {
        node.cls.id for node in ast.walk(tree) if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            kind = node.args[1]
            assert isinstance(kind, ast.Name)
            found.add(kind.id)
    return found - {"_SHORTENING_EVENTS"}


@pytest.mark.parametrize(
    ("part", "method", "more"),
    [
        (Thread, "apply", set[type]()),
        (FileHistory, "apply", set[type]()),
        (MainConversation, "apply", Thread.EVENTS),
        (SubAgentThreads, "apply", set[type]()),
        (TaskBoard, "apply", set[type]()),
        (SessionPermissions, "apply", set[type]()),
        (PromptQueueState, "apply", set[type]()),
        (UsedSkills, "apply", set[type]()),
        (LoopModeState, "apply", set[type]()),
        (OpenWork, "apply", set[type]()),
        (SessionState, "_apply_own", set[type]()),
    ],
)
def test_a_part_declares_the_events_it_handles(part: type, method: str, more: set[type]) -> None:
    events = cast("frozenset[type]", vars(part)["EVENTS"])
    declared = {kind.__name__ for kind in events}
    assert declared == find_handled(part, method) | {kind.__name__ for kind in more}


def test_a_task_knows_the_turns_of_main_that_created_and_last_changed_it() -> None:
    """Mail about the task is a change. A turn of a sub-agent does not count."""
    board = TaskBoard()
    changes = [
        TaskCreated("adhoc-1", "general", "look", "edit_mode"),
        TaskChanged("adhoc-1", "running", "general-1"),
        MailSent("mail-1", "", "general-1", "message", "look", task_id="adhoc-1"),
    ]
    seen = list[tuple[str, str]]()
    for number, change in enumerate(changes):
        board.apply(Envelope(0, 0.0, "s", TurnStarted(f"p{number}", "", "edit_mode")))
        board.apply(Envelope(0, 0.0, "s", TurnStarted("sub", "", "edit_mode"), "general-1"))
        board.apply(Envelope(0, 0.0, "s", change))
        task = board.tasks["adhoc-1"]
        seen.append((task.created_turn, task.updated_turn))
    assert seen == [("p0", "p0"), ("p0", "p1"), ("p0", "p2")]


def test_a_changed_prompt_loses_the_skill_it_called() -> None:
    """The rules of a skill apply only while the prompt still calls it."""
    skills = UsedSkills()

    def apply(*events: AnyEvent) -> tuple[str, ...]:
        for event in events:
            skills.apply(Envelope(1, 1.0, "s", event))
        return tuple(used.name for used in skills.list_in_use(""))

    queued = PromptQueued("p", "Make it.", "edit_mode")
    used = SkillUsed("make", "/s/SKILL.md", "p", ("Bash(make:*)",))
    start = TurnStarted("p", "Make it.", "edit_mode")
    assert apply(queued, used, PromptChanged("p", "Make it.", "plan_mode"), start) == ("make",)
    assert apply(queued, used, PromptChanged("p", "Something else.", "edit_mode"), start) == ()
    assert apply(queued, used, PromptDropped("p"), start) == ()
