"""What an editor is told of a session: the blocks of its transcript as messages and calls, and the facts beside them.

The events are folded as in the app. What is sent follows from the state and not from single events, so what a slow
editor has missed comes with the next update. Version 1 of the protocol cannot take text back: a message whose text has
become another one is sent again as a new message.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import asdict

from odin.acp.calls import WorkBlock, describe_work
from odin.acp.prompts import show_images
from odin.acp.protocol import (
    AnswerChunk,
    CallFields,
    ChangedCall,
    Chunk,
    Cost,
    InfoUpdate,
    NewCall,
    Notice,
    PlanEntry,
    PlanUpdate,
    TextContent,
    ThoughtChunk,
    Update,
    UsageUpdate,
    UserChunk,
)
from odin.core.call_events import UsageRecorded
from odin.core.client import SessionInfo
from odin.core.event import Envelope, TurnEnded
from odin.ui.session_facts import SessionFacts
from odin.ui.transcript.blocks import (
    AgentBlock,
    AnswerBlock,
    CallBlock,
    CommandBlock,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    StreamedBlock,
    SummaryBlock,
    TranscriptBlock,
)
from odin.ui.transcript.model import TranscriptModel, TranscriptModels
from odin.ui.transcript.words import ShownFolders, describe_end

Level = Literal["info", "warn", "error"]
_FINAL = ("completed", "failed")


class SessionUpdates:
    """Folds the events of a session and yields what has changed since the last time.

    `own_prompts` are those that the editor has sent itself: it knows their texts, and is told their errors.
    """

    def __init__(self, info: SessionInfo, home: str, *, has_notices: bool) -> None:
        self.own_prompts: set[str] = set()
        self.folders = ShownFolders(info.cwd, home)
        self._has_notices = has_notices
        self._transcripts = TranscriptModels()
        self._facts = SessionFacts(info)
        self._texts: dict[str, tuple[str, int]] = {}
        """By the key of a message: its text as sent, and how often it was started again."""
        self._told: set[str] = set()
        self._calls: dict[str, CallFields | None] = {}
        """Calls as sent; None for those that have ended."""
        self._open: dict[str, tuple[str, TranscriptBlock]] = {}
        """Calls that have not ended, with their agents."""
        self._prompt = ""
        self._usage: UsageUpdate | None = None
        self._sent: dict[str, Update] = {}
        self._ended_at = 0.0
        self._notices: list[Update] = []

    def apply(self, envelope: Envelope, *, live: bool) -> None:
        event = envelope.event
        self._transcripts.apply(envelope)
        self._facts.apply(envelope, live)
        if isinstance(event, TurnEnded) and not envelope.agent:
            self._ended_at = envelope.ts
        elif isinstance(event, UsageRecorded) and not envelope.agent and event.purpose == "main":
            cost = self._facts.get_usage("").known_cost_usd
            if event.context_window:
                self._usage = UsageUpdate(
                    used=event.usage.total,
                    size=event.context_window,
                    cost=UNSET if cost is None else Cost(amount=round(cost, 6), currency="USD"),
                )

    def add_notice(self, text: str, level: Level = "info") -> None:
        """Tell something that is not part of the conversation."""
        self._notices.append(self._make_notice(f"notice:{len(self._told)}:{len(self._notices)}", text, level))

    def restart(self) -> None:
        """Forget what was sent, so that everything is sent again."""
        for sent in (self._texts, self._told, self._calls, self._open, self._sent):
            sent.clear()
        for model in self._transcripts.values():
            for block in model.blocks:
                model.touch(block)

    def take(self) -> Iterator[Update]:
        for agent, model in list(self._transcripts.items()):
            touched, is_reshaped = model.take_changes()
            for block in _sort(model, touched):
                yield from self._translate(block, agent, model)
            if is_reshaped:
                yield from self._end_dropped_calls(agent, model)
        notices, self._notices = self._notices, []
        yield from notices
        yield from self._list_facts()

    # --- the transcript ---

    def _translate(self, block: TranscriptBlock, agent: str, model: TranscriptModel) -> Iterator[Update]:
        if isinstance(block, CallBlock):
            # Its arguments still stream in, or nothing of it has run. An editor shows a call only with its input.
            if block.state != "writing" or (block.args and not block.chars):
                yield from self._tell_call(block, agent, block.key)
            return
        if agent:
            return  # of a sub-agent only the calls are shown: its text is no answer to the user
        match block:
            case AnswerBlock() | ReasoningBlock():
                yield from self._tell_text(block)
            case AgentBlock():
                replaced = model.notices.replaced_calls.items()
                call = next((one for one, shown in replaced if shown is block and isinstance(one, CallBlock)), None)
                if call is None:
                    yield from self._tell_call(block, "", f"agent-{block.key}")
                else:
                    yield from self._tell_call(block, "", call.key, call.args)
            case CommandBlock() | ProcessBlock():
                yield from self._tell_call(block, "", block.key)
            case PromptBlock():
                self._prompt = block.key
                is_hidden = block.is_mail or block.is_continuation or block.key in self.own_prompts
                if not is_hidden and self._is_news(block.key):
                    if block.text.strip():
                        yield UserChunk(content=TextContent(text=block.text), message_id=block.key)
                    for image in show_images(block.images):
                        yield UserChunk(content=image, message_id=block.key)
            case NoticeBlock():
                if self._is_news(block.key):
                    yield self._make_notice(block.key, block.text, block.level)
            case SummaryBlock():
                if self._is_news(block.key):
                    sizes = f"{block.tokens_before:,} → {block.tokens_after:,} tokens"
                    yield self._make_notice(block.key, f"The conversation was summarized ({sizes}).", "info")
            case EndBlock(reason=reason):
                is_told = reason == "error" and self._prompt in self.own_prompts
                if self._is_news(block.key) and not is_told and reason not in ("end_turn", "interrupted", "aborted"):
                    text = " ".join(filter(None, (block.error, block.hint))) or f"Odin {describe_end(block)}."
                    yield self._make_notice(block.key, text, "error" if reason == "error" else "warn")
            case _:
                pass

    def _is_news(self, key: str) -> bool:
        is_news = key not in self._told
        self._told.add(key)
        return is_news

    def _make_notice(self, key: str, text: str, level: Level) -> Update:
        if self._has_notices:
            return Notice(severity="warning" if level == "warn" else level, title=text)
        return AnswerChunk(content=TextContent(text=f"\n\n{text}\n\n"), message_id=key)

    def _tell_text(self, block: StreamedBlock) -> Iterator[Chunk]:
        sent, count = self._texts.get(block.key, ("", 0))
        text = block.text
        if text == sent:
            return
        if not text.startswith(sent):
            sent, count = "", count + 1
        self._texts[block.key] = text, count
        key = f"{block.key}.{count}" if count else block.key
        kind = ThoughtChunk if isinstance(block, ReasoningBlock) else AnswerChunk
        yield kind(content=TextContent(text=text[len(sent) :]), message_id=key)

    def _tell_call(self, block: WorkBlock, agent: str, id: str, args: dict[str, Any] | None = None) -> Iterator[Update]:
        now = describe_work(block, agent, id, self.folders, args)
        is_known, before = id in self._calls, self._calls.get(id)
        is_over = now.status in _FINAL
        self._calls[id] = None if is_over else now
        if is_over:
            self._open.pop(id, None)
        else:
            self._open[id] = agent, block
        if not is_known:
            yield NewCall(**asdict(now))
            return
        fields: dict[str, Any] = {
            name: value
            for name, value in asdict(now).items()
            if name != "tool_call_id" and getattr(before, name, UNSET) != value
        }
        if fields:
            yield ChangedCall(tool_call_id=id, **fields)

    def _end_dropped_calls(self, agent: str, model: TranscriptModel) -> Iterator[Update]:
        """Yield the end of calls that are not part of the transcript any more, such as those of a dropped reply."""
        shown: set[TranscriptBlock] | None = None
        for name, (owner, block) in list(self._open.items()):
            if owner == agent:
                shown = set(model.blocks) if shown is None else shown
                if block not in shown:
                    del self._open[name]
                    self._calls[name] = None
                    yield ChangedCall(tool_call_id=name, status="failed")

    # --- the facts ---

    def _list_facts(self) -> Iterator[Update]:
        todos = self._facts.todos.get("")
        entries = tuple(
            PlanEntry(content=todo.content, status="completed" if todo.status == "cancelled" else todo.status)
            for todo in (todos.todos if todos is not None else ())
        )
        if entries or "plan" in self._sent:
            yield from self._tell_fact("plan", PlanUpdate(entries=entries))
        if self._facts.title or self._ended_at:
            ended = (
                datetime.fromtimestamp(self._ended_at, UTC).isoformat(timespec="seconds") if self._ended_at else UNSET
            )
            yield from self._tell_fact("info", InfoUpdate(title=self._facts.title or UNSET, updated_at=ended))
        if self._usage is not None:
            yield from self._tell_fact("usage", self._usage)

    def _tell_fact(self, name: str, update: Update) -> Iterator[Update]:
        if self._sent.get(name) != update:
            self._sent[name] = update
            yield update


def _sort(model: TranscriptModel, touched: set[TranscriptBlock]) -> list[TranscriptBlock]:
    """Return those blocks that are shown, in their order. They are searched from the end, where news are."""
    left, found = set(touched), list[TranscriptBlock]()
    for block in reversed(model.blocks):
        if not left:
            break
        if block in left:
            left.discard(block)
            found.append(block)
    return found[::-1]
