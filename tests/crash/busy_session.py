"""A program that keeps one session busy until it is killed. Arguments: the kind of work, and the prompt or command."""

import asyncio
import os
import sys

from odin.app import open_session
from odin.config import Options
from odin.core.op import Prompt, RunUserShell


async def keep_busy(kind: str, text: str) -> None:
    client = await open_session(Options(yes=True, env=dict(os.environ)))
    events = client.stream_events()
    await client.submit(RunUserShell("r", text) if kind == "own" else Prompt("p", text))
    async for _ in events:
        pass


if __name__ == "__main__":
    asyncio.run(keep_busy(*sys.argv[1:]))
