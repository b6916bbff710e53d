"""Records a session log with every kind of event of a conversation, by running a scripted session."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import (
    CallDiscarded,
    CallSpeculated,
    PermissionAsked,
    ReplyDiscarded,
    SpawnStarted,
    TextStreamed,
    ToolProgressed,
)
from odin.core.client import Client
from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextAdded,
    Envelope,
    MessageRemoved,
    PromptInjected,
    PromptQueued,
    Redone,
    Rewound,
    TurnEnded,
)
from odin.core.op import (
    AddContext,
    AddRule,
    AnswerPermission,
    Compact,
    Continue,
    Interrupt,
    Prompt,
    Redo,
    RemoveLastMessage,
    Rewind,
    RunUserShell,
    SetPermissionMode,
    SetTitle,
)
from odin.session.log import read_log
from odin.testing import ScriptedServer, Turn, call, fault, reply, say
from odin.testing.script import SeenRequest
from odin.testing.strict import IssuedIds
from tests.waiting import TimeLimit

Api = Literal["anthropic", "openai"]


REQUIRED_EVENTS: set[type[AnyEvent]] = {
    CallDiscarded,
    CallSpeculated,
    Compacted,
    ContextAdded,
    MessageRemoved,
    PromptInjected,
    PromptQueued,
    Redone,
    ReplyDiscarded,
    Rewound,
    SpawnStarted,
}
"""Event types that every recording must contain."""


class Recording(Struct, frozen=True):
    """A session log, and the ids and signatures that its scripted server issued."""

    data: bytes
    events: list[Envelope]
    memory: IssuedIds


class SessionPlayer:
    """Sends prompts, answers permission requests, and waits for the end of each turn."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._events: AsyncIterator[Envelope] = client.stream_events()
        self._count = 0

    async def say(
        self,
        text: str,
        *,
        answer: AnswerPermission | None = None,
        stop_at: type[AnyEvent] | None = None,
        then: Prompt | None = None,
    ) -> None:
        """Send a prompt and wait for its end. `then` is submitted while the turn runs; `stop_at` interrupts it."""
        self._count += 1
        name = f"p{self._count}"
        await self.client.submit(Prompt(name, text))
        if then is not None:
            await self.client.submit(then)
        await self._wait_for_end(name, answer, stop_at)

    async def continue_turn(self) -> None:
        self._count += 1
        name = f"p{self._count}"
        await self.client.submit(Continue(name))
        await self._wait_for_end(name)

    async def _wait_for_end(
        self, name: str, answer: AnswerPermission | None = None, stop_at: type[AnyEvent] | None = None
    ) -> None:
        async with TimeLimit():
            async for envelope in self._events:
                event = envelope.event
                if isinstance(event, PermissionAsked):
                    await self.client.submit(replace(answer or AnswerPermission("", True), ask_id=event.ask_id))
                elif stop_at is not None and isinstance(event, stop_at):
                    stop_at = None
                    await self.client.submit(Interrupt())
                elif isinstance(event, TurnEnded) and event.id == name:
                    return

    async def queue_two(self, one: str, other: str) -> None:
        """Submit two prompts, so that the second is queued, and wait until it ends."""
        await self.client.submit(Prompt("q1", one))
        await self.client.submit(Prompt("q2", other))
        async with TimeLimit():
            async for envelope in self._events:
                if isinstance(envelope.event, TurnEnded) and envelope.event.id == "q2":
                    return


def make_script(root: Path) -> list[Turn]:
    """Return the turns of the model. Each line answers one prompt of `run_session`."""
    a, b, c = (str(root / name) for name in ("a.txt", "b.txt", "c.txt"))
    todos = {"todos": [{"id": "1", "content": "look", "status": "in_progress"}]}
    edit = {"file_path": a, "old_string": "two", "new_string": "TWO"}
    return [
        *(
            reply("Let me look.", [call("Read", {"file_path": a}), call("Ls", {"path": str(root)})], "I must look"),
            reply(
                "", [call("TodoWrite", todos), call("EditTool", edit), call("WriteFile", _write_args(b))], "now write"
            ),
            reply(
                "",
                [
                    call("ExecuteCommand", {"command": "echo out; echo err >&2; exit 3"}),
                    call("Delete", _delete_args(b)),
                ],
            ),
            say("Done.", thinking="that was it"),
        ),
        *(call("Nonesuch", {}), call("Read", {"file_path": 5}), say("Neither works.")),
        *(call("WriteFile", '{"file_path": '), call("WriteFile", _write_args(c)), say("Written.")),
        *(call("ExecuteCommand", {"command": "touch denied"}), say("As you wish.")),
        *(
            reply("A helper does it.", [call("AgentTool", {"description": "count", "prompt": "count the files"})]),
            reply("", [call("Ls", {"path": str(root)})], "as a helper"),
            say("Three files."),
            say("The helper says three."),
        ),
        say("This takes a long time to say, and nobody wants to hear it. " * 20, chunk=10).pace(0.02),
        *(call("ExecuteCommand", {"command": "echo begun; sleep 60"}),),
        *(fault(529), say("Now it works.")),
        *(reply("", [call("ContextSummarizer", {"focus": "files"})]), say("Summarised.")),
        *(call("EditTool", {"file_path": a, "old_string": "one", "new_string": "ONE"}), say("Edited again.")),
        say("After the redo."),
        *(say("First."), say("Second.")),
        *(
            reply(
                "Early.", [call("WriteFile", _write_args(b)), call("Read", {"file_path": a}), call("Ls", {"path": b})]
            ).pace(0.02),
            say("It was begun early."),
        ),
        *(
            reply("", [call("WriteFile", _write_args(f"{root}/e")), call("Ls", {})]).pace(0.02).unfinished(3),
            say("In vain."),
        ),
        say("To be taken out."),
        say("Continued."),
        *(call("Read", {"file_path": a}), say("With company.")),
        say("After the summary."),
        *(call("Read", {"file_path": str(root / "long.txt")}), call("Read", {"file_path": a}), say("Long.")),
        *(
            reply("", [call("Spawn", {"command": "sleep 50", "description": "wait"})], "in the background"),
            say("Runs."),
        ),
    ]


def _write_args(path: str) -> dict[str, Any]:
    return {"file_path": path, "content": f"new {path}\n"}


def _delete_args(path: str) -> dict[str, Any]:
    return {"paths": [path], "reason": "not needed"}


class Model:
    """Plays the script. Requests to the small model, which have no tools, get a fixed reply."""

    def __init__(self, turns: list[Turn]) -> None:
        self.turns_left = turns

    def __call__(self, seen: SeenRequest) -> Turn:
        return self.turns_left.pop(0) if seen.tool_names else say("In short.")


async def run_session(client: Client) -> None:
    player = SessionPlayer(client)
    await player.say("look around and change something")
    await client.submit(AddContext("the answer is 42", path="/notes.txt"))
    await player.say("call things that do not exist")
    await player.say("write a file")
    await player.say("make a file", answer=AnswerPermission("", False, "not here"))
    await client.submit(AddRule("ExecuteCommand(echo:*)"))
    await player.say("let somebody count")
    await client.submit(SetTitle("A rich session"))
    await player.say("talk", stop_at=TextStreamed)
    await player.say("wait", stop_at=ToolProgressed)
    await player.say("try again when it is overloaded")
    await player.say("sum it up")
    await player.say("edit once more")
    await client.submit(Rewind("p10"))
    await client.submit(Redo())
    await player.say("go on")
    await client.submit(SetPermissionMode("acceptEdits"))
    await player.queue_two("one", "two")
    await player.say("write early")
    await player.say("write in vain")
    await player.say("say something wrong")
    await client.submit(RemoveLastMessage())
    await player.continue_turn()
    await player.say("look", then=Prompt("s1", "and listen", delivery="merge"))
    await client.submit(RunUserShell("r1", "echo mine"))
    await client.submit(Compact())
    await player.say("after the summary")
    await player.say("read something long")
    await player.say("start something")


async def record(api: Api, root: Path, home: Path) -> Recording:
    for name in ("a.txt", "d.txt"):
        (root / name).write_text("one\ntwo\nthree\n")
    (root / "long.txt").write_text("a long line of words that fill the window\n" * 400)
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "odinconfig.json").write_text(json.dumps({"retry": {"base_s": 0.01}, "max_context": 12_000}))
    model = "claude-sonnet-4-5" if api == "anthropic" else "gpt-5"
    scripted = Model(make_script(root))
    with ScriptedServer(scripted) as server:
        env = {**os.environ, **server.env(api, model)}
        allowed = ("Read", "Ls", "EditTool", "WriteFile", "Delete", "Spawn", "AgentTool", "ExecuteCommand(sleep:*)")
        options = Options(cwd=str(root), can_ask=True, allowed_tools=allowed, thinking=2000, env=env)
        client = await open_session(options)
        try:
            await run_session(client)
        finally:
            await client.close()
        assert server.rejected == []
        assert scripted.turns_left == []
        memory = server._router._memory
    path = next((home / ".local/state/odin/sessions").glob("*/*/main.jsonl"))
    events = list(read_log(path))
    seen = {type(envelope.event) for envelope in events}
    assert {kind.__name__ for kind in REQUIRED_EVENTS - seen} == set()
    return Recording(path.read_bytes(), events, memory)
