"""What a channel is: it brings the messages of one platform, and sends what the gateway answers.

Packages add channels with the entry-point group `odin.channels`. An entry point has the name of a type and refers to a
callable that takes a `ChannelSetup` and returns a `Channel`. Only those that the settings name are imported.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct, field

from odin.core.errors import ConfigError, OdinError
from odin.core.format import clip_line
from odin.core.gateway_settings import ChannelSettings, GatewaySettings
from odin.core.policy import hide_key

if TYPE_CHECKING:
    from odin.providers.http import HttpClient

GROUP = "odin.channels"

Admission = Literal["accepted", "duplicate", "ignored"]
"""What became of a message: stored, known already, or from somebody who may not write."""

SenderRight = Literal["", "sender", "owner"]
"""What a sender may do: nothing, write, or also bind chats, answer requests and run commands."""


class MessageOptions(Struct, frozen=True, omit_defaults=True):
    """How one message is answered: with what was said before or in a conversation of its own (`history`), which is
    summarized when it gets long or not, and whether the answer is sent. `default_response` is sent if it is empty."""

    history: bool = True
    summarize: bool = True
    send: bool = True
    default_response: str = ""


class Media(Struct, frozen=True, omit_defaults=True):
    """A file that came with a message, or that is sent. Its content is at `path`, in a copy that does not change."""

    path: str
    name: str = ""
    media_type: str = ""


class MessageOrigin(Struct, frozen=True, omit_defaults=True):
    """What wrote a message, if no person did. It has the `right` as long as the `maker`, a sender of the chat, may
    write; "" is the owner on this computer. `note` is for the model."""

    kind: Literal["schedule", "trigger", "heartbeat"]
    name: str
    right: SenderRight = "sender"
    maker: str = ""
    note: str = ""


class InboundMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it came. `id` is that of the platform and unique for the `account` that received it.

    `is_mention`: a group message that speaks to Odin. `edit_of` is the id of the message that this one replaces,
    `choice` the data of a button that was pressed instead of writing. `instructions` is what the settings say to do
    with it; no sender has a part in that. Channels set no `origin`.
    """

    channel: str
    id: str
    sender: str
    chat: str
    account: str = ""
    sender_name: str = ""
    is_group: bool = False
    is_mention: bool = False
    text: str = ""
    instructions: str = ""
    media: tuple[Media, ...] = ()
    reply_to: str = ""
    edit_of: str = ""
    choice: str = ""
    origin: MessageOrigin | None = None
    options: MessageOptions = MessageOptions()
    metadata: dict[str, str] = field(default_factory=dict[str, str])


class Button(Struct, frozen=True):
    """`data` comes back as the `choice` of a message. It has at most 64 characters."""

    label: str
    data: str


class OutboundPart(Struct, frozen=True, omit_defaults=True):
    """One message to send. `key` is the same if it is sent again, `answers` the id of the message it answers, as
    `DeliveryReceipt` names it. If there is a `file`, it is sent, and the text is its name."""

    key: str
    chat: str
    text: str
    buttons: tuple[Button, ...] = ()
    answers: str = ""
    file: Media | None = None


class Abilities(Struct, frozen=True, kw_only=True):
    """What a platform can do. `max_length` is in characters, and one beyond U+FFFF, such as most emoji, counts twice.

    `max_file_bytes` is the size of the largest file that `send` takes; instead of others it gets a line that names the
    file. `is_idempotent`: a part that is sent twice with its key appears once. `is_internal`: nobody is reached there
    later. Everybody who gets through to the channel has its `right`, besides those who are paired. `approves`: what is
    written there is typed by a person.
    """

    max_length: int = 4000
    markdown: bool = True
    buttons: bool = False
    edits: bool = False
    typing: bool = False
    max_file_bytes: int = 0
    is_idempotent: bool = False
    is_internal: bool = False
    right: SenderRight = ""
    approves: bool = True


class DeliveryReceipt(Struct, frozen=True):
    """`id` stands for the message in the gateway."""

    admission: Admission
    id: str = ""


class AnswerState(Struct, frozen=True):
    """How far a message is: `waiting`, `running`, `done` or `failed`, and the answer so far."""

    state: str
    text: str = ""
    files: tuple[Media, ...] = ()


class ChannelInbox(Protocol):
    """Where a channel delivers messages."""

    async def deliver(self, message: InboundMessage, *, wait: bool = True) -> DeliveryReceipt:
        """Store a message. When this returns, the platform may forget it.

        While the chat has too many messages that wait, this waits, or raises InboxFull.
        """
        ...

    async def is_wanted(self, message: InboundMessage) -> bool:
        """Return whether a message would be accepted. A channel asks before it fetches files for a stranger."""
        ...

    async def resend(self, channel: str, chat: str) -> None:
        """Send now what could not be sent to this chat."""
        ...

    async def find_answer(self, channel: str, account: str, id: str) -> AnswerState | None:
        """Return how far the message of this account is that has this `id` in its receipt."""
        ...


class Channel(Protocol):
    """A connection to a platform."""

    name: str
    abilities: Abilities

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages until it is cancelled. If it raises, it is called again after a pause, unless that was
        TokenRefused."""
        ...

    async def send(self, part: OutboundPart) -> str:
        """Send a part and return its id on the platform.

        Raise DeliveryFailed if it was not sent and may be tried again, DeliveryRefused if it never will be. Any other
        error means that it may have been sent.
        """
        ...

    async def edit(self, chat: str, message: str, text: str) -> None:
        """Replace the text of a message that was sent."""
        ...

    async def show_typing(self, chat: str) -> None:
        """Show for some seconds that an answer is being written."""
        ...


class ChannelSetup(Struct, frozen=True):
    """What a channel is made of. It keeps files in `folder`; `http` is the HTTP client of the process, and `report`
    writes a sentence to the log."""

    name: str
    settings: ChannelSettings
    gateway: GatewaySettings
    folder: Path
    env: Mapping[str, str]
    http: "HttpClient"
    report: Callable[[str], object]


class DeliveryFailed(OdinError):
    """A part was not sent. It is tried again, after `retry_after` seconds if the platform says so."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TokenRefused(DeliveryFailed):
    """The platform does not accept the token. The channel does nothing until the gateway starts with another one."""


class DeliveryRefused(OdinError):
    """The platform will never take this part: the chat is gone, or it has blocked Odin."""


class InboxFull(OdinError):
    """Too many messages of this chat wait."""


ChannelFactory = Callable[[ChannelSetup], Channel]


def make_channel(setup: ChannelSetup, built_in: Mapping[str, ChannelFactory]) -> Channel:
    """Return the channel that the settings describe. Raise ConfigError if it cannot be made."""
    kind = setup.settings.type or setup.name
    if kind in built_in:
        return built_in[kind](setup)
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=GROUP)}
    if kind not in points:
        known = ", ".join(sorted((*points, *built_in))) or "none are installed"
        hint = f"Known types: {known}. Set `type`, or install a package."
        raise ConfigError(f"gateway.channels.{setup.name}: there is no channel of the type {kind!r}.", hint)
    try:
        return points[kind].load()(setup)
    except OdinError:
        raise
    except Exception as error:  # foreign code: report whatever it raises
        why = hide_key(clip_line(f"{type(error).__name__}: {error}"), setup.settings.token).rstrip(".")
        text = f"The channel {setup.name!r} ({points[kind].value}) cannot be used: {why}."
        raise ConfigError(text, "Update the package, or remove the channel.") from error
