"""A session with five sub-agents that is killed while they work, and what must be true of it after each time."""

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

from .chain import Chain
from .model import Model
from .victim import Death
from .wires import refusals

AGENTS = 5


class TeamModel(Model):
    """Its main agent has five agents at work for every prompt. They work, report, ask, stop and complete by a seed."""

    def _turn_for(self, seen: SeenRequest) -> Turn:
        return self._lead(seen) if "Delegate" in seen.tool_names else self._work()

    def _lead(self, seen: SeenRequest) -> Turn:
        news = json.dumps(seen.messages[-1])
        asked = re.findall(r"decision required from \S+, task (adhoc-\d+)", news)
        calls = [ScriptedCall("Notify", {"task_id": task, "message": "Decide it yourself."}) for task in asked]
        if re.search(r"prompt \d+-\d+", news):
            left = re.findall(r"(adhoc-\d+) \((?:idle|waiting_main)\)", news)[:AGENTS]
            calls += [ScriptedCall("Notify", {"task_id": task, "message": "Go on."}) for task in left]
            calls += [self._delegate() for _ in range(AGENTS - len(left))]
        return reply("", calls) if calls else say("I see.")

    def _delegate(self) -> ScriptedCall:
        return ScriptedCall(
            "Delegate", {"description": f"Part {self._random.randrange(10**6)}.", "agent_type": "general"}
        )

    def _work(self) -> Turn:
        chance = self._random.random()
        if chance < 0.08:
            return say("I have stopped.", chunk=5).pace(0.001)
        calls = [self._team_call() if self._random.random() < 0.35 else self._call()]
        calls += [self._call() for _ in range(self._random.choice((0, 0, 1)))]
        return reply("", calls).pace(self._random.choice((0, 0.002)))

    def _team_call(self) -> ScriptedCall:
        number = self._random.randrange(1000)
        made = (
            ("Report", {"message": f"at {number}"}),
            ("Report", {"message": f"{number} is dangerous", "kind": "risk_alert"}),
            ("Escalate", {"question": f"May I do {number}?"}),
            ("Complete", {"summary": f"Did {number}. " * self._random.choice((1, 60))}),
            ("Complete", {"summary": f"Done with {number}."}),
        )
        return ScriptedCall(*self._random.choice(made))

    def _calls(self) -> list[tuple[str, dict[str, object]]]:
        return [made for made in super()._calls() if made[0] != "AgentTool" and "timeout" not in made[1]]


class TeamChain(Chain):
    make_model = TeamModel
    has_team = True

    def __init__(self, seed: int, root: Path, home: Path) -> None:
        super().__init__(seed, root, home)
        self.live_at_kill: list[int] = []
        """How many agents lived at each kill."""

    def kill_one(self) -> bool:
        """One more life. True if it was ended while five agents lived."""
        self.lives += 1
        process = self._process = self._begin_victim(Death(), prompts=1, lively=False)
        self._await(process, self._has_agents(AGENTS))
        grown = self._grown(self.random.randrange(1, 30_000))
        end = time.monotonic() + self.random.random() * 0.6
        self._await(process, lambda: grown() or time.monotonic() > end)
        self._kill(group=self.random.random() < 0.3)
        out = self._wait(process)
        self.live_at_kill.append(self._count_live())
        assert b"Error" not in out, (self.where(), out[-3000:])
        is_killed = process.returncode != 0
        self.torn += is_killed
        self.check(process.pid)
        return is_killed and self.live_at_kill[-1] >= AGENTS

    def _count_live(self) -> int:
        """The agents that lived at the end of the log."""
        live: set[str] = set()
        for item in read_log(self.log) if self.log.exists() else ():
            match item.event:
                case SessionOpened():
                    live.clear()
                case AgentStarted(id=name):
                    live.add(name)
                case AgentEnded(id=name):
                    live.discard(name)
                case _:
                    pass
        return len(live)

    def _has_agents(self, count: int) -> Callable[[], bool]:
        """True if that many agents live that this life has started."""
        size = len(self._seen)

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
        """A new agent of the task would send what every API takes."""
        name = f"next-{task.id}"
        started = AgentStarted(name, "go on", task.mode, task_id=task.id, continues=task.agent)
        state.apply(Envelope(state.seq + 1, 0.0, self.session, started))
        state.apply(Envelope(state.seq + 1, 0.0, self.session, TurnStarted(name, "go on", "edit_mode"), name))
        found = refusals(state.build_history(name), self.server._router._memory)
        assert found == [], (self.where(), task.id, found)

    def check_end(self) -> None:
        super().check_end()
        events = list(read_log(self.log))
        live = {item.event.id for item in events if isinstance(item.event, AgentStarted)}
        assert live == {item.event.id for item in events if isinstance(item.event, AgentEnded)}, self.where()
