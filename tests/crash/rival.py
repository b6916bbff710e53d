"""One of two programs that want the same sessions at the same moment. Each line of its input begins a round."""

import asyncio
import os
import sys
from typing import Any

from odin.app import open_session
from odin.config import Options
from odin.core.errors import OdinError
from odin.core.event import TurnEnded
from odin.core.op import Prompt


async def round_of(kind: str, session: str) -> str:
    """`resume` or `begin` a session, say one thing in it and leave. Gives what came of it, as one line."""
    name: dict[str, Any] = {"resume": session} if kind == "resume" else {"session_id": session}
    try:
        client = await open_session(Options(yes=True, env=dict(os.environ), **name))
    except OdinError as error:
        return f"{type(error).__name__} {error}"
    try:
        events = client.stream_events()
        await client.submit(Prompt(f"{os.getpid()}-{session}", f"hello from {os.getpid()}"))
        async with asyncio.timeout(60):
            async for envelope in events:
                if isinstance(envelope.event, TurnEnded):
                    return f"ended {envelope.event.reason} {envelope.event.error}"
    except OdinError as error:
        return f"{type(error).__name__} {error}"
    finally:
        await client.close()
    return "nothing"


def tell(text: str) -> None:
    sys.stdout.write(text.replace("\n", " ") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    tell("ready")
    for line in sys.stdin:
        tell(asyncio.run(round_of(*line.split())))
