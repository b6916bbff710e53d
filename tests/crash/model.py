"""A scripted model with endless replies: text, thinking, calls of every tool and malformed replies, by a seed."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odin.testing import Turn, call, fault, reply, say
from odin.testing.script import ScriptedCall, SeenRequest

WORDS = "The quick brown fox jumps over the lazy dog and writes it down. "


class Trigger:
    """An open gate for `Turn.hold` that calls `act` when the server checks it."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def is_set(self) -> bool:
        self._act()
        return True


class Model:
    """A seeded random model. `mark` is part of every long-running command, so that its processes can be found."""

    def __init__(self, seed: int, root: Path, mark: str) -> None:
        self._random = random.Random(seed)
        self._root = root
        self._mark = mark
        self._lock = threading.Lock()
        self._count = 0
        self.file_prefix = ""
        """Prefix of the names of the files that it works on."""
        self._scheduled: tuple[int, Callable[[], None], int] | None = None

    def schedule(self, number: int, act: Callable[[], None], after: int) -> None:
        """Call `act` when `after` events of the reply to the nth request from now have been sent."""
        with self._lock:
            self._scheduled = self._count + number, act, after

    def cancel_schedule(self) -> None:
        """Cancel the scheduled call if it was not made yet."""
        with self._lock:
            self._scheduled = None

    def __call__(self, seen: SeenRequest) -> Turn:
        with self._lock:
            self._count += 1
            turn = self._choose_turn(seen) if seen.tool_names else say("In a few words.", chunk=3)
            if self._scheduled is not None and self._count >= self._scheduled[0]:
                _, act, after = self._scheduled
                self._scheduled = None
                turn = turn.hold(Trigger(act), after)  # pyright: ignore[reportArgumentType]
            return turn

    def _choose_turn(self, seen: SeenRequest) -> Turn:
        return self._make_turn()

    def _make_turn(self) -> Turn:
        choice = self._random.random()
        if choice < 0.35:
            return say(WORDS * self._random.randrange(1, 4), thinking=self._make_thinking(), chunk=9).pace(0.001)
        if choice < 0.38:
            return fault(529)
        if choice < 0.42:
            return call("WriteFile", '{"file_path": "')
        if choice < 0.45:
            return say(WORDS * 3, chunk=9).cut(events=self._random.randrange(1, 8))
        calls = [self._make_call() for _ in range(self._random.choice([1, 1, 2, 3]))]
        turn = reply(self._random.choice(["", "Now this. "]), calls, self._make_thinking())
        turn = turn.pace(self._random.choice([0, 0.002]))
        return turn.cut(events=self._random.randrange(10, 60)) if self._random.random() < 0.2 else turn

    def _make_thinking(self) -> str:
        return self._random.choice(["", "Let me think about it. " * 3])

    def _make_call(self) -> ScriptedCall:
        name, args = self._random.choice(self._list_calls())
        return ScriptedCall(name, args)

    def _list_calls(self) -> list[tuple[str, dict[str, Any]]]:
        number = self._random.randrange(6)
        path = str(self._root / f"{self.file_prefix}file{number}.txt")
        text = f"{self._random.randrange(1000)} {WORDS}\n" * self._random.randrange(1, 40)
        todo = {"id": "1", "content": f"todo {number}", "status": "pending"}
        long_running = f"sleep {self._mark}"
        return [
            ("Read", {"file_path": path}),
            ("Grep", {"pattern": "fox", "path": str(self._root)}),
            ("WriteFile", {"file_path": path, "content": text}),
            ("WriteFile", {"file_path": path, "content": text}),
            ("AppendFile", {"file_path": path, "content": text}),
            ("EditTool", {"file_path": path, "old_string": "quick", "new_string": "slow", "replace_all": True}),
            ("Delete", {"paths": [path], "reason": "it is in the way"}),
            (
                "ExecuteCommand",
                {"command": f"echo {number} >>{self.file_prefix}counted.txt; sleep 0.0{number}; echo done"},
            ),
            ("ExecuteCommand", {"command": f"({long_running} & {long_running} & wait) >/dev/null 2>&1 & sleep 0.05"}),
            ("ExecuteCommand", {"command": long_running, "timeout": 100}),
            ("Spawn", {"command": long_running, "description": "wait"}),
            ("AgentTool", {"description": "help", "prompt": f"help with {path}"}),
            ("TodoWrite", {"todos": [todo]}),
            ("Nonesuch", {"what": text}),
        ]
