"""The `gateway` section of the configuration."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct, field

_Text = Annotated[str, Meta(min_length=1)]


def _describe(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


class ChannelSettings(Struct, frozen=True, kw_only=True):
    """A connection to a chat platform."""

    type: Annotated[str, _describe("What kind of channel it is. Empty: the same as its name.")] = ""
    enabled: Annotated[bool, _describe("False: the channel is not used.")] = True
    token: Annotated[str, _describe("The secret of the platform, or $NAME to read it from a variable.")] = ""
    owners: Annotated[
        tuple[_Text, ...], _describe("Ids of senders who are you: they bind chats, answer requests, run commands.")
    ] = ()
    allow_from: Annotated[
        tuple[_Text, ...], _describe("Ids of senders who may write without a pairing code. Empty: nobody.")
    ] = ()
    groups: Annotated[
        tuple[_Text, ...], _describe("Ids of groups in which those who may write are answered when they mention Odin.")
    ] = ()
    options: Annotated[dict[str, Any], _describe("What this kind of channel needs besides.")] = field(
        default_factory=dict[str, Any]
    )


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """An address that programs send messages to: `POST /hook/NAME`."""

    secret: Annotated[str, _describe("The key of the signatures, or $NAME to read it from a variable.")] = ""
    prompt: Annotated[
        str, _describe("What the model is to do with what it gets. The body comes below, as an attachment.")
    ] = "A program sent what is attached. Say in a few sentences what it is about."
    callback_url: Annotated[str, _describe("Where answers are sent. Empty: the sender asks for them.")] = ""
    history: Annotated[bool, _describe("False: every message gets a conversation of its own.")] = False


class TriggerSettings(Struct, frozen=True, kw_only=True):
    """Something that programs of this computer report with `odin trigger NAME`."""

    chat: Annotated[str, _describe("The chat of the answer, such as telegram:123. Empty: the owner's last one.")] = ""
    prompt: Annotated[
        str, _describe("What the model is to do. What was given to the trigger comes below, as a quotation.")
    ] = "A program of this computer has reported what follows. Say in a few sentences what it is about."
    history: Annotated[bool, _describe("True: it is part of the conversation of the chat.")] = False


class HeartbeatSettings(Struct, frozen=True, kw_only=True):
    """A model reads HEARTBEAT.md in the workspace from time to time. It costs money also while nobody writes."""

    enabled: Annotated[bool, _describe("Switch the heartbeat on.")] = False
    every_minutes: Annotated[float, _describe("Minutes between two beats.", ge=5, le=10_080)] = 30.0
    command: Annotated[
        str, _describe("A probe: a model is asked only if this command succeeds and prints something new.")
    ] = ""
    model: Annotated[str, _describe("The model of the heartbeat; a cheap one. Empty: that of chats.")] = ""
    tools: Annotated[
        tuple[_Text, ...], _describe("Odin's own tools that it may use besides `message`, such as Read. Empty: none.")
    ] = ()
    active_hours: Annotated[str, _describe("When it beats, such as 08:00-22:00. Empty: always.")] = ""
    timezone: Annotated[str, _describe("The time zone of these hours. Empty: that of this computer.")] = ""
    chat: Annotated[str, _describe("The chat that it writes to. Empty: the one that the owner wrote in last.")] = ""
    max_budget_usd_per_day: Annotated[
        float, _describe("Budget of the heartbeat per day in US dollars; 0 means no limit.", ge=0)
    ] = 0.5


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """Chat channels, webhooks, triggers and the heartbeat."""

    workspace: Annotated[str, _describe("The folder of chats that are bound to no other one.")] = "~/odin"
    host: Annotated[str, _describe("The address for webhooks. A proxy with TLS makes them public.")] = "127.0.0.1"
    port: Annotated[int, _describe("The port for webhooks; 0 picks one.", ge=0, le=65535)] = 18790
    channels: Annotated[dict[str, ChannelSettings], _describe("Chat channels by name.")] = field(
        default_factory=dict[str, ChannelSettings]
    )
    webhooks: Annotated[dict[str, WebhookSettings], _describe("Webhooks by name.")] = field(
        default_factory=dict[str, WebhookSettings]
    )
    triggers: Annotated[dict[str, TriggerSettings], _describe("Triggers by name.")] = field(
        default_factory=dict[str, TriggerSettings]
    )
    heartbeat: Annotated[
        HeartbeatSettings, _describe("A model reads HEARTBEAT.md from time to time. Off until it is switched on.")
    ] = HeartbeatSettings()
    model: Annotated[str, _describe("The model of chats. Empty: as elsewhere.")] = ""
    max_turns: Annotated[
        int, _describe("Maximum number of model requests per message, unless the key `max_turns` is set.", ge=1)
    ] = 20
    max_budget_usd_per_day: Annotated[
        float, _describe("Budget of each chat per day in US dollars; 0 means no limit.", ge=0)
    ] = 5.0
    confirm_timeout_s: Annotated[
        float, _describe("Seconds until what a chat was asked counts as denied.", gt=0, le=604_800)
    ] = 3600.0
    idle_s: Annotated[float, _describe("Seconds until the session of a silent chat is closed.", gt=0)] = 600.0

    def list_secrets(self) -> Iterator[tuple[str, str]]:
        """Yield the name and value of each secret of what is used."""
        for name, channel in self.channels.items():
            given = {"token": channel.token, **{f"options.{key}": value for key, value in channel.options.items()}}
            for key, value in given.items() if channel.enabled else ():
                if value and isinstance(value, str) and key.endswith(("token", "secret", "password", "key")):
                    yield f"gateway.channels.{name}.{key}", value
        for name, webhook in self.webhooks.items():
            yield f"gateway.webhooks.{name}.secret", webhook.secret
