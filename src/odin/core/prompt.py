"""A prompt as data, the same on its way from a front end through the queue and the log to the model."""

from typing import Any, Literal, TypeVar

from msgspec import Struct

from odin.core.event_values import Delivery, Mode
from odin.core.message import Attachment

PromptSource = Literal["user", "mail", "hook", "schedule", "channel"]
"""Who wrote a prompt: `mail` is another agent or the report of an ended process, `schedule` is loop mode."""


class Provenance(Struct, frozen=True, omit_defaults=True):
    """The chat that a prompt comes from, who wrote it there, and whether that is the owner of this computer."""

    channel: str
    chat: str
    sender: str = ""
    name: str = ""
    is_owner: bool = False


class PromptData(Struct, frozen=True, omit_defaults=True):
    """The fields of a prompt. Ops, events and records that hold a prompt inherit them, so that a log line stays flat.

    `display_text` is what people see if the model reads something else: the custom command as typed, or a short form of
    a loop-mode prompt. `delivery` says how a queued prompt reaches the agent. `attachments` are read when the prompt
    starts. `temperature` and `max_tokens`, the maximum tokens of one reply, apply to all requests of its turn. With an
    `output_schema`, the answer is a JSON object that matches this JSON schema. One from a chat has a `provenance`.
    """

    id: str
    text: str
    mode: Mode
    delivery: Delivery | None = None
    display_text: str = ""
    attachments: tuple[Attachment, ...] = ()
    temperature: float | None = None
    max_tokens: int = 0
    source: PromptSource = "user"
    output_schema: dict[str, Any] | None = None
    provenance: Provenance | None = None

    @property
    def body(self) -> str:
        """What people see of the prompt."""
        return self.display_text or self.text

    @property
    def has_options(self) -> bool:
        return self.temperature is not None or self.max_tokens > 0 or self.output_schema is not None


P = TypeVar("P", bound=PromptData)


def copy_prompt(kind: type[P], prompt: PromptData, **more: Any) -> P:
    """Return a `kind` that holds this prompt, with `more` fields of its own or changed ones."""
    return kind(**{name: getattr(prompt, name) for name in PromptData.__struct_fields__} | more)
