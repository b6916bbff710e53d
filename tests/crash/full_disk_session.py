"""A program that prompts one session while the disk is full, and again after space was freed.

A limit on the file size simulates the full disk: the write that exceeds it fails in the middle of a line.
"""

import asyncio
import os
import resource
import sys
from pathlib import Path
from typing import Any

import msgspec

from odin.app import open_session
from odin.config import Options
from odin.core.errors import OdinError
from odin.core.event import TurnEnded
from odin.core.op import AddContext, Prompt
from tests.waiting import TimeLimit


class PromptPlan(msgspec.Struct, frozen=True):
    """The session to open, and the prompts to send, each with the bytes the log may still grow; -1 is no limit."""

    cwd: str
    session: str
    steps: tuple[tuple[str, int], ...]


def limit_log_growth(log: Path, room: int) -> None:
    sys.dont_write_bytecode = True  # a limited file size would leave half a .pyc behind
    _, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = hard_limit if room < 0 else (log.stat().st_size if log.exists() else 0) + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard_limit))


async def send_prompts(plan: PromptPlan) -> list[dict[str, Any]]:
    client = await open_session(Options(cwd=plan.cwd, yes=True, session_id=plan.session, env=dict(os.environ)))
    outcomes: list[dict[str, Any]] = []
    events = client.stream_events()
    try:
        for number, (text, room) in enumerate(plan.steps):
            logs = list(Path(os.environ["HOME"]).glob(f".local/state/odin/sessions/*/{plan.session}/main.jsonl"))
            limit_log_growth(logs[0] if logs else Path("nothing"), room)
            try:
                if text.startswith("context"):
                    await client.submit(AddContext(text))
                    outcomes.append({"text": "kept", "error": ""})
                    continue
                await client.submit(Prompt(f"p{number}", text))
            except OdinError as error:
                outcomes.append({"text": "", "error": error.describe()})
                continue
            async with TimeLimit():
                async for envelope in events:
                    event = envelope.event
                    if isinstance(event, TurnEnded) and event.id == f"p{number}":
                        outcomes.append({"text": event.text, "error": f"{event.error} {event.hint}".strip()})
                        break
    finally:
        limit_log_growth(Path("nothing"), -1)
        await client.close()
    return outcomes


if __name__ == "__main__":
    plan = msgspec.json.decode(sys.argv[1], type=PromptPlan)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(send_prompts(plan))))
