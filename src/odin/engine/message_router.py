"""Mail between agents. A busy agent reads its mail with its next request; an idle one is woken for it.

Mail that arrives within a short time is read together. Progress never wakes an agent, and only the newest of each
sender is kept.
"""

import asyncio
from collections.abc import Callable, Container

from odin.core.event_values import Mode, get_strictest_mode
from odin.core.team import MailKind, MailPriority, MailSent
from odin.engine.agent import ReceivedMessages
from odin.engine.recorder import Recorder

MAX_INLINE_CHARS = 320
"""A longer text is saved as an artifact, and the mail has its beginning."""

BATCH_S = 0.2
"""How long an idle agent waits for more mail before it reads the first one. Urgent mail does not wait."""

_PRIORITIES: tuple[MailPriority, ...] = ("interrupt", "urgent", "notify")


class MessageRouter:
    """Sends and delivers mail. `save(name, text)` writes an artifact and returns its name; `wake(agent)` wakes one."""

    def __init__(
        self, recorder: Recorder, save: Callable[[str, str], str], wake: Callable[[str], None], batch_s: float = BATCH_S
    ) -> None:
        self._recorder = recorder
        self._save = save
        self._wake = wake
        self._batch_s = batch_s
        self._taken: set[str] = set()
        self._quiet: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def send(self, mail: MailSent) -> MailSent:
        """Record the mail, then wake its recipient."""
        self._recorder.emit(mail, mail.sender)
        self.announce(mail)
        return mail

    def write(
        self,
        sender: str,
        recipient: str,
        kind: MailKind,
        text: str,
        *,
        task_id: str = "",
        priority: MailPriority = "notify",
        in_reply_to: str = "",
        needs_reply: bool = False,
        mode: Mode | None = None,
    ) -> MailSent:
        """Return new mail that is not sent yet. A long text is saved as an artifact."""
        name = f"mail-{self._recorder.state.board.message_count + 1}"
        artifact = self._save(f"mail/{name}.md", text) if len(text) > MAX_INLINE_CHARS else ""
        shown = f"{text[:MAX_INLINE_CHARS]}…" if artifact else text
        return MailSent(
            name, sender, recipient, kind, shown, priority, task_id, artifact, in_reply_to, needs_reply, mode
        )

    def announce(self, mail: MailSent, *, wakes: bool = True) -> None:
        """Wake the recipient of mail that was sent, unless it is only progress or waits for the next turn."""
        if not wakes:
            self._quiet.add(mail.id)
        if mail.kind == "progress" or not wakes:
            return
        delay = 0.0 if mail.priority != "notify" else self._batch_s
        loop = asyncio.get_running_loop()
        timer = self._timers.get(mail.recipient)
        if timer is not None:
            if not timer.cancelled() and timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[mail.recipient] = loop.call_later(delay, self._wake_now, mail.recipient)

    def _wake_now(self, agent: str) -> None:
        del self._timers[agent]
        self._wake(agent)

    def take(self, agent: str, tasks: Container[str] | None = None) -> ReceivedMessages:
        """With `tasks`, take only mail about those."""
        mail = [item for item in self._list_untaken(agent) if tasks is None or item.task_id in tasks]
        if not mail:
            return ReceivedMessages()
        self._taken.update(item.id for item in mail)
        modes: list[Mode] = [item.mode for item in mail if item.mode is not None]
        mode = get_strictest_mode(*modes) if modes else None
        return ReceivedMessages("\n\n".join(_format_one(item) for item in mail), tuple(item.id for item in mail), mode)

    def should_wake(self, agent: str) -> bool:
        return any(item.kind != "progress" and item.id not in self._quiet for item in self._list_untaken(agent))

    @property
    def is_waking(self) -> bool:
        """True while an agent is about to be woken."""
        return bool(self._timers)

    def _list_untaken(self, agent: str) -> list[MailSent]:
        board = self._recorder.state.board
        self._taken &= board.messages.keys()
        mail = [item for item in board.list_messages(agent) if item.id not in self._taken]
        return sorted(mail, key=lambda item: _PRIORITIES.index(item.priority))

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _format_one(mail: MailSent) -> str:
    sender = mail.sender or "the main agent"
    if mail.kind == "message":
        return f"Message from {sender} (task {mail.task_id}):\n{mail.text}{_name_artifact(mail)}"
    task = f", task {mail.task_id}" if mail.task_id else ""
    head = f"[{mail.id}] {mail.kind.replace('_', ' ')} from {sender}{task}"
    urgent = "" if mail.priority == "notify" else f" ({mail.priority})"
    reply = f"\nIt waits for your answer: Notify {mail.task_id}." if mail.needs_reply and mail.task_id else ""
    return f"{head}{urgent}:\n{mail.text}{_name_artifact(mail)}{reply}"


def _name_artifact(mail: MailSent) -> str:
    return f"\nThe whole text is the artifact {mail.artifact}." if mail.artifact else ""
