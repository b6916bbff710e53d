"""Hook programs for tests: small shell scripts that record their input."""

import json
from pathlib import Path
from typing import Any

from odin.core.call_events import ToolEnded
from odin.core.event import Warned
from tests.engine.conftest import Talk


class HookKit:
    """Writes hook programs and reads their recorded input."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = folder / "seen.jsonl"
        self._count = 0

    def script(self, text: str) -> str:
        """Return a program that records its input, then runs `text`."""
        self._count += 1
        path = self._folder / f"hook-{self._count}.sh"
        path.write_text(f'#!/bin/sh\nread -r told\nprintf "%s\\n" "$told" >> "{self._seen}"\n{text}\n')
        path.chmod(0o755)
        return str(path)

    def says(self, answer: Any) -> str:
        """A program that prints this object, or this text."""
        printed = answer if isinstance(answer, str) else json.dumps(answer)
        file = self._folder / f"answer-{self._count}.txt"
        file.write_text(printed)
        return self.script(f'cat "{file}"')

    def blocks(self, reason: str) -> str:
        return self.script(f"echo '{reason}' >&2; exit 2")

    def told(self) -> list[dict[str, Any]]:
        """Return the recorded inputs of the programs, in order."""
        return [json.loads(line) for line in self._seen.read_text().splitlines()] if self._seen.exists() else []

    def events(self) -> list[str]:
        return [item["hook_event_name"] for item in self.told()]


def new_kit(folder: Path) -> HookKit:
    place = folder / "hooks"
    place.mkdir()
    return HookKit(place)


def hook(command: Any, **fields: Any) -> dict[str, Any]:
    return {"command": command, **fields}


def claude(command: str, matcher: str = "", **fields: Any) -> dict[str, Any]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **fields}]}


def body(talk: Talk, number: int) -> str:
    """One request to the model, as text."""
    return talk.server.requests[number].body.decode()


def warnings(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(Warned)]


def result(talk: Talk) -> ToolEnded:
    (ended,) = talk.all(ToolEnded)
    return ended
