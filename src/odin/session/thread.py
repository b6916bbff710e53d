"""The conversation of one agent, as the messages its model is sent: valid for every provider at any moment.

What each kind of event says to the thread of the agent it belongs to.

The sub-agents that work in a session, each with its thread, and which numbers are taken for new ones.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from odin.core.client import SubAgentRecord
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    Compacted,
    ContextSummarized,
    Envelope,
    MessageRemoved,
    NoteAdded,
    PromptInjected,
    Replied,
    ReplyDiscarded,
    ResultsPruned,
    SessionOpened,
    SpawnStarted,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.session.history import ContextSummary, apply_summaries, compact_messages, make_context_summary, prune_results

CONTINUE_PROMPT = "Go on from where you stopped."
"""Stands where a conversation is continued that ends with the model's own words: no API answers those everywhere."""

INTERRUPTED = "Interrupted: this call did not finish, and what it changed before that is not known."
NOT_STARTED = "Not run: the turn was interrupted before this call began."
LOST_MESSAGE = "(A message was lost here.)"
"""Stands for a prompt that the log has lost: not every API takes a reply at the beginning or right after another."""


class ThreadMark(Struct, frozen=True, gc=False):
    """A moment of a conversation: how many messages there were, and in which `era`.

    A mark holds no messages, so that those a summary has replaced can be forgotten.
    """

    count: int
    generation: int


class Thread:
    """The conversation of one agent with its model.

    `summary` stands for what came before the messages, `prompt` is what was asked last. `era` counts how often messages
    that had been sent were rewritten; `lineage` changes when their places did, so that what was planned for the old
    ones no longer fits.
    """

    def __init__(self) -> None:
        self.summary = ""
        self.archive = ""
        self.prompt = ""
        self.generation = 0
        self.lineage = 0
        self._messages: list[Message] = []
        self._calls_of_reply: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        self._started_calls: set[str] = set()
        self._sealed = False
        self._covers: list[ContextSummary] = []

    def build_history(self) -> tuple[Message, ...]:
        closed = apply_summaries(self._messages, self._covers)
        return (*closed, self._build_tool_message()) if self._calls_of_reply else closed

    def build_finished_history(self) -> tuple[Message, ...]:
        """The history without the calls that still run."""
        return apply_summaries(self._messages, self._covers)

    def add_summary(self, calls: Iterable[str], notes: Iterable[str]) -> None:
        """The newest reply asked for a summary, which takes the place of these results and notes."""
        cover = make_context_summary(self._messages, calls, notes)
        if cover is not None:
            self._covers.append(cover)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the newest reply that have no result yet."""
        return tuple(call for call in self._calls_of_reply if call.id not in self._results)

    def mark(self) -> ThreadMark:
        """This moment, to go back to."""
        self._close()
        return ThreadMark(len(self._messages), self.generation)

    def rewind_to(self, mark: ThreadMark) -> bool:
        """Be as it was. False when what stood there then has been rewritten: only the log knows it."""
        if mark.generation != self.generation or mark.count > len(self._messages):
            return False
        self._messages = self._messages[: mark.count]
        self._calls_of_reply, self._results, self._started_calls, self._sealed = (), {}, set(), False
        self.lineage += 1
        self.prompt = next((item.text for item in reversed(self._messages) if isinstance(item, PromptMessage)), "")
        return True

    def copy(self) -> "Thread":
        """The same conversation, for a way of its own from here."""
        other = Thread()
        other.__dict__.update(self.__dict__)
        other._messages = list(self._messages)
        other._results, other._started_calls = dict(self._results), set(self._started_calls)
        other._covers = list(self._covers)
        return other

    def remove_last(self) -> bool:
        """Take the newest message out; with results go the calls they answer. False when there is none."""
        self._close()
        if not self._messages:
            return False
        gone = self._messages.pop()
        if isinstance(gone, ToolMessage) and self._messages:
            self._messages.pop()
        self._sealed = False
        self.generation += 1
        self.lineage += 1
        return True

    def prune(self, event: ResultsPruned) -> None:
        """These results become one line each."""
        self._close()
        self._rewrite(prune_results(apply_summaries(self._messages, self._covers), event))

    def compact(self, event: Compacted) -> None:
        """A summary takes the place of the older messages, which are forgotten here: the log has them."""
        self._close()
        self._rewrite(compact_messages(apply_summaries(self._messages, self._covers), event))
        self.summary, self.archive = event.text, event.archive
        self.lineage += 1

    def _rewrite(self, messages: list[Message]) -> None:
        self._messages = messages
        self._covers = []
        self.generation += 1

    def start(self, event: TurnStarted) -> None:
        self._close()
        if event.continues:
            self._continue(event.notes)
            return
        self._messages.append(PromptMessage(event.text, event.notes, event.images))
        self.prompt = event.text
        self._sealed = False

    def _continue(self, notes: Iterable[str]) -> None:
        """Nobody says anything. What was sent stays as it is, so what the model must know is a message of its own."""
        if not self._messages or isinstance(self._messages[-1], ReplyMessage):
            self._messages.append(PromptMessage(CONTINUE_PROMPT, tuple(notes)))
            self._sealed = False
            return
        self._sealed = True
        for note in notes:
            self.add_note(note)

    def inject(self, event: PromptInjected) -> None:
        """Somebody says something while a turn runs, or when it was interrupted."""
        self._close()
        self._messages.append(PromptMessage(event.text, event.notes, event.images))
        self.prompt = event.text
        self._sealed = False

    def add_reply(self, message: ReplyMessage) -> None:
        self._close()
        if not message.text.strip() and not message.calls:
            return
        if not self._messages or isinstance(self._messages[-1], ReplyMessage):
            self._messages.append(PromptMessage(LOST_MESSAGE))
        self._messages.append(message)
        self._calls_of_reply = message.calls
        self._sealed = False

    def mark_call_started(self, call_id: str) -> None:
        """A call starts to run. Whether one that was interrupted may have changed something depends on that."""
        self._started_calls.add(call_id)

    def add_result(self, event: ToolEnded) -> None:
        if any(call.id == event.call_id for call in self._calls_of_reply) and event.call_id not in self._results:
            self._results[event.call_id] = ToolResult(
                event.call_id, event.text, event.status != "success", event.images
            )
            if len(self._results) == len(self._calls_of_reply):
                self._close()

    def add_note(self, text: str) -> None:
        """Tell the model something beside the newest message, or after it when that message has been sent already."""
        self._close()
        last = self._messages[-1] if self._messages else None
        if self._sealed or last is None or isinstance(last, ReplyMessage):
            self._messages.append(PromptMessage(text))
        elif isinstance(last, PromptMessage):
            self._messages[-1] = PromptMessage(last.text, (*last.notes, text), last.images)
        else:
            self._messages[-1] = ToolMessage(last.results, (*last.notes, text))
        self._sealed = False

    def seal(self) -> None:
        self._sealed = True

    def _close(self) -> None:
        if self._calls_of_reply:
            self._messages.append(self._build_tool_message())
            self._calls_of_reply = ()
            self._results = {}
            self._started_calls = set()

    def _build_tool_message(self) -> ToolMessage:
        return ToolMessage(
            tuple(
                self._results.get(call.id) or ToolResult(call.id, self.interruption_text_of(call.id), True)
                for call in self._calls_of_reply
            )
        )

    def interruption_text_of(self, call_id: str) -> str:
        """What the model reads of an open call whose turn is over."""
        return INTERRUPTED if call_id in self._started_calls else NOT_STARTED


def is_thread_event(event: AnyEvent) -> bool:
    """Whether a thread hears of it."""
    return type(event) in _THREAD_HANDLERS


def apply_thread_event(thread: Thread, event: AnyEvent) -> None:
    step = _THREAD_HANDLERS.get(type(event))
    if step is not None:
        step(thread, event)


def _on_turn_ended(thread: Thread, event: TurnEnded) -> None:
    thread._close()


def _on_replied(thread: Thread, event: Replied) -> None:
    thread.add_reply(event.message)


def _on_tool_started(thread: Thread, event: ToolStarted) -> None:
    thread.mark_call_started(event.call_id)


def _on_noted(thread: Thread, event: NoteAdded) -> None:
    thread.add_note(event.text)


def _on_reply_discarded(thread: Thread, event: ReplyDiscarded) -> None:
    thread.seal()


def _on_prompt_joined(thread: Thread, event: PromptInjected) -> None:
    thread.inject(event)


def _on_message_removed(thread: Thread, event: MessageRemoved) -> None:
    thread.remove_last()


def _on_context_summarized(thread: Thread, event: ContextSummarized) -> None:
    """The pieces of context are the main agent's; the thread of another has no notes of them."""
    thread.add_summary(event.calls, ())


_THREAD_HANDLERS: dict[type[AnyEvent], Callable[[Thread, Any], None]] = {
    TurnStarted: Thread.start,
    TurnEnded: _on_turn_ended,
    Replied: _on_replied,
    ToolStarted: _on_tool_started,
    ToolEnded: Thread.add_result,
    NoteAdded: _on_noted,
    ReplyDiscarded: _on_reply_discarded,
    PromptInjected: _on_prompt_joined,
    MessageRemoved: _on_message_removed,
    ContextSummarized: _on_context_summarized,
    ResultsPruned: Thread.prune,
    Compacted: Thread.compact,
}


class SubAgentThreads:
    """`count` is the highest number of an agent so far, `spawn_count` that of a background process."""

    def __init__(self) -> None:
        self.agent_count = 0
        self.spawn_count = 0
        self.threads: dict[str, Thread] = {}
        self._records: dict[str, SubAgentRecord] = {}

    @property
    def records(self) -> tuple[SubAgentRecord, ...]:
        return tuple(self._records.values())

    def thread_of(self, agent: str) -> Thread:
        found = self.threads.get(agent)
        if found is None:
            found = self.threads[agent] = Thread()
        return found

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if envelope.agent:
            self.agent_count = max(self.agent_count, _number_of(envelope.agent))
            if is_thread_event(event):
                apply_thread_event(self.thread_of(envelope.agent), event)
        step = _SUB_AGENT_HANDLERS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    def _on_session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self._records.clear()

    def _on_agent_started(self, event: AgentStarted, envelope: Envelope) -> None:
        self.agent_count = max(self.agent_count + 1, _number_of(event.id))
        self._records[event.id] = SubAgentRecord(event.id, event.task, event.mode)

    def _on_agent_ended(self, event: AgentEnded, envelope: Envelope) -> None:
        self._records.pop(event.id, None)
        self.threads.pop(event.id, None)

    def _on_todos_changed(self, event: TodosChanged, envelope: Envelope) -> None:
        known = self._records.get(envelope.agent) if envelope.agent else None
        if known is not None:
            self._records[envelope.agent] = SubAgentRecord(known.id, known.task, known.mode, event.todos)

    def _on_spawn_started(self, event: SpawnStarted, envelope: Envelope) -> None:
        self.spawn_count = max(self.spawn_count, _number_of(event.id))


_SUB_AGENT_HANDLERS: dict[type[AnyEvent], Callable[[SubAgentThreads, Any, Envelope], None]] = {
    SessionOpened: SubAgentThreads._on_session_opened,
    AgentStarted: SubAgentThreads._on_agent_started,
    AgentEnded: SubAgentThreads._on_agent_ended,
    TodosChanged: SubAgentThreads._on_todos_changed,
    SpawnStarted: SubAgentThreads._on_spawn_started,
}


def _number_of(name: str) -> int:
    """The number at the end of an id, so that new ids go past it also when the log has lost a line."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
