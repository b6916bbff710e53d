"""Gives a session its title once its first turn is over. A session that ends with that turn keeps its first line."""

import asyncio
from contextlib import suppress

from odin.core.errors import OdinError
from odin.core.event import TitleSet, TurnEnded
from odin.core.job import TITLE_JOB
from odin.engine.lesser import SmallModel
from odin.engine.recorder import Recorder

MAX_TITLE = 60
TITLE_DELAY_S = 0.2
"""A session that answers one prompt and ends is gone by then, and is not held up."""


async def give_title(recorder: Recorder, small_model: SmallModel) -> None:
    subscription = recorder.hub.subscribe("agent")
    async for envelope in subscription:
        if isinstance(envelope.event, TurnEnded) and not envelope.agent and recorder.state.turns:
            break
    subscription.close()
    await asyncio.sleep(TITLE_DELAY_S)
    turns = recorder.state.turns
    if turns and not recorder.state.title:
        first = turns[0].body
        title = await small_model.ask_or_default(TITLE_JOB, first[:2000], default=first)
        if not recorder.state.title:
            with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
                recorder.emit(TitleSet(" ".join(title.split())[:MAX_TITLE]))
