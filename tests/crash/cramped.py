"""A program that works with a session while the disk fills up, and goes on when there is room again.

A limit on the size of files stands for the disk: what would grow beyond it is refused in the middle of a line.
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


class Order(msgspec.Struct, frozen=True):
    """What to do: prompts to send, each with the bytes of room the log has then; -1 is as much as it likes."""

    cwd: str
    session: str
    steps: tuple[tuple[str, int], ...]


def leave_room(log: Path, room: int) -> None:
    sys.dont_write_bytecode = True  # a limited file size would leave half a .pyc behind
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = most if room < 0 else (log.stat().st_size if log.exists() else 0) + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


async def work(order: Order) -> list[dict[str, Any]]:
    client = await open_session(Options(cwd=order.cwd, yes=True, session_id=order.session, env=dict(os.environ)))
    said: list[dict[str, Any]] = []
    events = client.stream_events()
    try:
        for number, (text, room) in enumerate(order.steps):
            found = list(Path(os.environ["HOME"]).glob(f".local/state/odin/sessions/*/{order.session}/main.jsonl"))
            leave_room(found[0] if found else Path("nothing"), room)
            try:
                if text.startswith("context"):
                    await client.submit(AddContext(text))
                    said.append({"text": "kept", "error": ""})
                    continue
                await client.submit(Prompt(f"p{number}", text))
            except OdinError as error:
                said.append({"text": "", "error": error.describe()})
                continue
            async with asyncio.timeout(60):
                async for envelope in events:
                    event = envelope.event
                    if isinstance(event, TurnEnded) and event.id == f"p{number}":
                        said.append({"text": event.text, "error": f"{event.error} {event.hint}".strip()})
                        break
    finally:
        leave_room(Path("nothing"), -1)
        await client.close()
    return said


if __name__ == "__main__":
    told = msgspec.json.decode(sys.argv[1], type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(work(told))))
