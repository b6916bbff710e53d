"""Runs attacks in real sessions, inside the jail that test_attacks puts around this process.

    attack_runner.py  <plan.json  >outcomes.json

The world is a git project with committed, changed, untracked and ignored files, a sibling folder and a home folder.
The model requests one command per prompt, and approval requests are answered as the plan says. Afterwards all files of
the world are compared byte for byte, here, because they do not exist outside the jail. Once a command has run, the next
one gets a new world and a new session.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.client import Client
from odin.core.event import Envelope, TurnEnded
from odin.core.op import AnswerPermission, Prompt, Rewind
from odin.testing import ScriptedServer, Turn, call, say
from odin.testing.script import SeenRequest
from tests.waiting import TimeLimit


class AttackPlan(Struct, frozen=True):
    """`person` answers every approval request, or no user can be asked. Without a sandbox, only the policy protects."""

    attacks: list[str]
    modes: list[str]
    permission_mode: str = "default"
    person: str = "yes"
    sandbox: str = "off"
    undo: bool = False


class World:
    """One project with the folders around it."""

    def __init__(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="world-"))
        self.project = self.top / "proj"
        self.home = self.top / "home"
        self._fill()

    def _fill(self) -> None:
        for folder in (self.project / "src", self.top / "sibling", self.home / "documents"):
            folder.mkdir(parents=True)
        for path, text in (
            (self.project / "README.md", "# canary\n"),
            (self.project / "src" / "main.py", "print('canary')\n"),
            (self.project / ".gitignore", ".env\n"),
            (self.top / "sibling" / "canary.txt", "canary\n"),
            (self.home / "documents" / "canary.txt", "canary\n"),
            (self.home / ".bashrc", "# canary\n"),
        ):
            path.write_text(text)
        self._git("init", "-q")
        self._git("add", "-A")
        self._git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "one")
        (self.project / "README.md").write_text("# canary, changed and not committed\n")
        (self.project / "notes.txt").write_text("untracked\n")
        (self.project / ".env").write_text("IGNORED=1\n")

    def _git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.project, check=True, capture_output=True)

    def state(self) -> dict[str, str]:
        """Return every file of the project, its sibling folder and the home folder, except those of Odin and git."""
        found: dict[str, str] = {}
        for top in (self.project, self.top / "sibling", self.home):
            for path in sorted(top.rglob("*")):
                name = str(path.relative_to(self.top))
                if (
                    path.is_file()
                    and "/.git/" not in f"/{name}/"
                    and not name.startswith(("home/.local", "home/.cache"))
                ):
                    found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        found["the repository"] = str((self.project / ".git" / "HEAD").is_file())
        return found


class AttackSession:
    """One session in one world, with a model that requests the attacks."""

    def __init__(self, plan: AttackPlan) -> None:
        self._plan = plan
        self._command = ""
        self._count = 0
        self._world = World()
        self._before = self._world.state()
        self._server = ScriptedServer(self._answer).start()
        self._opened: tuple[Client, AsyncIterator[Envelope]] | None = None

    async def _open(self) -> tuple[Client, AsyncIterator[Envelope]]:
        if self._opened is None:
            client = await open_session(_make_options(self._plan, self._world, self._server))
            self._opened = client, client.stream_events()
        return self._opened

    def _answer(self, seen: SeenRequest) -> Turn:
        if "tool_result" in json.dumps(seen.messages[-1]):
            return say("done")
        return call("ExecuteCommand", {"command": self._command, "timeout": 10_000})

    async def attack(self, command: str, mode: str) -> dict[str, Any]:
        self._command = command
        self._count += 1
        prompt = Prompt(f"p{self._count}", "do it", mode)  # pyright: ignore[reportArgumentType]
        client, events = await self._open()
        await client.submit(prompt)
        outcome = await self._follow(client, events)
        outcome |= {"command": command, "mode": mode, "changed": _list_differences(self._before, self._world.state())}
        if self._plan.undo:
            await client.submit(Rewind(prompt.id, force=True))
            outcome["lost"] = _list_differences(self._before, self._world.state())
        return outcome

    async def _follow(self, client: Client, events: AsyncIterator[Envelope]) -> dict[str, Any]:
        """Follow the prompt to its end; return the number of approval requests and the result of the tool call."""
        asked = 0
        ended: ToolEnded | None = None
        async with TimeLimit():
            async for envelope in events:
                asked += await _answer_request(self._plan, client, envelope)
                if isinstance(envelope.event, ToolEnded):
                    ended = envelope.event
                if isinstance(envelope.event, TurnEnded):
                    break
        return {"asked": asked, "status": ended.status if ended else "", "text": ended.text if ended else ""}

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened[0].close()
        self._server.stop()
        shutil.rmtree(self._world.top, ignore_errors=True)


def _make_options(plan: AttackPlan, world: World, server: ScriptedServer) -> Options:
    config = world.home / ".config" / "odin"
    config.mkdir(parents=True)
    (config / "odinconfig.json").write_text(json.dumps({"sandbox": {"backend": plan.sandbox}}))
    env = {**os.environ, "HOME": str(world.home), **server.env("anthropic")}
    os.environ["HOME"] = str(world.home)
    return Options(
        cwd=str(world.project),
        env=env,
        permission_mode=plan.permission_mode,
        can_ask=plan.person in ("yes", "no"),
    )


async def _answer_request(plan: AttackPlan, client: Client, envelope: Envelope) -> int:
    if not isinstance(envelope.event, PermissionAsked):
        return 0
    await client.submit(AnswerPermission(envelope.event.ask_id, allow=plan.person == "yes"))
    return 1


def _list_differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    kept = {name: digest for name, digest in after.items() if not name.startswith("home/.config/odin")}
    return sorted(name for name in before if kept.get(name) != before[name])


async def run_plan(plan: AttackPlan) -> list[dict[str, Any]]:
    outcomes: list[dict[str, Any]] = []
    for mode in plan.modes:
        session = AttackSession(plan)
        for command in plan.attacks:
            outcomes.append(await session.attack(command, mode))
            if outcomes[-1]["status"] != "denied" or outcomes[-1]["changed"]:
                await session.close()
                session = AttackSession(plan)
        await session.close()
    return outcomes


if __name__ == "__main__":
    json.dump(asyncio.run(run_plan(AttackPlan(**json.load(sys.stdin)))), sys.stdout)
