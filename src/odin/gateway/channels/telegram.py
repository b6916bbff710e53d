"""Telegram: a bot that asks the Bot API for messages by long polling.

An update is stored before the next poll confirms it. A poll that is not complete in time ends `run`, and the gateway
calls it again; nothing that is sent meanwhile counts as a sign of life.
"""

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from odin.core.errors import ConfigError, OdinError
from odin.core.format import clip
from odin.gateway.channel import (
    Abilities,
    Button,
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
from odin.gateway.channels.platform_api import DOWNLOAD_S, TIMEOUT_S, FileRefused, PlatformApi
from odin.gateway.channels.telegram_html import render_html
from odin.gateway.prompt_text import quote

API_URL = "https://api.telegram.org"
POLL_S = 50.0
GRACE_S = 15.0
_UPDATES = ("message", "edited_message", "callback_query")
_UNREADABLE = ("voice", "audio", "video", "video_note", "animation", "sticker", "contact", "location", "poll")
"""Fields of messages that have no text and no file for a model."""

_PHOTOS = ("image/jpeg", "image/png", "image/webp")
_TOKEN = re.compile(r"\d{3,}:[\w-]{20,}")
_COMMANDS = (("help", "what you can write"), ("clear", "start a new conversation"), ("stop", "stop what is running"))


class _User(Struct, frozen=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip() or self.username


class _Chat(Struct, frozen=True):
    id: int
    type: str


class _Entity(Struct, frozen=True):
    type: str
    user: _User | None = None


class _File(Struct, frozen=True):
    file_id: str
    file_unique_id: str
    file_size: int = 0
    file_name: str = ""
    mime_type: str = ""


class _Origin(Struct, frozen=True):
    """Who wrote a message that was forwarded: a user, one who is hidden, a chat or a channel."""

    sender_user: _User | None = None
    sender_user_name: str = ""


class _Message(Struct, frozen=True, rename={"sender": "from"}):
    message_id: int
    chat: _Chat
    sender: _User | None = None
    text: str = ""
    caption: str = ""
    entities: tuple[_Entity, ...] = ()
    caption_entities: tuple[_Entity, ...] = ()
    photo: tuple[_File, ...] = ()
    document: _File | None = None
    media_group_id: str = ""
    edit_date: int = 0
    message_thread_id: int = 0
    is_topic_message: bool = False
    forward_origin: _Origin | None = None
    reply_to_message: "_Message | None" = None
    voice: Any = None
    audio: Any = None
    video: Any = None
    video_note: Any = None
    animation: Any = None
    sticker: Any = None
    contact: Any = None
    location: Any = None
    poll: Any = None

    @property
    def unreadable(self) -> str:
        return next((kind for kind in _UNREADABLE if getattr(self, kind) is not None), "").replace("_", " ")

    @property
    def place(self) -> str:
        """The chat, and the topic in a group that has topics."""
        topic = f"/{self.message_thread_id}" if self.is_topic_message else ""
        return f"{self.chat.id}{topic}"

    @property
    def id(self) -> str:
        return f"{self.chat.id}:{self.message_id}"


class _Callback(Struct, frozen=True, rename={"sender": "from"}):
    id: str
    sender: _User
    message: _Message | None = None
    data: str = ""


class _Update(Struct, frozen=True):
    update_id: int
    message: _Message | None = None
    edited_message: _Message | None = None
    callback_query: _Callback | None = None


class _Numbered(Struct, frozen=True):
    update_id: int


class _Hints(Struct, frozen=True):
    retry_after: int = 0


class _Answer(Struct, frozen=True):
    ok: bool
    result: msgspec.Raw = field(default_factory=msgspec.Raw)
    error_code: int = 0
    description: str = ""
    parameters: _Hints = _Hints()


class _Sent(Struct, frozen=True):
    message_id: int


class _FilePath(Struct, frozen=True):
    file_path: str = ""


class TelegramChannel:
    abilities = Abilities(max_length=4000, buttons=True, edits=True, typing=True, max_file_bytes=MAX_FILE_BYTES)

    def __init__(self, setup: ChannelSetup, *, poll_s: float = POLL_S, grace_s: float = GRACE_S) -> None:
        self.name = setup.name
        token = setup.settings.token
        if not _TOKEN.fullmatch(token):
            where = f"gateway.channels.{setup.name}.token"
            raise ConfigError(f"{where} is no token of a Telegram bot.", "@BotFather gives you one with /newbot.")
        url = str(setup.settings.options.get("api_url", API_URL)).rstrip("/")
        self._methods, self._files = f"{url}/bot{token}", f"{url}/file/bot{token}"
        self._api = PlatformApi(setup.http, "Telegram")
        self._folder = setup.folder / "files" / setup.name
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._me = _User(0)
        self._mention = re.compile("$.")

    # --- what people write ---

    async def run(self, inbox: ChannelInbox) -> None:
        self._me = msgspec.json.decode(await self._call("getMe"), type=_User)
        self._mention = re.compile(rf"(?i)@{re.escape(self._me.username)}(?!\w)")
        with suppress(DeliveryRefused):
            commands = [{"command": name, "description": about} for name, about in _COMMANDS]
            await self._call("setMyCommands", commands=commands)
        intake, offset = Intake(self, inbox, self._folder), 0
        while True:
            limits: dict[str, Any] = {"offset": offset, "timeout": int(self._poll_s), "allowed_updates": _UPDATES}
            try:
                raw = await self._call("getUpdates", timeout_s=self._poll_s + self._grace_s, **limits)
            except DeliveryFailed as error:
                await asyncio.sleep(error.retry_after)
                raise
            found = msgspec.json.decode(raw, type=list[msgspec.Raw])
            offset = max((msgspec.json.decode(one, type=_Numbered).update_id + 1 for one in found), default=offset)
            updates: list[_Update] = []
            for one in found:
                with suppress(msgspec.MsgspecError):  # a kind of message that came after this was written
                    updates.append(msgspec.json.decode(one, type=_Update))
            for album in _join_albums(updates):
                await self._take(intake, album)

    async def _take(self, intake: Intake, album: list[_Update]) -> None:
        """Store a message; more than one update are the pictures that were sent as one."""
        first = album[0]
        if first.callback_query is not None:
            await self._take_press(intake, first.callback_query)
            return
        message = first.message or first.edited_message
        if message is None or message.sender is None or message.sender.is_bot:
            return
        given = [one for update in album if (one := update.message or update.edited_message)]
        files = [self._make_file(one) for one in given]
        kinds = [one.unreadable for one in given if one.unreadable]
        refused = [f"Odin reads text, pictures and documents, but no {kinds[0]}."] if kinds else []
        is_edit = first.edited_message is not None
        await intake.take(
            InboundMessage(
                channel=self.name,
                account=str(self._me.id),
                id=f"{message.id}:{message.edit_date}" if is_edit else message.id,
                edit_of=message.id if is_edit else "",
                sender=str(message.sender.id),
                sender_name=message.sender.name,
                chat=message.place,
                is_group=message.chat.type != "private",
                is_mention=self._is_mentioned(message),
                text=self._read_text(message, next((one.caption for one in given if one.caption), "")),
                reply_to=message.reply_to_message.id if message.reply_to_message is not None else "",
            ),
            [file for file in files if file is not None],
            refused,
        )

    async def _take_press(self, intake: Intake, press: _Callback) -> None:
        if press.message is not None and not press.sender.is_bot:
            await intake.take(
                InboundMessage(
                    channel=self.name,
                    account=str(self._me.id),
                    id=f"press:{press.id}",
                    sender=str(press.sender.id),
                    sender_name=press.sender.name,
                    chat=press.message.place,
                    is_group=press.message.chat.type != "private",
                    choice=press.data,
                )
            )
        with suppress(OdinError):  # it only ends the animation of the button
            await self._call("answerCallbackQuery", callback_query_id=press.id)

    def _is_mentioned(self, message: _Message) -> bool:
        replied = message.reply_to_message
        if replied is not None and replied.sender is not None and replied.sender.id == self._me.id:
            return True
        named = any(one.user is not None and one.user.id == self._me.id for one in message.entities)
        return named or self._mention.search(message.text or message.caption) is not None

    def _read_text(self, message: _Message, caption: str) -> str:
        text = message.text or caption
        if (origin := message.forward_origin) is not None:
            name = origin.sender_user.name if origin.sender_user is not None else origin.sender_user_name
            return f"This was forwarded from {clip(name, 80) or 'somewhere else'}:\n\n{quote(text)}"
        if (found := self._mention.search(text)) is not None and re.fullmatch(r"(/\w+)?", text[: found.start()]):
            text = f"{text[: found.start()]} {text[found.end() :]}".strip(" ,:")  # `/help@bot`, `@bot, go on`
        if text == "/start" or text.startswith("/start "):  # the button of a new chat; a link may add a pairing code
            return text.removeprefix("/start").strip() or "/help"
        replied = message.reply_to_message
        if replied is None or replied.sender is None or replied.sender.id == self._me.id or text.startswith("/"):
            return text
        said = replied.text or replied.caption
        return f"{text}\n\nIn reply to {clip(replied.sender.name, 80)}:\n\n{quote(said)}" if said else text

    def _make_file(self, message: _Message) -> RemoteFile | None:
        fitting = [size for size in message.photo if size.file_size <= 5_000_000] or message.photo
        file = message.document or (fitting[-1] if fitting else None)
        if file is None or message.unreadable:
            return None

        async def fetch(path: Path) -> None:
            found = msgspec.json.decode(await self._call("getFile", file_id=file.file_id), type=_FilePath)
            if not found.file_path:
                raise FileRefused("Telegram does not give it out")
            await self._api.download(f"{self._files}/{found.file_path}", path, limit=MAX_FILE_BYTES)

        name, kind = (file.file_name, file.mime_type) if message.document else ("photo.jpg", "image/jpeg")
        return RemoteFile(f"{message.id}:{file.file_unique_id}", name or "document", kind, file.file_size, fetch)

    # --- what Odin writes ---

    async def send(self, part: OutboundPart) -> str:
        params = _address(part.chat)
        if part.file is not None:
            return await self._send_file(part.file, params)
        if part.buttons:
            params["reply_markup"] = {"inline_keyboard": _arrange(part.buttons)}
        sent = await self._call_with_text("sendMessage", part.text, params)
        return str(msgspec.json.decode(sent, type=_Sent).message_id)

    async def _send_file(self, file: Media, params: dict[str, Any]) -> str:
        """Send a picture as one, and all else, also pictures that Telegram does not take, as a document."""
        content = Path(file.path).read_bytes()
        is_photo = file.media_type in _PHOTOS
        try:
            sent = await self._upload("sendPhoto" if is_photo else "sendDocument", file, content, params)
        except DeliveryRefused:
            if not is_photo:
                raise
            sent = await self._upload("sendDocument", file, content, params)
        return str(msgspec.json.decode(sent, type=_Sent).message_id)

    async def _upload(self, method: str, file: Media, content: bytes, params: dict[str, Any]) -> bytes:
        field_name = "photo" if method == "sendPhoto" else "document"
        name = "".join("_" if char in '"\\\r\n' else char for char in file.name)
        mark = os.urandom(16).hex()
        lines = [f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{params[key]}\r\n' for key in params]
        lines.append(f'--{mark}\r\nContent-Disposition: form-data; name="{field_name}"; filename="{name}"\r\n')
        lines.append(f"Content-Type: {file.media_type}\r\n\r\n")
        body = "".join(lines).encode() + content + f"\r\n--{mark}--\r\n".encode()
        headers = {"content-type": f"multipart/form-data; boundary={mark}"}
        return await self._call(method, timeout_s=DOWNLOAD_S, body=body, headers=headers)

    async def edit(self, chat: str, message: str, text: str) -> None:
        params = {"chat_id": _address(chat)["chat_id"], "message_id": int(message)}
        try:
            await self._call_with_text("editMessageText", text, params)
        except DeliveryRefused as error:
            if "not modified" not in str(error):
                raise

    async def show_typing(self, chat: str) -> None:
        await self._call("sendChatAction", action="typing", **_address(chat))

    async def _call_with_text(self, method: str, text: str, params: dict[str, Any]) -> bytes:
        """Send Markdown as HTML, or as it is if Telegram does not accept that."""
        params["link_preview_options"] = {"is_disabled": True}
        try:
            return await self._call(method, text=render_html(text) or text, parse_mode="HTML", **params)
        except DeliveryRefused as error:
            if "parse entities" not in str(error) and "too long" not in str(error):
                raise
        return await self._call(method, text=text, **params)

    async def _call(
        self,
        method: str,
        *,
        timeout_s: float = TIMEOUT_S,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> bytes:
        """Return the result of a method as JSON. It is given the parameters, or a `body` of another kind."""
        url, given = f"{self._methods}/{method}", params if body is None else body
        reply = await self._api.request("POST", url, headers, given, timeout=timeout_s)
        try:
            answer = msgspec.json.decode(reply.content, type=_Answer)
        except msgspec.MsgspecError:
            raise OdinError(f"Telegram answered with {reply.status}, and not with JSON.") from None
        if answer.ok:
            return bytes(answer.result)
        said = f"Telegram: {clip(answer.description, 300)}"
        match answer.error_code:
            case 401 | 404:
                hint = f"Get the token from @BotFather and set gateway.channels.{self.name}.token."
                raise TokenRefused(f"Telegram does not accept the token. {hint}")
            case 409:
                hint = "Stop the other program, or call deleteWebhook; only one can receive the messages of a bot."
                raise DeliveryFailed(f"{said.rstrip('.')}. {hint}")
            case 429:
                raise DeliveryFailed(said, float(answer.parameters.retry_after))
            case code if 400 <= code < 500:
                raise DeliveryRefused(said)
            case _:
                raise DeliveryFailed(said)


def _join_albums(updates: list[_Update]) -> list[list[_Update]]:
    """Return the updates with those together that belong to one album."""
    joined: list[list[_Update]] = []
    for update in updates:
        group = update.message.media_group_id if update.message is not None else ""
        before = joined[-1][0].message if joined else None
        if group and before is not None and before.media_group_id == group:
            joined[-1].append(update)
        else:
            joined.append([update])
    return joined


def _address(chat: str) -> dict[str, Any]:
    number, _, topic = chat.partition("/")
    if not number.removeprefix("-").isdecimal() or (topic and not topic.isdecimal()):
        raise DeliveryRefused(f"{chat!r} is no chat of Telegram.")
    return {"chat_id": int(number), "message_thread_id": int(topic)} if topic else {"chat_id": int(number)}


def _arrange(buttons: tuple[Button, ...]) -> list[list[dict[str, str]]]:
    """Return rows of buttons: short ones beside each other."""
    width = 3 if all(len(one.label) <= 12 for one in buttons) else 1
    keys = [{"text": one.label, "callback_data": one.data} for one in buttons]
    return [keys[at : at + width] for at in range(0, len(keys), width)]
