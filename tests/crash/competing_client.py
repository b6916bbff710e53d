"""One of two programs that open the same session at the same time. Each line of its input starts a round."""

import asyncio
import os
import sys
from typing import Any

from odin.app import open_session
from odin.config import Options
from odin.core.errors import OdinError
from odin.core.event import TurnEnded
from odin.core.op import Prompt
from tests.waiting import TimeLimit


async def play_round(kind: str, session: str) -> str:
    """`resume` or `begin` a session, send one prompt and close it. Return the outcome as one line."""
    name: dict[str, Any] = {"resume": session} if kind == "resume" else {"session_id": session}
    try:
        client = await open_session(Options(yes=True, env=dict(os.environ), **name))
    except OdinError as error:
        return f"{type(error).__name__} {error}"
    try:
        events = client.stream_events()
        await client.submit(Prompt(f"{os.getpid()}-{session}", f"hello from {os.getpid()}"))
        async with TimeLimit():
            async for envelope in events:
                if isinstance(envelope.event, TurnEnded):
                    return f"ended {envelope.event.reason} {envelope.event.error}"
    except OdinError as error:
        return f"{type(error).__name__} {error}"
    finally:
        await client.close()
    return "nothing"


def print_line(text: str) -> None:
    sys.stdout.write(text.replace("\n", " ") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    print_line("ready")
    for line in sys.stdin:
        print_line(asyncio.run(play_round(*line.split())))
