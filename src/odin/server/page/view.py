"""A session as the page shows it: the blocks of the app's transcript and a small state, kept up to date by changes.

The events are folded here, with the fold that the terminal app uses, so that both show the same. The page only applies
changes: it gets the newest blocks and the state when it connects, then what of them changed, once per frame.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import msgspec

from odin.core.call_events import PermissionAnswered, PlanAnswered, QuestionsAnswered
from odin.core.client import Client, ProcessRecord, SessionInfo, Snapshot
from odin.core.errors import AgentShutdown, OdinError, UsageError
from odin.core.event import Envelope
from odin.core.format import format_count, format_usd
from odin.core.message import Image
from odin.core.text import to_valid_unicode_all
from odin.server.feed import FrameFeed, Watcher, encode_notice
from odin.server.page.blocks import clean, compare_blocks, encode_block, find_splice
from odin.server.page.requests import encode_request
from odin.ui.permission_text import describe_answer_elsewhere
from odin.ui.session_facts import SessionFacts
from odin.ui.session_follower import SESSION_ENDED, SessionFollower
from odin.ui.slash_commands.processes import describe_process
from odin.ui.status_parts import format_cost, list_parts
from odin.ui.transcript.blocks import CallBlock, PromptBlock
from odin.ui.transcript.model import TranscriptModel, TranscriptModels
from odin.ui.transcript.words import ShownFolders

FIRST_BLOCKS = 200
"""The newest blocks that a page gets when it connects; it asks for earlier ones when somebody scrolls there."""

_MAX_BLOCKS = 5000
_REFRESH_S = 0.1
"""Between two looks at the state of the session: it copies the whole conversation."""

_READY_S = 60.0
_PROCESS_MARKS = {"running": ("▶", "accent"), "failed": ("✗", "bad")}
_FROM_SNAPSHOT = ("title", "permission_mode", "role")
_FROM_INFO = ("cwd", "branch", "version", "effort", "warnings", "sandbox", "sees_images")


class SessionView:
    """What all pages on one session share: the fold of its events, and a feed for each agent that is looked at."""

    def __init__(self, client: Client, home: str, *, is_valid: Callable[[str], bool]) -> None:
        self.transcripts = TranscriptModels()
        self.facts = SessionFacts()
        self.folders = ShownFolders(home=home)
        self.state: dict[str, Any] = {}
        self.last_seq = -1
        self.shot: Snapshot | None = None
        self._client = client
        self._is_valid = is_valid
        self._feeds: dict[str, ViewFeed] = {}
        self._past = -1
        self._answered: dict[str, str] | None = None
        self._is_stale = asyncio.Event()
        self._is_ready = asyncio.Event()
        self._follower = SessionFollower(self._handle_event, self._handle_end, self._fail)
        self._task = asyncio.create_task(self._keep_state())
        self._end_reason = ""

    @property
    def is_watched(self) -> bool:
        return any(feed.watchers for feed in self._feeds.values())

    @property
    def is_over(self) -> bool:
        return bool(self._end_reason)

    async def open_feed(self, agent: str) -> "ViewFeed":
        """Return the feed of an agent once the past is known. Raise UsageError if there is no such agent."""
        await self._wait_until_ready(agent)
        feed = self._feeds.get(agent)
        if feed is None or feed.is_over:
            feed = self._feeds[agent] = ViewFeed(self, agent, is_valid=self._is_valid)
        return feed

    async def _wait_until_ready(self, agent: str) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_ready.wait(), _READY_S)
        if self.is_over or not self._is_ready.is_set():
            raise AgentShutdown
        if agent not in self.transcripts:
            raise UsageError(f"There is no agent {agent!r} in this session.", "Use one of the list of agents.")

    async def list_blocks(self, agent: str, end: int, limit: int) -> dict[str, Any]:
        """Return the blocks before an index."""
        await self._wait_until_ready(agent)
        blocks = self.transcripts[agent].blocks
        end = min(max(end, 0), len(blocks))
        first = max(end - min(max(limit, 1), _MAX_BLOCKS), 0)
        return {"first": first, "blocks": [encode_block(block, self.folders) for block in blocks[first:end]]}

    async def find_image(self, agent: str, key: str, index: int) -> Image:
        """Return an image of a block. Raise UsageError if there is none."""
        await self._wait_until_ready(agent)
        for block in self.transcripts[agent].blocks:
            if block.key == key and isinstance(block, CallBlock | PromptBlock) and 0 <= index < len(block.images):
                return block.images[index]
        raise UsageError("There is no such image.", "Load the page again.")

    # --- the fold ---

    def _handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        self.transcripts.apply(envelope)
        self.facts.apply(envelope, live)
        self.last_seq = envelope.seq
        if live and isinstance(event, PermissionAnswered | QuestionsAnswered | PlanAnswered):
            self._answered = {"id": event.ask_id, "text": describe_answer_elsewhere(event)}
        if not live and envelope.seq >= self._past:
            self._is_stale.set()
        if live:
            if event.durable:
                self._is_stale.set()
            for feed in self._feeds.values():
                feed.notice_change()

    def _handle_end(self, client: Client, reason: str, last: int) -> None:
        self._end_reason = reason or SESSION_ENDED
        self._is_ready.set()
        for feed in self._feeds.values():
            feed.end(self._end_reason)

    def _fail(self, error: BaseException) -> None:
        self._handle_end(self._client, "The server failed to follow the session.", -1)
        raise error

    async def _keep_state(self) -> None:
        """Follow the session, and look at its state after each change, not more often than every `_REFRESH_S`."""
        try:
            info, shot = await self._client.get_info(), await self._client.snapshot()
            self.facts = SessionFacts(info)
            self.folders = ShownFolders(info.cwd, self.folders.home)
            self._past = shot.seq
            self._follower.start(self._client, shot.seq, is_working=shot.is_working)
            if shot.seq < 0:  # a new session has no event yet
                self._is_stale.set()
            while not self.is_over:
                await self._is_stale.wait()
                self._is_stale.clear()
                shot, info = await self._client.snapshot(), await self._client.get_info()
                self.state = self._make_state(shot, info, await self._client.list_processes())
                self.shot = shot
                if self.last_seq >= self._past:
                    self._is_ready.set()
                for feed in self._feeds.values():
                    feed.notice_change()
                await asyncio.sleep(_REFRESH_S)
        except OdinError as error:
            self._handle_end(self._client, error.describe(), -1)
        except Exception as error:
            self._fail(error)

    def _make_state(self, shot: Snapshot, info: SessionInfo, processes: tuple[ProcessRecord, ...]) -> dict[str, Any]:
        self.facts.info = info
        files = [
            {
                "path": self.folders.shorten(file.path),
                "added": file.added,
                "removed": file.removed,
                "is_deleted": file.is_deleted,
                "is_counted": file.is_counted,
            }
            for file in self.facts.edited_files.files.values()
        ]
        state = {
            **{name: getattr(shot, name) for name in _FROM_SNAPSHOT},
            **{name: getattr(info, name) for name in _FROM_INFO},
            "is_working": shot.is_working,
            "processes": [
                msgspec.to_builtins(one)
                | _encode_mark(*_PROCESS_MARKS.get(one.status, ("■", "dim")))
                | {"text": describe_process(one)}
                for one in processes
            ],
            "files": files,
        }
        return clean(msgspec.to_builtins(state)) | {
            "interactions": [encode_request(one, info.cwd) for one in shot.interactions]
        }

    def make_state_of(self, agent: str) -> dict[str, Any]:
        """Return the state as a page on this agent shows it. What follows from transient events is that of now."""
        now, facts, shot = time.time(), self.facts, self.shot
        assert shot is not None
        activity, todos, context = facts.agents.get_activity(agent), facts.todos.get(agent), facts.get_context(agent)
        parts, spent = list_parts(facts, "edit_mode", agent), facts.get_usage(agent)
        turn = shot.messages[-1].id if shot.executing and shot.messages and not agent else ""
        used, limit = (context.used, context.limit) if agent and context is not None else (0, 0)
        now_shown = {
            "agent": agent,
            "executing": activity.is_in_turn or bool(turn),
            "turn": turn,
            "activity": activity.describe(now),
            "todos": todos.todos if todos is not None else (),
            "model": facts.get_model(agent) if agent else facts.chosen_model,
            "context_tokens": used if agent else shot.context_tokens,
            "context_limit": limit if agent else shot.context_limit,
            "status": [(part.text, part.tone) for part in parts if part.tone != "strong" and part.rank < 10],
            "cost": f"{format_cost(spent)} · {format_count(spent.usage.total)} tokens" if spent.calls else "",
            "budget": _describe_budget(facts),
            "answered": self._answered,
            "agents": [self._describe_agent(one, now) for one in facts.agents.all],
        }
        queue = [
            msgspec.to_builtins(prompt) | {"shown": clean(prompt.body)}  # `text` stays exact, to be edited
            for prompt in shot.queue
            if prompt.agent == agent
        ]
        return self.state | clean(msgspec.to_builtins(now_shown)) | {"queue": queue}

    def _describe_agent(self, id: str, now: float) -> dict[str, Any]:
        assert self.shot is not None
        status = self.facts.agents.all[id]
        record = next((one for one in self.shot.sub_agents if one.id == id), None)
        return {
            "id": id,
            **_encode_mark(
                *(("?", "warn") if status.is_asking else ("◐", "accent") if status.is_working else ("•", "dim"))
            ),
            "description": status.task,
            "type": status.type,
            "state": status.state,
            "is_working": status.is_working,
            "is_asking": status.is_asking,
            "text": status.activity.describe(now).text,
            "outcome": status.outcome,
            "model": status.model,
            "color": status.color,
            "task_id": status.task_id,
            "unread": record.unread if record is not None else 0,
            "context_tokens": record.context_tokens if record is not None else 0,
            "context_limit": record.context_limit if record is not None else 0,
        }

    def stop(self) -> None:
        """End the streams of all pages."""
        self._task.cancel()
        self._follower.stop()
        self._handle_end(self._client, self._end_reason, -1)


class ViewFeed(FrameFeed):
    """The transcript of one agent, and the state beside it, for all pages that show it."""

    def __init__(self, view: SessionView, agent: str, *, is_valid: Callable[[str], bool]) -> None:
        super().__init__(view.last_seq, is_valid=is_valid)
        self._view = view
        self._agent = agent
        self._model: TranscriptModel = view.transcripts[agent]
        self._model.take_changes()
        self._keys = [block.key for block in self._model.blocks]
        self._sent = {block.key: encode_block(block, view.folders) for block in self._model.blocks[-FIRST_BLOCKS:]}
        self._state = view.make_state_of(agent)

    def notice_change(self) -> None:
        if self.watchers:  # else the next one catches up
            self._wake()

    def end(self, reason: str) -> None:
        if not self.is_over:
            self._end(reason)

    async def begin(self, watcher: Watcher) -> AsyncGenerator[bytes]:
        """Yield the newest blocks and the state. The changes from now on follow."""
        self._cut()
        watcher.position = self._first + len(self._frames)
        first = max(len(self._keys) - FIRST_BLOCKS, 0)
        blocks = [encode_block(block, self._view.folders) for block in self._model.blocks[first:]]
        yield _encode("start", {"first": first, "blocks": blocks, "state": self._state})
        self._go_live(watcher)

    def _beat(self) -> None:
        super()._beat()
        if self._view.facts.agents.busy and self.watchers:
            self._wake()  # times go on

    def _take(self) -> bytes:
        """Return what changed since the last frame, and notices."""
        change: dict[str, Any] = {}
        touched, is_reshaped = self._model.take_changes()
        blocks = {block.key: block for block in touched}
        if is_reshaped or len(self._model.blocks) != len(self._keys):
            keys = [block.key for block in self._model.blocks]
            start, old_end, new_end = find_splice(self._keys, keys)
            for key in self._keys[start:old_end]:
                self._sent.pop(key, None)
            forms = [encode_block(block, self._view.folders) for block in self._model.blocks[start:new_end]]
            for form in forms:
                self._sent[form["key"]] = form
                blocks.pop(form["key"], None)
            if forms or old_end > start:
                change["splice"] = [(start, old_end - start, forms)]
            self._keys = keys
        changes: list[Any] = []
        present = set(self._keys) if len(blocks) > 1 else self._keys
        for key, block in blocks.items():
            if key not in present:
                continue
            form = encode_block(block, self._view.folders)
            known_form = self._sent.get(key)
            self._sent[key] = form
            difference = {"key": key, "set": form} if known_form is None else compare_blocks(known_form, form)
            changes += [difference] if difference is not None else []
        change |= {"blocks": changes} if changes else {}
        state = self._view.make_state_of(self._agent)
        if parts := {name: value for name, value in state.items() if self._state.get(name) != value}:
            self._state = state
            change["state"] = parts
        if len(self._sent) > 2 * FIRST_BLOCKS:
            recent = set(self._keys[-FIRST_BLOCKS:])
            self._sent = {key: form for key, form in self._sent.items() if key in recent}
        self.last_seq = self._view.last_seq
        return (_encode("change", change) if change else b"") + super()._take()


def _encode_mark(mark: str, tone: str) -> dict[str, str]:
    return {"mark": mark, "tone": tone}


def _describe_budget(facts: SessionFacts) -> str:
    return f"{format_usd(facts.budget_left)} of {format_usd(facts.budget_usd)} left" if facts.budget_usd else ""


def _encode(name: str, fields: dict[str, Any]) -> bytes:
    try:
        return encode_notice(name, **fields)
    except UnicodeEncodeError:
        return encode_notice(name, **to_valid_unicode_all(fields))
