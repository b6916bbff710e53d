"""Slack: an app in socket mode, so that nothing of this computer is public.

What Slack brings is acknowledged when it is stored. Until then Slack brings it again, which changes nothing: the id of
a message is that of Slack, also if it comes as two events. The socket notices by pings that it is dead; what is sent
over HTTP meanwhile counts for nothing.

The socket is that of `websockets`. The client of slack-sdk is no shorter to use, needs 15 MB more and reconnects for
ever by itself: `odin gateway status` would know of no outage, no token that was revoked, and no socket mode that was
switched off.
"""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import websockets
from msgspec import Struct
from msgspec.structs import replace

from odin.core.errors import ConfigError, OdinError
from odin.core.format import clip
from odin.gateway.channel import (
    Abilities,
    ChannelInbox,
    ChannelSetup,
    DeliveryFailed,
    DeliveryRefused,
    InboundMessage,
    Media,
    OutboundPart,
    TokenRefused,
)
from odin.gateway.channels.intake import MAX_FILE_BYTES, Intake, RemoteFile
from odin.gateway.channels.platform_api import DOWNLOAD_S, FileRefused, PlatformApi

API_URL = "https://slack.com/api"
PING_S = 20.0
SHORT_S = 5.0
"""A connection that Slack ends sooner is a failure."""

_MAX_FRAME_BYTES = 4_000_000
_SECTION_CHARS = 3_000
_BAD_TOKENS = frozenset(
    (
        *("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "no_permission"),
        *("not_allowed_token_type", "missing_scope", "org_login_required", "ekm_access_denied"),
    )
)
_UNSURE = frozenset(("internal_error", "fatal_error", "request_timeout"))
"""Errors after which the message may have been sent."""

_LATER = frozenset(("ratelimited", "rate_limited", "service_unavailable", "team_added_to_org"))
_MARKUP = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


class _Envelope(Struct, frozen=True):
    type: str
    envelope_id: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    reason: str = ""


class _File(Struct, frozen=True):
    id: str
    name: str | None = None
    mimetype: str = ""
    size: int = 0
    url_private_download: str = ""
    url_private: str = ""


class _Edited(Struct, frozen=True):
    ts: str


class _Message(Struct, frozen=True):
    """An event of type `message` or `app_mention`, and the new and old message in one that was changed."""

    type: str = ""
    subtype: str = ""
    user: str = ""
    bot_id: str = ""
    channel: str = ""
    ts: str = ""
    thread_ts: str = ""
    text: str = ""
    files: tuple[_File, ...] = ()
    edited: _Edited | None = None
    message: "_Message | None" = None
    previous_message: "_Message | None" = None


class _EventPayload(Struct, frozen=True):
    event: _Message


class _Named(Struct, frozen=True):
    id: str


class _Action(Struct, frozen=True):
    action_ts: str = ""
    value: str = ""


class _Press(Struct, frozen=True):
    """The payload when a button was pressed."""

    type: str
    user: _Named
    channel: _Named | None = None
    message: _Message | None = None
    actions: tuple[_Action, ...] = ()


class _Command(Struct, frozen=True):
    """The payload of the app's slash command: `/odin help`."""

    user_id: str
    channel_id: str
    trigger_id: str
    text: str = ""


class SlackChannel:
    abilities = Abilities(max_length=10_000, buttons=True, edits=True, max_file_bytes=MAX_FILE_BYTES)

    def __init__(self, setup: ChannelSetup, *, ping_s: float = PING_S, short_s: float = SHORT_S) -> None:
        self.name = setup.name
        where, options = f"gateway.channels.{setup.name}", setup.settings.options
        self._token, self._app_token = setup.settings.token, str(options.get("app_token", ""))
        if not self._token.startswith("xoxb-"):
            raise ConfigError(f"{where}.token is not set.", "It is the bot token of the app and begins with xoxb-.")
        if not self._app_token.startswith("xapp-"):
            hint = "It is the app-level token for socket mode and begins with xapp-."
            raise ConfigError(f"{where}.options.app_token is not set.", hint)
        self._url = str(options.get("api_url", API_URL)).rstrip("/")
        self._api = PlatformApi(setup.http, "Slack")
        self._folder = setup.folder / "files" / setup.name
        self._ping_s = ping_s
        self._short_s = short_s
        self._me = ""
        self._team = ""
        self._names: dict[str, str] = {}

    # --- what people write ---

    async def run(self, inbox: ChannelInbox) -> None:
        me = await self._call("auth.test")
        self._me, self._team = me["user_id"], me["team_id"]
        intake, loop = Intake(self, inbox, self._folder), asyncio.get_running_loop()
        while True:
            opened = await self._call("apps.connections.open", token=self._app_token)
            started = loop.time()
            async with websockets.connect(
                opened["url"],
                max_size=_MAX_FRAME_BYTES,
                ping_interval=self._ping_s,
                ping_timeout=self._ping_s,
                close_timeout=1.0,
            ) as socket:
                async for frame in socket:
                    envelope = msgspec.json.decode(frame, type=_Envelope)
                    if envelope.type == "disconnect":  # Slack renews its connections every few hours
                        if envelope.reason == "link_disabled":
                            raise TokenRefused("Socket mode is switched off for the app. Switch it on in its settings.")
                        break
                    if envelope.envelope_id:
                        await self._take(intake, inbox, envelope)
                        await socket.send(msgspec.json.encode({"envelope_id": envelope.envelope_id}).decode())
            if loop.time() - started < self._short_s:
                raise OdinError("Slack ends each connection at once.")

    async def _take(self, intake: Intake, inbox: ChannelInbox, envelope: _Envelope) -> None:
        try:
            found = self._read_envelope(envelope)
        except msgspec.MsgspecError:  # a kind of event that came after this was written
            return
        if found is None:
            return
        message, files = found
        if await inbox.is_wanted(message):
            message = replace(message, sender_name=await self._find_name(message.sender))
        kinds = [file.mimetype.partition("/")[0] for file in files]
        unreadable = next((kind for kind in kinds if kind in ("audio", "video")), "")
        refused = [f"Odin reads text, pictures and files, but no {unreadable}."] if unreadable else []
        readable = [file for file, kind in zip(files, kinds, strict=True) if kind not in ("audio", "video")]
        await intake.take(message, [self._make_file(file) for file in readable], refused)

    def _read_envelope(self, envelope: _Envelope) -> tuple[InboundMessage, Sequence[_File]] | None:
        """Return the message that an envelope brings, and its files; None if it brings none."""
        if envelope.type == "interactive":
            press = msgspec.json.decode(envelope.payload, type=_Press)
            if press.type != "block_actions" or press.channel is None or press.message is None or not press.actions:
                return None
            action, place = press.actions[0], _name_place(press.channel.id, press.message.thread_ts)
            key = f"press:{place}:{press.message.ts}:{press.user.id}:{action.action_ts}"
            return replace(self._make_message(key, press.user.id, press.channel.id, place), choice=action.value), ()
        if envelope.type == "slash_commands":
            command = msgspec.json.decode(envelope.payload, type=_Command)
            message = self._make_message(command.trigger_id, command.user_id, command.channel_id, command.channel_id)
            return replace(message, text=f"/{command.text or 'help'}", is_mention=True), ()
        if envelope.type != "events_api":
            return None
        event = msgspec.json.decode(envelope.payload, type=_EventPayload).event
        said, key, edit_of = event, f"{event.channel}:{event.ts}", ""
        if event.subtype == "message_changed" and event.message is not None and event.message.edited is not None:
            said, before = event.message, event.previous_message
            if before is not None and before.text == said.text:
                return None  # only a preview of a link was added
            edit_of = f"{event.channel}:{said.ts}"
            key = f"{edit_of}:{event.message.edited.ts}"
        elif event.type not in ("message", "app_mention") or event.subtype not in (
            "",
            "file_share",
            "thread_broadcast",
        ):
            return None
        if said.bot_id or not said.user or said.user == self._me:
            return None
        place = _name_place(event.channel, said.thread_ts if said.thread_ts != said.ts else "")
        message = replace(
            self._make_message(key, said.user, event.channel, place),
            text=self._read_text(said.text),
            is_mention=f"<@{self._me}" in said.text,
            edit_of=edit_of,
        )
        return message, said.files

    def _make_message(self, id: str, sender: str, channel: str, place: str) -> InboundMessage:
        is_group = not channel.startswith("D")
        return InboundMessage(
            channel=self.name, account=self._team, id=id, sender=sender, chat=place, is_group=is_group
        )

    def _read_text(self, text: str) -> str:
        """Return what was typed, without Slack's own marks."""

        def read_mark(found: re.Match[str]) -> str:
            target, label = found[1], found[2] or ""
            if target[0] in "@#!":
                return f"{target[0]}{label or target[1:]}" if target[0] != "!" else f"@{label or target[1:]}"
            return f"{label} ({target})" if label and label != target.removeprefix("mailto:") else target

        text = re.sub(rf"^\s*<@{self._me}(?:\|[^>]*)?>[\s,:]*", "", text)
        text = _MARKUP.sub(read_mark, text)
        for entity, char in _ENTITIES:
            text = text.replace(entity, char)
        return text.strip()

    async def _find_name(self, user: str) -> str:
        if user not in self._names:
            try:
                found = (await self._call("users.info", user=user))["user"]
                profile = found.get("profile", {})
                self._names[user] = profile.get("display_name") or found.get("real_name") or user
            except OdinError:  # the name is not worth more
                return user
        return self._names[user]

    def _make_file(self, file: _File) -> RemoteFile:
        async def fetch(path: Path) -> None:
            url = file.url_private_download or file.url_private
            host = urlsplit(url).hostname or ""
            if host != urlsplit(self._url).hostname and not (url.startswith("https:") and host.endswith(".slack.com")):
                raise FileRefused("it is not on Slack")  # which alone may see the token
            headers = {"authorization": f"Bearer {self._token}"}
            await self._api.download(url, path, headers, limit=MAX_FILE_BYTES)

        return RemoteFile(file.id, file.name or "file", file.mimetype, file.size, fetch)

    # --- what Odin writes ---

    async def send(self, part: OutboundPart) -> str:
        if part.file is not None:
            return await self._send_file(part.chat, part.file)
        elements = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": clip(one.label, 75)},
                "value": one.data,
                "action_id": f"odin.{at}",
            }
            for at, one in enumerate(part.buttons[:25])
        ]
        more = [{"type": "actions", "elements": elements}] if elements else []
        sent = await self._call_with_text("chat.postMessage", part.chat, part.text, more, unfurl_links="false")
        return sent["ts"]

    async def _send_file(self, chat: str, file: Media) -> str:
        content = Path(file.path).read_bytes()
        try:
            place = await self._call("files.getUploadURLExternal", filename=file.name, length=str(len(content)))
            kind = {"content-type": "application/octet-stream"}
            reply = await self._api.request("POST", place["upload_url"], kind, content, timeout=DOWNLOAD_S)
        except (DeliveryFailed, DeliveryRefused):
            raise
        except OdinError as error:  # the file is not in the chat yet, so that it may be sent again
            raise DeliveryFailed(error.describe()) from error
        if reply.status != 200:
            raise DeliveryFailed(f"Slack answered with {reply.status} to a file.", reply.wait_s)
        channel, _, thread = chat.partition("/")
        where = {"channel_id": channel, **({"thread_ts": thread} if thread else {})}
        await self._call("files.completeUploadExternal", files=[{"id": place["file_id"]}], **where)
        return place["file_id"]

    async def edit(self, chat: str, message: str, text: str) -> None:
        await self._call_with_text("chat.update", chat, text, [], ts=message)

    async def show_typing(self, chat: str) -> None:
        """Slack shows that of people only."""

    async def _call_with_text(
        self, method: str, chat: str, text: str, more: list[dict[str, Any]], **params: str
    ) -> dict[str, Any]:
        """Send Markdown, or the text as it is if Slack does not take that. Nobody is notified by what it says."""
        channel, _, thread = chat.partition("/")
        shown = text.replace("<!", "<\u200b!").replace("<@", "<\u200b@")
        summary = clip(text, _SECTION_CHARS)
        for entity, char in reversed(_ENTITIES):
            summary = summary.replace(char, entity)
        if thread and method == "chat.postMessage":
            params["thread_ts"] = thread
        blocks = [{"type": "markdown", "text": shown}, *more]
        try:
            return await self._call(method, channel=channel, text=summary, blocks=blocks, **params)
        except DeliveryRefused as error:
            if "invalid_blocks" not in str(error):
                raise
        pieces = [text[at : at + _SECTION_CHARS] for at in range(0, len(text), _SECTION_CHARS)]
        plain = [{"type": "section", "text": {"type": "plain_text", "text": piece}} for piece in pieces]
        return await self._call(method, channel=channel, text=summary, blocks=[*plain, *more], **params)

    async def _call(self, method: str, *, token: str = "", **params: Any) -> dict[str, Any]:
        given = {
            name: value if isinstance(value, str) else msgspec.json.encode(value) for name, value in params.items()
        }
        headers = {
            "authorization": f"Bearer {token or self._token}",
            "content-type": "application/x-www-form-urlencoded",
        }
        reply = await self._api.request("POST", f"{self._url}/{method}", headers, urlencode(given).encode())
        answer, problem = reply.read_json(), ""
        if answer.get("ok"):
            return answer
        problem = str(answer.get("error", ""))
        said = f"Slack: {problem or f'answered with {reply.status}'} ({method})."
        if reply.status == 429 or problem in _LATER:
            raise DeliveryFailed(said, reply.wait_s)
        if problem in _BAD_TOKENS:
            missing = f" The scope {answer['needed']} is missing." if "needed" in answer else ""
            which = "options.app_token" if token else "token"
            raise TokenRefused(f"{said}{missing} Check gateway.channels.{self.name}.{which} and the scopes of the app.")
        if not problem or problem in _UNSURE or reply.status >= 500:
            raise OdinError(said)
        raise DeliveryRefused(said)


def _name_place(channel: str, thread: str) -> str:
    """Return the id of a chat: a thread is one of its own."""
    return f"{channel}/{thread}" if thread else channel
