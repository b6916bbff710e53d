"""Random sessions against the strict client: every message conforms, every prompt is answered, every call ends."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError

from odin.testing import ScriptedServer, SeenRequest, Turn, call, fault, reply, say
from tests.acp.editor import FORMS, Editor, Message, open_editor
from tests.soak import list_seeds, soak

QUESTION = {"header": "Pick", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}
REASONS = ("end_turn", "cancelled", "max_tokens", "max_turn_requests", "refusal")


class RandomModel:
    """Answers each request at random: text, calls of several kinds, and failures."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._count = 0

    def __call__(self, seen: SeenRequest) -> Turn:
        self._count += 1
        kind = self._dice.randrange(12)
        if kind < 4 or self._count % 9 == 0:
            return say(self._dice.choice(("Done.", "Ünïcode 🎉\u202e text", "```\ncode\n```", "long " * 500)))
        if kind == 4:
            return fault(self._dice.choice((400, 401, 404)))
        return reply(self._dice.choice(("", "Next.")), [self._make_call(n) for n in range(self._dice.randint(1, 3))])

    def _make_call(self, number: int) -> Any:
        word = self._dice.choice(("one", "two", "three"))
        name, args = self._dice.choice(
            (
                ("Read", {"file_path": "a.txt"}),
                ("LS", {"path": "."}),
                ("EditTool", {"file_path": "a.txt", "old_string": word, "new_string": f"{word}!"}),
                ("WriteFile", {"file_path": f"{word}.txt", "content": f"{word}\n"}),
                ("ExecuteCommand", {"command": f"echo {word} >>b.txt; cat b.txt"}),
                ("ExecuteCommand", {"command": "sleep 0.2"}),
                ("TodoWrite", {"todos": [{"id": "1", "content": word, "status": "pending"}]}),
                ("Question", {"questions": [QUESTION]}),
                ("AgentTool", {"description": word, "prompt": f"Look for {word}."}),
                ("NoSuchTool", {"x": [1]}),
            )
        )
        return call(name, args, id=f"c{self._count}-{number}")


class RandomUser:
    def __init__(self, dice: random.Random, workspace: Path) -> None:
        self._dice = dice
        self._workspace = workspace

    async def answer(self, request: Message) -> Any:
        await asyncio.sleep(self._dice.choice((0, 0, 0.02)))
        if self._dice.random() < 0.1:
            return None
        if request["method"] == "elicitation/create":
            return {
                name: self._fill_in(field) for name, field in request["params"]["requestedSchema"]["properties"].items()
            }
        return self._dice.choice(request["params"]["options"])["optionId"]

    def _fill_in(self, field: Message) -> Any:
        if "oneOf" in field:
            return self._dice.choice(field["oneOf"])["const"]
        return field.get("default", self._dice.choice(("", "my words")))

    async def use(self, editor: Editor) -> None:
        """Open a session and do random things in it."""
        session = await editor.open(self._workspace)
        running: list[asyncio.Task[str]] = []
        for _ in range(self._dice.randint(4, 10)):
            await asyncio.sleep(self._dice.choice((0, 0.01, 0.1)))
            kind = self._dice.randrange(10)
            if kind < 5:
                text = self._dice.choice(("Go.", "Change a.txt.", "/status", "/plan Think.", "/edit", "/nonsense", " "))
                running.append(asyncio.create_task(editor.prompt(session, text)))
            elif kind == 5:
                await editor.notify("session/cancel", sessionId=session)
            elif kind == 6:
                name, value = self._dice.choice((("mode", "ask"), ("mode", "edit"), ("effort", "low"), ("role", "x")))
                await self._try(editor, "session/set_config_option", sessionId=session, configId=name, value=value)
            elif kind == 7:
                method = self._dice.choice(("session/load", "session/resume"))
                await self._try(editor, method, sessionId=session, cwd=str(self._workspace), mcpServers=[])
            elif kind == 8:
                await editor.ask("session/list", cwd=str(self._workspace))
            else:
                for task in running:
                    await asyncio.wait([task], timeout=10)
                    self._check(task)
                running = []
        await editor.notify("session/cancel", sessionId=session)
        for task in running:
            await asyncio.wait([task], timeout=30)
            self._check(task)
        ids = {update["toolCallId"] for update in editor.all("tool_call")}
        statuses = {name: editor.call(name)["status"] for name in ids}
        assert {name: status for name, status in statuses.items() if status not in ("completed", "failed")} == {}
        await editor.ask("session/close", sessionId=session)

    def _check(self, task: "asyncio.Task[str]") -> None:
        assert task.done(), "a prompt has no answer"
        error = task.exception()
        assert isinstance(error, RequestError) if error else task.result() in REASONS

    async def _try(self, editor: Editor, method: str, **params: Any) -> None:
        try:
            await editor.ask(method, **params)
        except RequestError as error:
            assert error.code != -32603, error


@soak
@pytest.mark.parametrize("seed", list_seeds(4, 100))
async def test_a_random_session(seed: int, workspace: Path) -> None:
    dice = random.Random(seed)
    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    user = RandomUser(dice, workspace)
    with ScriptedServer(RandomModel(dice)) as model:
        capabilities: Message = FORMS if dice.random() < 0.5 else {}
        async with open_editor(model, answers=[user.answer] * 1000, capabilities=capabilities) as editor:
            await user.use(editor)
