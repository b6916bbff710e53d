"""What becomes of prompts and of the work in a session, folded from its events.

A prompt gets a turn of its own, at once or after it was queued, or joins the running turn (`merge`, `steer`). It may
also stay without an answer: removed from the queue, put into the conversation by an interrupt, or left in the queue.
"""

from typing import Literal

from msgspec import Struct

from odin.core.event import (
    Envelope,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    TurnEnded,
    TurnStarted,
    WorkEnded,
)

PromptState = Literal["submitted", "queued", "running", "ended", "paused", "dropped", "unanswered"]

_LOSSES: dict[PromptState, str] = {
    "paused": "The prompt waits in the queue: the turn before it was interrupted.",
    "dropped": "The prompt was removed from the queue.",
    "unanswered": "The turn before it was interrupted. The prompt is in the conversation, without an answer.",
}


class FollowedPrompt(Struct):
    """A prompt and what has become of it, `ended` with the end of its turn. `agent` is whom it is for.

    `turn` is the turn that answers it: its own or the one that it has joined.
    """

    id: str
    agent: str = ""
    state: PromptState = "submitted"
    turn: str = ""
    ended: TurnEnded | None = None

    @property
    def is_pending(self) -> bool:
        """True while an answer is to be expected."""
        return self.state in ("submitted", "queued", "running")

    @property
    def loss(self) -> str:
        """Why it has no answer, in words; "" if it has or may get one. A paused prompt may still be sent by a user."""
        return _LOSSES.get(self.state, "")

    def apply(self, envelope: Envelope) -> bool:
        """Apply a live event of any agent; True if it changed what has become of this prompt."""
        event = envelope.event
        match event:
            case PromptQueued(id=self.id):
                self.state = "queued"
            case PromptDropped(id=self.id):
                self.state = "dropped"
            case PromptInjected(id=self.id, turn=turn):
                self.state, self.turn = "running" if turn else "unanswered", turn
            case TurnStarted(id=self.id):
                self.state, self.turn = "running", self.id
            case TurnEnded() if self.state == "running" and (event.id, envelope.agent) == (self.turn, self.agent):
                self.state, self.ended = "ended", event
                return True
            case WorkEnded() if self.state == "queued":  # what is due is work
                self.state = "paused"
                return True
            case _:
                return False
        self.agent = envelope.agent
        return True


class PromptFollower:
    """The prompts that a client waits for, and what works at its position among the events.

    A client that joins takes a snapshot after it has subscribed and sets `is_working` and the `running` turn of the
    main agent from it. The events lead from there to the end of all work, which has an event of its own.
    """

    def __init__(self) -> None:
        self.is_working = False
        self.running = ""
        self.prompts: dict[str, FollowedPrompt] = {}

    @property
    def is_waiting(self) -> bool:
        """True while an answer is to be expected."""
        return any(prompt.is_pending for prompt in self.prompts.values())

    def follow(self, prompt_id: str, agent: str = "") -> FollowedPrompt:
        """Follow a prompt before it is submitted."""
        prompt = self.prompts[prompt_id] = FollowedPrompt(prompt_id, agent)
        return prompt

    def forget(self, prompt_id: str) -> None:
        self.prompts.pop(prompt_id, None)

    def apply(self, envelope: Envelope) -> list[FollowedPrompt]:
        """Apply a live event of any agent. Return the prompts of which it has changed what becomes of them."""
        event = envelope.event
        if isinstance(event, WorkEnded):
            self.is_working, self.running = False, ""
        elif isinstance(event, TurnStarted):
            self.is_working = True
        if isinstance(event, TurnStarted | TurnEnded) and not envelope.agent:
            self.running = event.id if isinstance(event, TurnStarted) else ""
        return [prompt for prompt in self.prompts.values() if prompt.apply(envelope)]
