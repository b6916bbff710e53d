"""Plays attacks against real sessions, inside a jail that the test puts around this process.

    player.py  <play.json  >outcomes.json

Every attack gets its own world: a git project with committed, changed, untracked and ignored files, a sibling folder
and a home folder. The model requests the command, and approval requests are answered as the play says. Afterwards the
world is compared byte for byte, here, because it does not exist outside the jail.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.client import Client
from odin.core.event import Envelope, TurnEnded
from odin.core.op import AnswerPermission, Prompt, Rewind
from odin.testing import ScriptedServer, call, say


class Play(Struct, frozen=True):
    """`person` says yes or no to every question, or nobody is there. `sandbox` off leaves only the judgement."""

    attacks: list[str]
    mode: str = "edit_mode"
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


async def attacked(play: Play, command: str) -> dict[str, Any]:
    world = World()
    before = world.state()
    with ScriptedServer([call("ExecuteCommand", {"command": command, "timeout": 10_000}), say("done")]) as server:
        client = await open_session(_options(play, world, server))
        try:
            outcome = await _played(play, client, command)
            outcome["changed"] = _differences(before, world.state())
            if play.undo:
                await client.submit(Rewind("p", force=True))
                outcome["lost"] = _differences(before, world.state())
        finally:
            await client.close()
    shutil.rmtree(world.top, ignore_errors=True)
    return outcome


def _options(play: Play, world: World, server: ScriptedServer) -> Options:
    config = world.home / ".config" / "odin"
    config.mkdir(parents=True)
    (config / "odinconfig.json").write_text(json.dumps({"sandbox": {"backend": play.sandbox}}))
    env = {**os.environ, "HOME": str(world.home), **server.env("anthropic")}
    os.environ["HOME"] = str(world.home)
    return Options(
        cwd=str(world.project),
        env=env,
        permission_mode=play.permission_mode,
        can_ask=play.person in ("yes", "no"),
    )


async def _played(play: Play, client: Client, command: str) -> dict[str, Any]:
    events = client.stream_events()
    await client.submit(Prompt("p", "do it", play.mode))  # pyright: ignore[reportArgumentType]
    asked = 0
    ended: ToolEnded | None = None
    async with asyncio.timeout(60):
        async for envelope in events:
            asked += await _answered(play, client, envelope)
            if isinstance(envelope.event, ToolEnded):
                ended = envelope.event
            if isinstance(envelope.event, TurnEnded):
                break
    return {
        "command": command,
        "asked": asked,
        "status": ended.status if ended else "",
        "text": ended.text if ended else "",
    }


async def _answered(play: Play, client: Client, envelope: Envelope) -> int:
    if not isinstance(envelope.event, PermissionAsked):
        return 0
    await client.submit(AnswerPermission(envelope.event.ask_id, allow=play.person == "yes"))
    return 1


def _differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    kept = {name: digest for name, digest in after.items() if not name.startswith("home/.config/odin")}
    return sorted(name for name in before if kept.get(name) != before[name])


async def main() -> None:
    raw = json.load(sys.stdin)
    play = Play(**raw)
    outcomes = [await attacked(play, command) for command in play.attacks]
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
