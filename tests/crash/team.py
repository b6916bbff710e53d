"""A session with five sub-agents that is killed while they work, with the checks after every kill."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from odin.core.event import AgentEnded, AgentStarted, Envelope, SessionOpened, TurnStarted
from odin.core.team import TaskRecord
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.testing import Turn, reply, say
from odin.testing.script import ScriptedCall, SeenRequest
from tests.team_log import check_resumed

from .api_checks import find_refusals
from .crashing_session import CrashingSession
from .model import Model
from .worker import KillPoint

AGENTS = 5


class TeamModel(Model):
    """The main agent keeps five sub-agents at work. They work, report, escalate, stop and complete by a seed."""

    def _choose_turn(self, seen: SeenRequest) -> Turn:
        return self._make_main_turn(seen) if "Delegate" in seen.tool_names else self._make_worker_turn()

    def _make_main_turn(self, seen: SeenRequest) -> Turn:
        news = json.dumps(seen.messages[-1])
        escalated = re.findall(r"decision required from \S+, task (adhoc-\d+)", news)
        calls = [ScriptedCall("Notify", {"task_id": task, "message": "Decide it yourself."}) for task in escalated]
        if re.search(r"prompt \d+-\d+", news):
            left = re.findall(r"(adhoc-\d+) \((?:idle|waiting_main)\)", news)[:AGENTS]
            calls += [ScriptedCall("Notify", {"task_id": task, "message": "Go on."}) for task in left]
            calls += [self._make_delegate_call() for _ in range(AGENTS - len(left))]
        return reply("", calls) if calls else say("I see.")

    def _make_delegate_call(self) -> ScriptedCall:
        return ScriptedCall(
            "Delegate", {"description": f"Part {self._random.randrange(10**6)}.", "agent_type": "general"}
        )

    def _make_worker_turn(self) -> Turn:
        chance = self._random.random()
        if chance < 0.08:
            return say("I have stopped.", chunk=5).pace(0.001)
        calls = [self._make_team_call() if self._random.random() < 0.35 else self._make_call()]
        calls += [self._make_call() for _ in range(self._random.choice((0, 0, 1)))]
        return reply("", calls).pace(self._random.choice((0, 0.002)))

    def _make_team_call(self) -> ScriptedCall:
        number = self._random.randrange(1000)
        choices = (
            ("Report", {"message": f"at {number}"}),
            ("Report", {"message": f"{number} is dangerous", "kind": "risk_alert"}),
            ("Escalate", {"question": f"May I do {number}?"}),
            ("Complete", {"summary": f"Did {number}. " * self._random.choice((1, 60))}),
            ("Complete", {"summary": f"Done with {number}."}),
        )
        return ScriptedCall(*self._random.choice(choices))

    def _list_calls(self) -> list[tuple[str, dict[str, object]]]:
        return [made for made in super()._list_calls() if made[0] != "AgentTool" and "timeout" not in made[1]]


class CrashingTeam(CrashingSession):
    make_model = TeamModel
    has_team = True

    def __init__(self, seed: int, root: Path, home: Path) -> None:
        super().__init__(seed, root, home)
        self.running_at_kill: list[int] = []
        """How many sub-agents were running at each kill."""

    def run_and_kill(self) -> bool:
        """Run one more process and kill it. Return True if five sub-agents were running at the kill."""
        self.runs += 1
        process = self._process = self._start_worker(KillPoint(), prompts=1, random_ops=False)
        self._wait_until(process, self._make_agent_check(AGENTS))
        has_grown = self._make_growth_check(self.random.randrange(1, 30_000))
        end = time.monotonic() + self.random.random() * 0.6
        self._wait_until(process, lambda: has_grown() or time.monotonic() > end)
        self._kill(group=self.random.random() < 0.3)
        out = self._wait_for_output(process)
        self.running_at_kill.append(self._count_running())
        assert b"Error" not in out, (self.describe_run(), out[-3000:])
        is_killed = process.returncode != 0
        self.torn_writes += is_killed
        self.check(process.pid)
        return is_killed and self.running_at_kill[-1] >= AGENTS

    def _count_running(self) -> int:
        """Count the sub-agents that were running at the end of the log."""
        running: set[str] = set()
        for item in read_log(self.log) if self.log.exists() else ():
            match item.event:
                case SessionOpened():
                    running.clear()
                case AgentStarted(id=name):
                    running.add(name)
                case AgentEnded(id=name):
                    running.discard(name)
                case _:
                    pass
        return len(running)

    def _make_agent_check(self, count: int) -> Callable[[], bool]:
        """Return a function that tells whether this process has started that many sub-agents."""
        size = len(self._known_log)

        def has_agents() -> bool:
            if not self.log.exists():
                return False
            with self.log.open("rb") as log:
                log.seek(size)
                return log.read().count(b'"AgentStarted"') >= count

        return has_agents

    def check(self, pid: int) -> None:
        super().check(pid)
        if not self.log.exists():
            return
        events = list(read_log(self.log))
        state = check_resumed(events)
        for task in list(state.board.tasks.values()):
            if not task.is_ended and task.agent:
                self._check_continued(state, task)

    def _check_continued(self, state: SessionState, task: TaskRecord) -> None:
        """Check that every API accepts the first request of a new agent that continues the task."""
        name = f"next-{task.id}"
        started = AgentStarted(name, "go on", task.mode, task_id=task.id, continues=task.agent)
        state.apply(Envelope(state.seq + 1, 0.0, self.session, started))
        state.apply(Envelope(state.seq + 1, 0.0, self.session, TurnStarted(name, "go on", "edit_mode"), name))
        found = find_refusals(state.build_history(name), self.server._router._memory)
        assert found == [], (self.describe_run(), task.id, found)

    def check_end(self) -> None:
        super().check_end()
        events = list(read_log(self.log))
        running = {item.event.id for item in events if isinstance(item.event, AgentStarted)}
        assert running == {item.event.id for item in events if isinstance(item.event, AgentEnded)}, self.describe_run()
