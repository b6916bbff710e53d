"""Make the missing recordings that `test_recordings.py` replays:

    python -m tests.replay.record

To make one again, delete its folder. Each is a real session against the scripted server.
`odin replay SESSION --save tests/recordings/NAME` adds a session from elsewhere.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import TextStreamed, ToolStarted
from odin.core.op import AnswerPermission, Prompt, Rewind
from odin.replay.recording import save_recording
from odin.testing import ScriptedServer, call, fault, reply, say
from tests.engine.conftest import Talk
from tests.waiting import TimeLimit

RECORDINGS = Path(__file__).parent.parent / "recordings"

SHOP = {
    "shop/cart.py": "def total(prices):\n    return sum(prices)\n\n\ndef count(prices):\n    return len(prices)\n",
    "shop/tax.py": "RATE = 0.19\n\n\ndef taxed(price):\n    return price * (1 + RATE)\n",
    "check.sh": "#!/bin/sh\ngrep -q 'round(' shop/cart.py && echo rounded || { echo 'not rounded' >&2; exit 1; }\n",
    "ODIN.md": "Prices are rounded to two digits.\n",
}


class Scene:
    """One session to record: a project folder, a scripted model, and what the user does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.talk: Any = None
        for name, text in SHOP.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if name.endswith(".sh") else 0o644)

    def get_path(self, name: str) -> str:
        return str(self.folder / name)

    async def start_session(self, script: Any, **options: Any) -> Talk:
        server = ScriptedServer(script)
        server.start()
        env = {**os.environ, **server.env("anthropic")}
        settings: dict[str, Any] = {"cwd": str(self.folder), "yes": True, **options}
        self.talk = Talk(await open_session(Options(env=env, **settings)), server)
        return self.talk


async def edits(scene: Scene) -> None:
    old, new = "return sum(prices)", "return round(sum(prices), 2)"
    cart, tax = scene.get_path("shop/cart.py"), scene.get_path("shop/tax.py")
    todos = [{"id": "1", "content": "round totals", "status": "in_progress"}]
    talk = await scene.start_session(
        [
            reply("I look at both.", [call("Read", {"file_path": cart}), call("Read", {"file_path": tax})]),
            call("TodoWrite", {"todos": todos}),
            call("Edit", {"file_path": cart, "old_string": old, "new_string": new}),
            call("Edit", {"file_path": cart, "old_string": "nowhere", "new_string": "x"}),
            call("ExecuteCommand", {"command": "./check.sh"}),
            call("TodoWrite", {"todos": [{**todos[0], "status": "completed"}]}),
            say("Totals are rounded now.", thinking="That was all."),
            call("WriteFile", {"file_path": scene.get_path("shop/new/notes.txt"), "content": "caf\u00e9\n"}),
            call("Grep", {"pattern": "def ", "path": scene.get_path("shop")}),
            call("Glob", {"pattern": "**/*.py", "path": scene.get_path(".")}),
            call("Delete", {"file_path": tax}),
            say("Done."),
        ]
    )
    await talk.say("Round the totals.")
    await talk.say("Write a note and drop the tax.")


async def commands(scene: Scene) -> None:
    write = {"file_path": scene.get_path("never.txt"), "content": "x"}
    talk = await scene.start_session(
        [
            call("ExecuteCommand", {"command": "./check.sh"}),
            reply("Both.", [call("ExecuteCommand", {"command": "exit 3"}), call("WriteFile", write)]),
            call("ExecuteCommand", {"command": "sed -i 's/19/20/' shop/tax.py && mkdir out && cp shop/*.py out/"}),
            call("ExecuteCommand", {"command": "cat out/tax.py; rm out/cart.py; ls out"}),
            call("ExecuteCommand", {"command": "printf 'a\\n%.0s' $(seq 3); echo err >&2"}),
            say("The tax is higher."),
        ]
    )
    await talk.say("Try some commands.")


async def failures(scene: Scene) -> None:
    """Retries wait only briefly here; in a replay they do not wait."""
    talk = await scene.start_session(
        [
            fault(529),
            say("Cut off").cut(events=3),
            say("There I am."),
            call("Read", '{"file_path": '),
            call("Nothing", {"x": 1}),
            call("Read", {"file": "wrong"}),
            call("Read", {"file_path": scene.get_path("none.txt")}),
            say("It is not there."),
            fault(401),
        ]
    )
    for prompt in ("Are you there?", "Read none.txt.", "And again."):
        await talk.say(prompt)


async def helpers(scene: Scene) -> None:
    tasks = [call("AgentTool", {"description": name, "prompt": f"Look at {name}"}, id=name) for name in ("cart", "tax")]

    def script(request: Any) -> Any:
        first = str(request.messages[0])
        for name in ("cart", "tax"):
            if f"Look at {name}" in first:
                if len(request.messages) == 1:
                    return call("Read", {"file_path": scene.get_path(f"shop/{name}.py")}, id=f"read_{name}")
                return say(f"I saw {name}.")
        return say("Both were seen.") if "I saw cart." in str(request.messages) else reply("Two of you.", tasks)

    talk = await scene.start_session(script)
    await talk.say("Let two look.")


async def interrupted(scene: Scene) -> None:
    talk = await scene.start_session(
        [
            call("ExecuteCommand", {"command": "sleep 100"}),
            say("Half of what I wanted to", chunk=5).stall(after=6),
            call("ExecuteCommand", {"command": "sleep 0.5; echo slept"}),
            say("First."),
            say("Second."),
            say("After the rewind."),
        ]
    )
    talk.interrupt_on = ToolStarted
    await talk.say("Sleep.")
    talk.interrupt_on = TextStreamed
    await talk.say("Talk.")
    seen = len(talk.all(ToolStarted))
    await talk.client.submit(Prompt("p3", "Sleep a little."))
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, ToolStarted):
                seen -= 1
            if seen < 0:
                break
    await talk.client.submit(Prompt("p4", "And then?", "ask_mode"))
    await talk.until_end("p4")
    await talk.client.submit(Rewind("p4"))
    await talk.client.submit(Prompt("p5", "Something else."))
    await talk.until_end("p5")


async def denied(scene: Scene) -> None:
    write = call("WriteFile", {"file_path": scene.get_path("x.txt"), "content": "x"})
    two = [call("ExecuteCommand", {"command": f"touch {name}"}) for name in ("a", "b")]
    talk = await scene.start_session(
        [
            write,
            say("Then not."),
            call("ExecuteCommand", {"command": "touch changed-name"}),
            call("ExecuteCommand", {"command": "touch other"}),
            say("Done."),
            reply("", two),
            say("As you like."),
        ],
        yes=False,
        can_ask=True,
    )
    talk.answers = [AnswerPermission("", False, "not this file")]
    await talk.say("Write x.")
    talk.answers = [
        AnswerPermission("", True, args={"command": "touch right-name"}),
        AnswerPermission("", True, rule="Bash(touch other)", remember="session"),
    ]
    await talk.say("Touch two.")
    talk.answers = [AnswerPermission("", False, "stop here", interrupt=True)]
    await talk.say("Touch more.")
    await talk.say("Why?")


SCENES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    scene.__name__: scene for scene in (edits, commands, failures, helpers, interrupted, denied)
}


async def record_scene(name: str, target: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="odin-record-") as base:
        home, folder = Path(base).resolve() / "home", Path(base).resolve() / "shop"
        settings = home / ".config" / "odin"
        settings.mkdir(parents=True)
        (settings / "odinconfig.json").write_text('{"retry": {"base_s": 0.01, "attempts": 3}}')
        folder.mkdir()
        os.environ.update(HOME=str(home), ODIN_LOCAL_PORTS="")
        scene = Scene(folder)
        try:
            await SCENES[name](scene)
            session = (await scene.talk.client.get_info()).session
        finally:
            await scene.talk.client.close()
            scene.talk.server.stop()
        return save_recording(session, str(target), str(folder))


def main() -> None:
    for name in SCENES:
        if not (RECORDINGS / name).exists():
            sys.stdout.write(f"{name}: {asyncio.run(record_scene(name, RECORDINGS / name))}")


if __name__ == "__main__":
    main()
