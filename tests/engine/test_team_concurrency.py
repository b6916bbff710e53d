"""Ten agents at once: edits, commands, questions, mail, escalations, failures and cancels, in one session."""

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest

from odin.core.call_events import PermissionAsked, QuestionsAsked
from odin.core.client import Client
from odin.core.event import Envelope, FilesChanged
from odin.core.op import AnswerPermission, AnswerQuestions, Prompt
from odin.testing import SeenRequest, Turn, call, fault, reply, say
from tests.team_log import check_team, delivered_in, sent_in

from .conftest import Start
from .test_team import complete, delegate, settle
from .test_team_worktree import TYPES, make_repository

NAMES = "abcdefghij"
ISOLATED = "bej"
"""Agents that work in their own worktrees."""

LONG = "found it in many places. " * 30


class ConcurrentTeamScript:
    """Scripts a main agent that answers its agents, and ten agents that start together."""

    def __init__(self, workspace: Path) -> None:
        self._all_started = threading.Event()
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._started = False
        options = [{"label": "left"}, {"label": "right"}]
        question = {"questions": [{"header": "Way", "text": "Which way?", "options": options}]}
        self.turns: dict[str, list[Turn]] = {
            "a": [call("WriteFile", {"path": str(workspace / "a.txt"), "content": "a\n"}), complete("wrote a")],
            "b": [
                call("WriteFile", {"path": "b.txt", "content": "old\n"}),
                call("EditTool", {"path": "b.txt", "old_string": "old", "new_string": "new"}),
                complete("edited b"),
            ],
            "c": [call("ExecuteCommand", {"command": "echo c > c.txt"}), complete("commanded c")],
            "d": [call("Question", question), complete("asked the user")],
            "e": [call("Escalate", {"question": "left or right?"}), complete("went left")],
            "f": [
                *(call("Report", {"message": f"part {number}"}) for number in range(3)),
                complete("reported"),
            ],
            "g": [
                call("ExecuteCommand", {"command": "echo g > g.txt"}),
                call("Report", {"message": "this deletes data", "kind": "risk_alert"}),
                call("ExecuteCommand", {"command": "echo g > g.txt; sleep 60"}),
            ],
            "h": [complete(LONG, files_changed=["h.txt"])],
            "i": [fault(400)],
            "j": [say("I am done, I think."), complete("really done")],
        }

    def __call__(self, seen: SeenRequest) -> Turn:
        if not seen.tool_names:
            return say("A title")
        with self._lock:
            if "Delegate" in seen.tool_names:
                return self._answer_main(seen)
            name = self._get_name(seen)
            first = name not in self._seen
            self._seen.add(name)
            if len(self._seen) == len(NAMES):
                self._all_started.set()
            turn = self.turns[name].pop(0)
        return turn.hold(self._all_started) if first else turn

    def _get_name(self, seen: SeenRequest) -> str:
        found = re.search(r"job ([a-j])\b", json.dumps(seen.messages))
        assert found is not None
        return found[1]

    def _answer_main(self, seen: SeenRequest) -> Turn:
        if not self._started:
            self._started = True
            types = {name: "iso" if name in ISOLATED else "general" for name in NAMES}
            return reply(calls=[delegate(name, agent_type=kind) for name, kind in types.items()])
        news = json.dumps(seen.messages[-1])
        asked = re.findall(r"decision required from \S+, task (adhoc-\d+)", news)
        risky = re.findall(r"risk alert from \S+, task (adhoc-\d+)", news)
        calls = [call("Notify", {"task_id": task, "message": "left"}) for task in asked]
        calls += [call("Cancel", {"task_id": task, "reason": "too dangerous"}) for task in risky]
        done = re.findall(r"completed from \S+, task (adhoc-\d+)", news)
        calls += [call("Apply", {"task_id": task}) for task in done if task == f"adhoc-{NAMES.index('b') + 1}"]
        return reply(calls=calls) if calls else say("I see.")


async def answer_all(client: Client, heard: list[Envelope]) -> None:
    """Collect every event, approve every permission request and answer every question."""
    async for envelope in client.stream_events(after=-1):
        heard.append(envelope)
        event = envelope.event
        if isinstance(event, PermissionAsked):
            await client.submit(AnswerPermission(event.ask_id, True))
        elif isinstance(event, QuestionsAsked):
            await client.submit(AnswerQuestions(event.ask_id, (("left",),)))


@pytest.mark.slow
async def test_ten_agents_work_at_once(start: Start, workspace: Path, home: Path) -> None:
    (workspace / "readme.txt").write_text("A project.\n")
    make_repository(workspace)
    script = ConcurrentTeamScript(workspace)
    settings = {"team": {"idle_s": 0.01}, "commands": {"ask": "before"}}
    options = {"yes": False, "can_ask": True, "permission_mode": "acceptEdits", "agent_definitions": TYPES}
    talk = await start(script, config=settings, **options)
    heard: list[Envelope] = []
    listening = asyncio.create_task(answer_all(talk.client, heard))
    await talk.client.submit(Prompt("go", "Delegate it all."))
    await settle(talk.client)
    shot = await talk.client.snapshot()
    await talk.client.close()
    await listening
    assert talk.server.rejected == []
    log = [envelope for envelope in heard if envelope.event.durable]
    state = check_team(log)
    states = {task.description[-1]: task.state for task in state.board.tasks.values()}
    assert states == dict.fromkeys(NAMES, "completed") | {"g": "cancelled", "i": "failed"}
    assert shot.sub_agents == ()

    sent = {mail.id for mail in sent_in(log)}
    missing = sent - set(delivered_in(log))
    assert {mail.kind for mail in sent_in(log) if mail.id in missing} <= {"progress"}
    artifacts = [mail.artifact for mail in sent_in(log) if mail.artifact]
    assert any(LONG in path.read_text() for name in artifacts for path in home.glob(f"**/artifacts/{name}"))

    agents = {task.agent: task.description[-1] for task in state.board.tasks.values()} | {"": "main"}
    asked = {
        (agents[envelope.agent], envelope.event.task) for envelope in log if isinstance(envelope.event, PermissionAsked)
    }
    assert asked == {("c", "job c"), ("g", "job g")}
    assert [agents[envelope.agent] for envelope in log if isinstance(envelope.event, QuestionsAsked)] == ["d"]

    changed: dict[str, set[str]] = {}
    for envelope in log:
        if isinstance(envelope.event, FilesChanged):
            for change in envelope.event.changes:
                names = {agents[envelope.agent], *(agents[name] for name in envelope.event.shared_with)}
                changed.setdefault(Path(change.after.path).name, set()).update(names)
    assert changed["a.txt"] == {"a"}
    assert changed["b.txt"] == {"b", "main"}, "the agent in its worktree, and the main agent that applied it"
    assert "c" in changed["c.txt"] and changed["c.txt"] <= {"c", "g"}
    assert (workspace / "b.txt").read_text() == "new\n"
