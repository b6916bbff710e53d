"""A model with random replies, determined by a seed: text, tool calls, invalid calls and faults."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from odin.compaction.summary import HEADINGS
from odin.testing import ScriptedCall, SeenRequest, Turn, Usage, fault, reply, say

WORDS = ("yes", "no", "file", "done", "größer", "文件", "\x1b[31mred\x1b[0m", "a\x00b", "‮", "👩‍👩‍👧", "\r\n")

NameAndArguments = tuple[str, dict[str, Any]]


class RandomModel:
    """Makes the replies. Calls use a few files of `project`, so that they meet each other's changes."""

    def __init__(self, random: random.Random, project: Path) -> None:
        self._random = random
        self._project = project
        self._count = 0
        self._delegated = 0

    def answer(self, seen: SeenRequest) -> Turn:
        if not seen.tool_names:
            return self._reply_without_tools()
        chance = self._random.random()
        if chance < 0.06:
            return self._make_faulty_reply()
        if chance < 0.18:
            return self._make_slow_calls()
        turn = self._make_text_reply() if chance < 0.48 else self._make_calls_reply(seen)
        return self._disturb(turn)

    def _reply_without_tools(self) -> Turn:
        """Answer a request for a title or a summary; these fail often."""
        chance = self._random.random()
        if chance < 0.2:
            return fault(self._random.choice((400, 429, 500, 529)), {"retry-after": "0"})
        if chance < 0.4:
            return say("no idea")
        return say("\n".join(f"## {head}\nSomething about {head.lower()}." for head in HEADINGS))

    def _make_faulty_reply(self) -> Turn:
        return self._random.choice(
            (
                fault(529, {"retry-after": "0"}),
                fault(429, {"retry-after": "0"}),
                fault(500),
                reply("", stop="end_turn"),
                reply("cut of", stop="max_tokens"),
                reply("", [ScriptedCall("WriteFile", '{"path": "/x", "conte')], stop="max_tokens"),
                reply("", [ScriptedCall("WriteFile", '{"path": nonsense')]),
                reply("", [ScriptedCall("WriteFile", {})]),
                reply("", [ScriptedCall("NoSuchTool", {"a": 1})]),
                say("hello").garble(after=self._random.randrange(1, 4)),
            )
        )

    def _make_slow_calls(self) -> Turn:
        """Stream calls slowly, so that they start speculatively; often the reply fails afterwards."""
        name = {"path": self._choose_path()}
        change = self._random.choice((self._write, self._append, self._append, self._edit))()
        choices = [("Read", name), (change[0], change[1] | name), self._random.choice((self._read, self._append))()]
        turn = reply("", [ScriptedCall(*call) for call in choices], chunk=9).pace(self._random.choice((0.002, 0.004)))
        chance = self._random.random()
        if chance < 0.3:
            return turn.error(after=self._random.randrange(20, 70))
        if chance < 0.5:
            return turn.cut(events=self._random.randrange(20, 70), reset=chance < 0.4)
        if chance < 0.6:
            return msgspec.structs.replace(turn, stop="max_tokens")
        return turn.unfinished() if chance < 0.7 else turn

    def _make_text_reply(self) -> Turn:
        return say(" ".join(self._random.choice(WORDS) for _ in range(30)), thinking=self._make_thinking(), chunk=7)

    def _make_thinking(self) -> str:
        return "I wonder about it." if self._random.random() < 0.4 else ""

    def _make_calls_reply(self, seen: SeenRequest) -> Turn:
        calls = [self._choose_call(seen) for _ in range(self._random.choice((1, 1, 1, 2, 3, 5)))]
        text = "I do something." if self._random.random() < 0.5 else ""
        return reply(text, calls, thinking=self._make_thinking(), chunk=9)

    def _choose_call(self, seen: SeenRequest) -> ScriptedCall:
        self._count += 1
        if "Complete" in seen.tool_names and self._random.random() < 0.4:
            return ScriptedCall(*self._choose_sub_agent_call())
        if "Delegate" in seen.tool_names and self._random.random() < 0.3:
            return ScriptedCall(*self._choose_owner_call())
        choices: tuple[Callable[[], NameAndArguments], ...] = (
            self._read,
            self._read,
            self._write,
            self._edit,
            self._append,
            lambda: ("Delete", {"paths": [self._choose_path()], "reason": "it is old"}),
            self._command,
            self._command,
            self._command,
            self._spawn,
            lambda: ("SpawnStatus", {"id": self._random.choice(("", "spawn-1", "spawn-2"))}),
            lambda: ("SpawnStop", {"id": f"spawn-{self._random.randrange(1, 5)}"}),
            lambda: ("Grep", {"pattern": "text", "path": str(self._project), "output_mode": "content"}),
            lambda: ("TodoWrite", {"todos": [{"id": "1", "content": f"step {self._count}", "status": "pending"}]}),
            lambda: ("AgentTool", {"description": "look", "prompt": f"Look at part {self._count}."}),
            lambda: ("ContextSummarizer", {"focus": "the files"}),
            lambda: ("SaveArtifact", {"name": "plan", "content": f"plan {self._count}"}),
            self._question,
            lambda: ("Handoff", {"plan": f"1. Step {self._count}.", "title": "A plan"}),
        )
        return ScriptedCall(*self._random.choice(choices)())

    def _choose_owner_call(self) -> NameAndArguments:
        """Delegate a task, or notify or cancel one that may exist, have ended or belong to another agent."""
        task = f"adhoc-{self._random.randrange(1, 2 + self._delegated)}"
        choices: tuple[Callable[[], NameAndArguments], ...] = (
            self._delegate,
            self._delegate,
            lambda: ("Notify", {"task_id": task, "message": f"Think of {self._count}." * self._random.choice((1, 40))}),
            lambda: ("Notify", {"task_id": task, "message": f"And {self._count}?"}),
            lambda: ("Cancel", {"task_id": task, "reason": "not needed"}),
        )
        return self._random.choice(choices)()

    def _delegate(self) -> NameAndArguments:
        self._delegated += 1
        scope = self._random.choice(({}, {}, {"files": [f"file{self._count % 3}.txt"]}, {"files": ["/etc/passwd"]}))
        return "Delegate", {
            "description": f"Help with part {self._count}.",
            "agent_type": self._random.choice(("general", "general", "explore", "", "nonesuch")),
            "semantic_task_key": self._random.choice(("", "", "the-same")),
            "expected_write_scope": scope,
        }

    def _choose_sub_agent_call(self) -> NameAndArguments:
        choices: tuple[NameAndArguments, ...] = (
            ("Report", {"message": f"part {self._count}"}),
            ("Report", {"message": f"{self._count} is risky", "kind": "risk_alert"}),
            ("Escalate", {"question": f"Is {self._count} right?"}),
            ("Complete", {"summary": f"I did {self._count}. " * self._random.choice((1, 60)), "known_risks": ["none"]}),
            ("Complete", {"summary": f"Done with {self._count}."}),
        )
        return self._random.choice(choices)

    def _choose_path(self) -> str:
        return str(self._project / f"file{self._random.randrange(6)}.txt")

    def _read(self) -> NameAndArguments:
        picture = self._random.random() < 0.15
        return "Read", {"path": str(self._project / "picture.png") if picture else self._choose_path()}

    def _write(self) -> NameAndArguments:
        return "WriteFile", {"path": self._choose_path(), "content": f"text {self._count}\n" * 20}

    def _append(self) -> NameAndArguments:
        return "AppendFile", {"path": self._choose_path(), "content": f"more text {self._count}\n"}

    def _edit(self) -> NameAndArguments:
        return "EditTool", {
            "path": self._choose_path(),
            "old_string": "text",
            "new_string": "word",
            "replace_all": True,
        }

    def _command(self) -> NameAndArguments:
        commands = (
            f"echo {self._count}",
            "seq 1 4000",
            f"echo {self._count} >> log.txt; false",
            f"echo {self._count} > made{self._count % 3}.txt; sleep 0.05",
            "sleep 0.05",
            "printf '\\033[1m\\000\\377'",
        )
        return "ExecuteCommand", {"command": self._random.choice(commands)}

    def _spawn(self) -> NameAndArguments:
        commands = ("sleep 0.02; echo over", "sleep 0.2; false", "sleep 30", f"echo {self._count} > spawned.txt")
        limit = self._random.choice(({}, {}, {"timeout": 50}))
        return "Spawn", {"command": self._random.choice(commands), **limit}

    def _question(self) -> NameAndArguments:
        options = [{"label": "left"}, {"label": "right", "detail": "the other way"}]
        asked = [{"header": "Way", "text": f"Which way, {self._count}?", "options": options, "multiple": True}]
        return "Question", {"questions": asked * self._random.randrange(1, 3)}

    def _disturb(self, turn: Turn) -> Turn:
        chance = self._random.random()
        if chance < 0.05:
            return turn.error(after=self._random.randrange(1, 6))
        if chance < 0.10:
            return turn.cut(events=self._random.randrange(0, 6), reset=chance < 0.07)
        if chance < 0.13:
            return turn.unfinished()
        if chance < 0.30:
            return turn.pace(0.002)
        usage = Usage(self._random.randrange(100, 9000), self._random.randrange(1, 500))
        return msgspec.structs.replace(turn, usage=usage) if chance < 0.35 else turn
