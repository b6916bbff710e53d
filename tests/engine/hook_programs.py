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

    def script_printing(self, answer: Any) -> str:
        """Return a program that prints this object as JSON, or this text as it is."""
        printed = answer if isinstance(answer, str) else json.dumps(answer)
        file = self._folder / f"answer-{self._count}.txt"
        file.write_text(printed)
        return self.script(f'cat "{file}"')

    def script_blocking(self, reason: str) -> str:
        return self.script(f"echo '{reason}' >&2; exit 2")

    def inputs(self) -> list[dict[str, Any]]:
        """Return the recorded inputs of the programs, in order."""
        return [json.loads(line) for line in self._seen.read_text().splitlines()] if self._seen.exists() else []

    def event_names(self) -> list[str]:
        return [item["hook_event_name"] for item in self.inputs()]


def new_kit(folder: Path) -> HookKit:
    hooks_folder = folder / "hooks"
    hooks_folder.mkdir()
    return HookKit(hooks_folder)


def hook(command: Any, **fields: Any) -> dict[str, Any]:
    return {"command": command, **fields}


def claude_hook(command: str, matcher: str = "", **fields: Any) -> dict[str, Any]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **fields}]}


def request_text(talk: Talk, number: int) -> str:
    """Return the text of one request to the model."""
    return talk.server.requests[number].body.decode()


def warnings(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(Warned)]


def result(talk: Talk) -> ToolEnded:
    (ended,) = talk.all(ToolEnded)
    return ended
