"""A scripted model that never runs out: it talks, thinks, calls every kind of tool and makes mistakes, by a seed."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odin.testing import Turn, call, fault, reply, say
from odin.testing.script import ScriptedCall, SeenRequest

WORDS = "The quick brown fox jumps over the lazy dog and writes it down. "


class Trigger:
    """A gate that is open, and acts when somebody comes by."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def is_set(self) -> bool:
        self._act()
        return True


class Model:
    """`mark` is part of every command that goes on for long, so that such a process can be found by it.

    `strike(n, act, after)`: do that when `after` events of the answer to the nth request from now have been sent.
    """

    def __init__(self, seed: int, root: Path, mark: str) -> None:
        self._random = random.Random(seed)
        self._root = root
        self._mark = mark
        self._lock = threading.Lock()
        self._count = 0
        self.whose = ""
        """What the names of the files begin with that it works on."""
        self._strike: tuple[int, Callable[[], None], int] | None = None

    def strike(self, number: int, act: Callable[[], None], after: int) -> None:
        with self._lock:
            self._strike = self._count + number, act, after

    def spare(self) -> None:
        """A blow that did not come in time does not come at all."""
        with self._lock:
            self._strike = None

    def __call__(self, seen: SeenRequest) -> Turn:
        with self._lock:
            self._count += 1
            turn = self._turn_for(seen) if seen.tool_names else say("In a few words.", chunk=3)
            if self._strike is not None and self._count >= self._strike[0]:
                _, act, after = self._strike
                self._strike = None
                turn = turn.hold(Trigger(act), after)  # pyright: ignore[reportArgumentType]
            return turn

    def _turn_for(self, seen: SeenRequest) -> Turn:
        return self._turn()

    def _turn(self) -> Turn:
        choice = self._random.random()
        if choice < 0.35:
            return say(WORDS * self._random.randrange(1, 4), thinking=self._thought(), chunk=9).pace(0.001)
        if choice < 0.38:
            return fault(529)
        if choice < 0.42:
            return call("WriteFile", '{"file_path": "')
        if choice < 0.45:
            return say(WORDS * 3, chunk=9).cut(events=self._random.randrange(1, 8))
        calls = [self._call() for _ in range(self._random.choice([1, 1, 2, 3]))]
        said = reply(self._random.choice(["", "Now this. "]), calls, self._thought())
        said = said.pace(self._random.choice([0, 0.002]))
        return said.cut(events=self._random.randrange(10, 60)) if self._random.random() < 0.2 else said

    def _thought(self) -> str:
        return self._random.choice(["", "Let me think about it. " * 3])

    def _call(self) -> ScriptedCall:
        name, args = self._random.choice(self._calls())
        return ScriptedCall(name, args)

    def _calls(self) -> list[tuple[str, dict[str, Any]]]:
        number = self._random.randrange(6)
        path = str(self._root / f"{self.whose}file{number}.txt")
        text = f"{self._random.randrange(1000)} {WORDS}\n" * self._random.randrange(1, 40)
        todo = {"id": "1", "content": f"todo {number}", "status": "pending"}
        lasting = f"sleep {self._mark}"
        return [
            ("Read", {"file_path": path}),
            ("Grep", {"pattern": "fox", "path": str(self._root)}),
            ("WriteFile", {"file_path": path, "content": text}),
            ("WriteFile", {"file_path": path, "content": text}),
            ("AppendFile", {"file_path": path, "content": text}),
            ("EditTool", {"file_path": path, "old_string": "quick", "new_string": "slow", "replace_all": True}),
            ("Delete", {"paths": [path], "reason": "it is in the way"}),
            ("ExecuteCommand", {"command": f"echo {number} >>{self.whose}counted.txt; sleep 0.0{number}; echo done"}),
            ("ExecuteCommand", {"command": f"({lasting} & {lasting} & wait) >/dev/null 2>&1 & sleep 0.05"}),
            ("ExecuteCommand", {"command": lasting, "timeout": 100}),
            ("Spawn", {"command": lasting, "description": "wait"}),
            ("AgentTool", {"description": "help", "prompt": f"help with {path}"}),
            ("TodoWrite", {"todos": [todo]}),
            ("Nonesuch", {"what": text}),
        ]
