"""Plays a recording: performs the user's actions at the recorded points and answers what Odin asks."""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from odin.core.call_events import AskEvent, RuleRemoved, ToolStarted
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import Envelope, SessionOpened, TurnEnded, TurnStarted
from odin.core.op import RemoveRule
from odin.core.timing import DEFAULT_TIMING
from odin.providers.playback import PlaybackHooks, RecordedProvider
from odin.replay.recording import Recording
from odin.replay.script import EventKey, ReplayScript, UserAction, make_event_key

_LONGEST_PAUSE_S = 600.0

OpenSession = Callable[[RecordedProvider, str], Awaitable[Client]]
"""Opens the session with this model; a session id resumes it."""


class ReplayStuck(OdinError):
    """The replay does not reach a point of the recording; the message names the point."""


class Player:
    """`log` is the log of the replayed session; `report` prints progress."""

    def __init__(
        self,
        recording: Recording,
        open_session: OpenSession,
        log: Path,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._recording = recording
        self._log = log
        self._open_session = open_session
        self._report = report
        self._script = script = ReplayScript(recording.envelopes)
        hooks = PlaybackHooks(self._get_turn, self._wait_for_user, self._mark_silent)
        self._model = RecordedProvider(script.replies, script.cut_turns, script.jobs, hooks)
        # Pauses before a prompt are the user's.
        pauses = (
            then.ts - before.ts
            for before, then in pairwise(recording.envelopes)
            if not isinstance(then.event, TurnStarted | SessionOpened)
        )
        self._stall_timeout_s = DEFAULT_TIMING.replay_stall_s + min(max(pauses, default=0.0), _LONGEST_PAUSE_S)
        self._client: Client | None = None
        self._follow_task: asyncio.Task[None] | None = None
        self._happened: set[EventKey] = set()
        self._silent: set[str] = set()
        self._reply_counts: dict[str, int] = {}
        self._running_turn = ""
        self._ended_turns = 0
        self._actions = deque(script.actions)
        self._progress = asyncio.Event()

    async def play(self) -> str:
        """Play to the end of the recording. Return what the replay is stuck at, or ""."""
        try:
            await self._open("")
            while self._actions:
                await self._wait_for_action(self._actions[0])
                await self._perform(self._actions[0])
                self._actions.popleft()
                self._progress.set()
            if self._client is not None:
                await self._wait_until(
                    lambda: self._ended_turns >= self._script.ended_turns, "the end of the last turn"
                )
        except OdinError as error:
            return error.describe()
        finally:
            await self._close()
        return ""

    async def _wait_until(self, reached: Callable[[], bool], what: str) -> None:
        while not reached():
            self._progress.clear()
            try:
                async with asyncio.timeout(self._stall_timeout_s):
                    await self._progress.wait()
            except TimeoutError:
                raise ReplayStuck(f"no progress while waiting for {what}") from None

    async def _wait_for_action(self, action: UserAction) -> None:
        await self._wait_until(lambda: self._ended_turns >= action.ended_turns, f"the end of turn {action.ended_turns}")
        if action.after:
            await self._wait_until(lambda: action.after in self._happened, " ".join(action.after))
        if action.silent_turn:
            await self._wait_until(
                lambda: action.silent_turn in self._silent, f"the point where {action.silent_turn} was cut off"
            )
        if action.delay:
            await asyncio.sleep(action.delay)

    async def _wait_for_user(self, seq: int) -> None:
        """Wait until every user action before event `seq` is done, so that the model speaks after it.

        Agents that work at once speak in the recorded order, so that mail arrives where it did.
        """
        await self._wait_until(lambda: not self._actions or self._actions[0].seq > seq, "earlier user actions")
        await self._wait_until(lambda: self._script.has_reached(seq, self._happened), "other agents")

    async def _get_turn(self) -> str:
        """The running turn. Asks the session, which knows the turn before its event arrives."""
        turns = (await self._client.snapshot()).messages if self._client is not None else ()
        return turns[-1].id if turns else self._running_turn

    def _mark_silent(self, turn: str) -> None:
        self._silent.add(turn)
        self._progress.set()

    async def _perform(self, action: UserAction) -> None:
        self._report(f"{action.seq:>6}  {action.op if isinstance(action.op, str) else type(action.op).__name__}")
        if action.op == "open":
            await self._close()
            await self._open(self._recording.header.session)
        elif action.op in ("close", "kill"):
            await self._close(killed=action.op == "kill")
            self._ended_turns = action.ended_turns + (action.op == "close")
        elif self._client is not None and isinstance(action.op, RuleRemoved):
            wanted = (action.op.text, action.op.action, action.op.role)
            for line in await self._client.list_rules():
                if (line.text, line.action, line.role) == wanted:
                    await self._client.submit(RemoveRule(line.number))
                    break
        elif self._client is not None and not isinstance(action.op, str | RuleRemoved):
            await self._client.submit(action.op)

    async def _open(self, resumed: str) -> None:
        self._running_turn = ""
        self._client = client = await self._open_session(self._model, resumed)
        self._follow_task = asyncio.create_task(self._follow_events(client))
        await asyncio.sleep(0)

    async def _close(self, *, killed: bool = False) -> None:
        """Close the session. If the recorded one was killed, cut the closing events off the log."""
        if self._follow_task is not None:
            self._follow_task.cancel()
            await asyncio.wait([self._follow_task])
            self._follow_task = None
        if self._client is not None:
            size = self._log.stat().st_size if killed and self._log.exists() else -1
            await self._client.close()
            self._client = None
            if size >= 0:
                os.truncate(self._log, size)

    async def _follow_events(self, client: Client) -> None:
        async for envelope in client.stream_events():
            await self._handle_event(client, envelope)
            self._progress.set()

    async def _handle_event(self, client: Client, envelope: Envelope) -> None:
        event = envelope.event
        if key := make_event_key(envelope, self._reply_counts):
            self._happened.add(key)
        if isinstance(event, TurnStarted) and not envelope.agent:
            self._running_turn = event.id
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._ended_turns += event.id == self._running_turn
            self._report(f"        turn {event.id} ended: {event.reason}")
        elif isinstance(event, ToolStarted):
            self._report(f"        {event.name} {event.description}")
        elif isinstance(event, AskEvent):
            with suppress(OdinError):
                if answer := self._script.find_answer(event):
                    await client.submit(answer)
