"""No sequence of what can happen in a session leads to a request that its API refuses.

The server has the rules of the vendors. It binds thinking to what came before it, and counts what it would drop.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import Compacted, ResultsPruned
from odin.core.event_values import Mode
from odin.core.op import Compact, Rewind, SetEffort, SetMode, SetModel, SetSystemPrompt, SetTools
from odin.testing import ScriptedServer, call, reply, say
from odin.testing.script import SeenRequest, Turn
from tests import pictures
from tests.soak import choose, list_seeds, soak
from tests.waiting import LIMIT_S

from .conftest import Start, Talk
from .test_compaction import GOOD_SUMMARY, is_summary

WINDOW = 30_000
MODELS = (
    *("anthropic/claude-sonnet-5-5", "anthropic/claude-opus-5-5", "anthropic/claude-haiku-5-5"),
    *(
        "anthropic/claude-fable-5-1",
        "anthropic/claude-fable-5-2",
        "anthropic/claude-opus-5",
        "anthropic/claude-sonnet-5",
    ),
    *("anthropic/claude-opus-4-6", "anthropic/claude-sonnet-4-5", "openai/gpt-5.5", "openai/gpt-4.1"),
    *("google/gemini-3.8-flash", "google/gemini-2.5-flash"),
)
MODES: tuple[Mode, ...] = ("edit_mode", "edit_mode", "edit_mode", "ask_mode", "plan_mode")
TOOLS = ("Read", "Grep", "Glob", "LS", "Bash")
ACTIONS = Counter(say=12, effort=2, model=3, tools=1, system=1, compact=1, rewind=2, resume=2, fork=1)
"""How often each action is chosen, in proportion."""


class Walk:
    """A random session: what its model answers, and what its user does."""

    def __init__(self, seed: int, start: Start, workspace: Path, *, knows_betas: bool) -> None:
        self.random = Random(seed)
        self.start, self.workspace = start, workspace
        self.server = ScriptedServer(self.answer, window=WINDOW, betas=None if knows_betas else ()).start()
        self.loop = asyncio.get_running_loop()
        self.client: Client | None = None
        self.calls_left = 0
        self.calls = 0
        self.done: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.losses = self.causes = self.sent_back = 0
        self.mode: Mode = "edit_mode"
        self.model = "anthropic/claude-sonnet-5-5"

    def answer(self, seen: SeenRequest) -> Turn:
        """Return what the model answers. What changes in the middle of a turn has changed before its next request."""
        if is_summary(seen):
            return say(GOOD_SUMMARY)
        if not seen.tool_names:
            return say("A title")
        if seen.api == "anthropic":
            self.count_thoughts(seen)
        random = self.random
        thought = random.choice(["", "hm", "let me see " * 20])
        if self.calls_left <= 0:
            return say("Done.", thinking=thought)
        self.calls_left -= 1
        self.calls += 1
        if random.random() < 0.04:
            self.change_while_busy()
        calls = [
            call("Read", {"file_path": str(self.pick_file()), "offset": 1 + (2 * self.calls + at) % 40})
            for at in range(random.choice([1, 1, 1, 2]))
        ]
        turn = reply(random.choice(["", "", "I go on."]), calls, thinking=thought)
        turn = turn.hiding("secret") if seen.api == "anthropic" and random.random() < 0.1 else turn
        return turn.updating("I look at it.") if random.random() < 0.4 else turn

    def count_thoughts(self, seen: SeenRequest) -> None:
        """Count when thinking is left out that the request before had."""
        kinds = [block["type"] for message in seen.messages for block in message["content"]]
        before, self.kept[seen.model] = self.kept[seen.model], kinds.count("thinking")
        self.losses += self.kept[seen.model] < before
        self.sent_back += self.kept[seen.model]

    def pick_file(self) -> Path:
        return self.workspace / self.random.choice(
            ["small.txt", "small.txt", "large.txt", "large.txt", "shot.png", "no"]
        )

    def change_while_busy(self) -> None:
        """Change tools, system prompt or mode before the next request of the running turn."""
        random = self.random
        change = random.choice(
            [
                SetTools(random.choice([None, TOOLS, TOOLS[:3]])),
                SetSystemPrompt(random.choice([None, "You are a careful engineer."])),
                SetMode(random.choice(MODES)),
            ]
        )
        self.done[f"{type(change).__name__} in a turn"] += 1
        self.causes += 1
        assert self.client is not None
        asyncio.run_coroutine_threadsafe(self.client.submit(change), self.loop).result(LIMIT_S)

    async def open(self, **options: Any) -> Talk:
        names = [ref.partition("/") for ref in MODELS]
        config = {
            "providers": {
                provider: {"models": {name: {"context": WINDOW} for other, _, name in names if other == provider}}
                for provider in ("anthropic", "openai", "google")
            },
            "max_turns": 0,
        }
        env = self.server.env("openai") | self.server.env("google") | self.server.env("anthropic")
        env["ODIN_MODEL"] = self.model
        talk = await self.start(None, server=self.server, config=config, env=env, **options)
        self.client = talk.client
        return talk

    async def run(self, steps: int) -> None:
        talk = await self.open()
        for step in range(steps):
            # First a prompt: a session without one is not kept, and there would be nothing to resume.
            action = self.random.choice(list(ACTIONS.elements())) if step else "say"
            self.done[action] += 1
            self.causes += action != "say"
            before = len(talk.all(ResultsPruned)) + len(talk.all(Compacted))
            following = await self.act(talk, action)
            self.causes += len(talk.all(ResultsPruned)) + len(talk.all(Compacted)) - before
            talk = following
            self.check()
        await talk.client.close()

    async def act(self, talk: Talk, action: str) -> Talk:
        random, client = self.random, talk.client
        if action == "say":
            self.calls_left = random.choice([0, 1, 3, 8, 20])
            mode = random.choice(MODES)
            self.causes += mode != self.mode
            self.mode = mode
            ended = await talk.say(f"Prompt {self.done['say']}.", mode)
            assert ended.reason in ("end_turn", "loop_detected"), ended
        elif action == "effort":
            with suppress(UsageError):  # the model does not reason
                await client.submit(SetEffort(random.choice(["", "none", "low", "high", "max"])))
        elif action == "model":
            self.model = random.choice(MODELS)
            await client.submit(SetModel(self.model))
        elif action == "tools":
            await client.submit(SetTools(random.choice([None, TOOLS, TOOLS[:3]])))
        elif action == "system":
            await client.submit(SetSystemPrompt(random.choice([None, "You are a careful engineer."])))
        elif action == "compact":
            await client.submit(Compact())
            await talk.say("After it.")
        elif action == "rewind":
            turns = (await client.snapshot()).prompts
            if turns:
                await client.submit(Rewind(random.choice(turns).id, files=False))
        else:
            session = (await client.get_info()).session
            await client.close()
            return await self.open(resume=session, fork=action == "fork")
        return talk

    def check(self) -> None:
        refused = [(seen.model, why) for seen, why in self.server.rejected if "`anthropic-beta`" not in why]
        assert refused == []
        assert [(seen.model, entry) for seen, entry in self.server.dropped] == []


@soak
@pytest.mark.parametrize("knows_betas", [True, False], ids=["knows-binding", "older-gateway"])
@pytest.mark.parametrize("seed", list_seeds(sample=1, full=20))
async def test_no_request_is_refused(start: Start, workspace: Path, seed: int, knows_betas: bool) -> None:
    (workspace / "small.txt").write_text("a line\n" * 5)
    (workspace / "large.txt").write_text("a much longer line that fills the window\n" * 150)
    (workspace / "shot.png").write_bytes(pictures.png(80, 60))
    walk = Walk(seed, start, workspace, knows_betas=knows_betas)
    await walk.run(choose(sample=25, full=120))
    assert walk.sent_back > 0
    assert walk.losses <= walk.causes, "thinking is left out only after a change, and once for each"
