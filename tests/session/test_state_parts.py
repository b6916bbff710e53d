"""Each part of the state declares the events that change it; a missing one would be ignored."""

import ast
import inspect
import textwrap
from typing import cast

import pytest

from odin.core.call_events import SkillUsed
from odin.core.event import AnyEvent, Envelope, PromptChanged, PromptDropped, PromptQueued, TurnStarted
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
