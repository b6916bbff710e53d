"""The Bot API of Telegram as it is documented, for one bot. It refuses what Telegram refuses."""

import asyncio
import itertools
from collections.abc import Sequence
from email.parser import BytesParser
from email.policy import HTTP
from html import unescape
from html.parser import HTMLParser
from typing import Any, NoReturn

from tests.gateway.http_stand_in import HttpStandIn, Refused, Reply, Seen

TOKEN = "4242:AAH-token_of_the_stand-in_97531"
BOT = {"id": 4242, "is_bot": True, "first_name": "Odin", "username": "odin_test_bot"}

_METHODS: dict[str, tuple[dict[str, type | tuple[type, ...]], tuple[str, ...]]] = {
    "getMe": ({}, ()),
    "setMyCommands": ({"commands": list}, ("commands",)),
    "getUpdates": ({"offset": int, "limit": int, "timeout": int, "allowed_updates": list}, ()),
    "sendMessage": (
        {
            "chat_id": (int, str),
            "message_thread_id": int,
            "text": str,
            "parse_mode": str,
            "link_preview_options": dict,
            "reply_markup": dict,
        },
        ("chat_id", "text"),
    ),
    "editMessageText": (
        {
            "chat_id": (int, str),
            "message_id": int,
            "text": str,
            "parse_mode": str,
            "link_preview_options": dict,
            "reply_markup": dict,
        },
        ("chat_id", "message_id", "text"),
    ),
    "sendChatAction": ({"chat_id": (int, str), "message_thread_id": int, "action": str}, ("chat_id", "action")),
    "answerCallbackQuery": ({"callback_query_id": str, "text": str}, ("callback_query_id",)),
    "getFile": ({"file_id": str}, ("file_id",)),
    "sendPhoto": ({"chat_id": str, "message_thread_id": str, "photo": tuple}, ("chat_id", "photo")),
    "sendDocument": ({"chat_id": str, "message_thread_id": str, "document": tuple}, ("chat_id", "document")),
}
"""The parameters of each method, and which are required."""

_TAGS = {"b", "i", "u", "s", "a", "code", "pre", "blockquote"}


class _Html(HTMLParser):
    """Checks HTML as `parse_mode` takes it, and collects the text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        if self._open:
            _refuse(400, f"Bad Request: can't parse entities: Can't find end tag corresponding to {self._open[-1]}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        allowed = {"a": {"href"}, "code": {"class"}}.get(tag, set[str]())
        if tag not in _TAGS or {name for name, _ in attrs} - allowed:
            _refuse(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        if tag == "blockquote" and tag in self._open:
            _refuse(400, "Bad Request: can't parse entities: nested blockquote")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            _refuse(400, f"Bad Request: can't parse entities: Unmatched end tag </{tag}>")

    def handle_data(self, data: str) -> None:
        if "<" in data:
            _refuse(400, "Bad Request: can't parse entities: Unsupported start tag")
        self.text += data

    def handle_entityref(self, name: str) -> None:
        if name not in ("lt", "gt", "amp", "quot"):
            _refuse(400, f"Bad Request: can't parse entities: &{name};")
        self.text += unescape(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.text += unescape(f"&#{name};")


def _refuse(code: int, description: str) -> NoReturn:
    raise Refused(deny(code, description))


def deny(code: int, description: str, **parameters: int) -> Reply:
    """Return an error as a fault."""
    content: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return Reply(code, content | ({"parameters": parameters} if parameters else {}))


def _parse_form(seen: Seen) -> dict[str, Any]:
    """Return the fields of a form as texts, and files as their name, type and content."""
    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    form = BytesParser(policy=HTTP).parsebytes(head + seen.body)
    if form.defects or not form.is_multipart():
        _refuse(400, "Bad Request: the form cannot be read")
    fields: dict[str, Any] = {}
    for part in form.iter_parts():
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        assert isinstance(name, str) and isinstance(content, bytes)
        file = part.get_filename()
        fields[name] = content.decode() if file is None else (file, part.get_content_type(), content)
    return fields


class TelegramStandIn(HttpStandIn):
    """`chats` has the messages of each chat that the bot has sent, by their ids, as they are shown now."""

    def __init__(self) -> None:
        super().__init__()
        self.chats: dict[int, dict[int, dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.pressed: list[str] = []
        self._updates: list[dict[str, Any]] = []
        self._ids = itertools.count(1)
        self._update_ids = itertools.count(700_000_001)
        self._polls = 0

    # --- what people do ---

    def write(
        self, text: str = "", *, sender: int = 7, chat: int = 0, update: str = "message", id: int = 0, **fields: Any
    ) -> int:
        """Write something in the direct chat with the bot, or in a group, whose id is negative. Return its id."""
        place = chat or sender
        self.chats.setdefault(place, {})
        body: dict[str, Any] = {
            "message_id": id or next(self._ids),
            "date": 1_800_000_000,
            "from": {"id": sender, "is_bot": False, "first_name": f"Person{sender}", "language_code": "en"},
            "chat": {"id": place, "type": "supergroup" if place < 0 else "private"},
            **({"text": text} if text else {}),
            **fields,
        }
        self.push({update: body})
        return body["message_id"]

    def press(self, label: str, *, sender: int = 7, chat: int = 0) -> None:
        """Press the newest button with this label."""
        place = chat or sender
        for number, message in reversed(self.chats[place].items()):
            for row in message.get("reply_markup", {}).get("inline_keyboard", []):
                for key in row:
                    if key["text"] == label:
                        shown = {"message_id": number, "date": 0, "chat": {"id": place, "type": "private"}}
                        by = {"id": sender, "is_bot": False, "first_name": f"Person{sender}"}
                        press = f"press{next(self._ids)}"
                        self.push(
                            {
                                "callback_query": {
                                    "id": press,
                                    "from": by,
                                    "message": shown,
                                    "data": key["callback_data"],
                                }
                            }
                        )
                        return
        raise AssertionError(f"there is no button {label!r}")

    def push(self, update: dict[str, Any]) -> None:
        self._updates.append({"update_id": next(self._update_ids), **update})
        self.note()

    @property
    def waiting(self) -> int:
        return len(self._updates)

    def list_texts(self, chat: int = 7) -> list[str]:
        return [message["text"] for message in self.chats.get(chat, {}).values()]

    async def wait_for(self, count: int, chat: int = 7) -> list[str]:
        await self.wait_until(lambda: len(self.list_texts(chat)) >= count)
        return self.list_texts(chat)

    def list_calls(self, method: str) -> list[dict[str, Any]]:
        return [seen.json for seen in self.seen if seen.path.endswith(f"/{method}")]

    # --- the API ---

    async def answer(self, seen: Seen) -> Reply:
        if seen.path.startswith(f"/file/bot{TOKEN}/"):
            content = self.files.get(seen.path.rpartition("/")[2])
            return Reply(404, {"ok": False}) if content is None else Reply(200, content)
        token, _, method = seen.path.removeprefix("/bot").partition("/")
        if token != TOKEN:
            _refuse(401, "Unauthorized")
        if method not in _METHODS or seen.method != "POST":
            _refuse(404, "Not Found: method not found")
        known, required = _METHODS[method]
        given = _parse_form(seen) if seen.headers.get("content-type", "").startswith("multipart/") else seen.json
        for name, value in given.items():
            if name not in known or not isinstance(value, known[name]):
                _refuse(400, f"Bad Request: unexpected parameter {name}={value!r}")
        if missing := [name for name in required if name not in given]:
            _refuse(400, f"Bad Request: parameter {missing[0]} is required")
        return Reply(200, {"ok": True, "result": await getattr(self, f"_{method}")(**given)})

    async def _getMe(self) -> Any:  # noqa: N802
        return {**BOT, "can_join_groups": True, "can_read_all_group_messages": False}

    async def _setMyCommands(self, commands: Sequence[dict[str, str]]) -> Any:  # noqa: N802
        for one in commands:
            if set(one) != {"command", "description"} or not one["command"].islower():
                _refuse(400, "Bad Request: BOT_COMMAND_INVALID")
        return True

    async def _getUpdates(self, offset: int = 0, limit: int = 100, timeout: int = 0, allowed_updates: Any = ()) -> Any:  # noqa: N802
        self._polls += 1
        poll = self._polls
        self.note()
        self._updates = [one for one in self._updates if one["update_id"] >= offset]
        end = asyncio.get_running_loop().time() + timeout
        while not self._updates and (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self.changed.wait()
            except TimeoutError:
                pass
            if self._polls != poll:
                raise Refused(deny(409, "Conflict: terminated by other getUpdates request"), is_fault=False)
        return [one for one in self._updates if not allowed_updates or set(one) & {*allowed_updates}][:limit]

    async def _sendMessage(  # noqa: N802
        self, chat_id: int, text: str, parse_mode: str = "", reply_markup: Any = None, **more: Any
    ) -> Any:
        message = self._check_text(chat_id, text, parse_mode, reply_markup)
        number = next(self._ids)
        self.chats[chat_id][number] = message | {name: more[name] for name in ("message_thread_id",) if name in more}
        return {
            "message_id": number,
            "date": 1_800_000_000,
            "chat": {"id": chat_id, "type": "private"},
            "text": message["text"],
        }

    async def _sendPhoto(self, chat_id: str, photo: tuple[str, str, bytes], **_: Any) -> Any:  # noqa: N802
        if not photo[2].startswith((b"\x89PNG", b"\xff\xd8")):
            _refuse(400, "Bad Request: IMAGE_PROCESS_FAILED")
        return await self._sendDocument(chat_id, photo, kind="photo")

    async def _sendDocument(self, chat_id: str, document: tuple[str, str, bytes], kind: str = "document") -> Any:  # noqa: N802
        name, media_type, content = document
        if int(chat_id) not in self.chats:
            _refuse(400, "Bad Request: chat not found")
        if not content or len(content) > 50_000_000:
            _refuse(400, "Bad Request: file must be non-empty")
        number = next(self._ids)
        shown = {"text": f"[{kind} {name}]", "media_type": media_type, "content": content}
        self.chats[int(chat_id)][number] = shown
        return {"message_id": number, "chat": {"id": int(chat_id), "type": "private"}}

    async def _editMessageText(  # noqa: N802
        self, chat_id: int, message_id: int, text: str, parse_mode: str = "", reply_markup: Any = None, **_: Any
    ) -> Any:
        message = self._check_text(chat_id, text, parse_mode, reply_markup)
        if message_id not in self.chats[chat_id]:
            _refuse(400, "Bad Request: message to edit not found")
        if self.chats[chat_id][message_id] == message:
            _refuse(
                400, "Bad Request: message is not modified: specified new message content and reply markup are the same"
            )
        self.chats[chat_id][message_id] = message
        return {"message_id": message_id, "chat": {"id": chat_id, "type": "private"}}

    def _check_text(self, chat_id: int, text: str, parse_mode: str, reply_markup: Any) -> dict[str, Any]:
        if chat_id not in self.chats:
            _refuse(400, "Bad Request: chat not found")
        if parse_mode not in ("", "HTML"):
            _refuse(400, "Bad Request: unsupported parse_mode")
        shown = _Html(text).text if parse_mode else text
        if not shown.strip():
            _refuse(400, "Bad Request: message text is empty")
        if len(shown.encode("utf-16-le")) // 2 > 4096:
            _refuse(400, "Bad Request: message is too long")
        markup: dict[str, Any] = reply_markup or {}
        rows: list[list[dict[str, str]]] = markup.get("inline_keyboard", [])
        keys = [key for row in rows for key in row]
        for key in keys:
            if not 1 <= len(key["callback_data"].encode()) <= 64 or not key["text"]:
                _refuse(400, "Bad Request: BUTTON_DATA_INVALID")
        return {"text": shown, "source": text, "parse_mode": parse_mode, "reply_markup": markup}

    async def _sendChatAction(self, chat_id: int, action: str, **_: Any) -> Any:  # noqa: N802
        if chat_id not in self.chats or action != "typing":
            _refuse(400, "Bad Request: chat not found")
        return True

    async def _answerCallbackQuery(self, callback_query_id: str, **_: Any) -> Any:  # noqa: N802
        if callback_query_id in self.pressed:
            _refuse(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.pressed.append(callback_query_id)
        return True

    async def _getFile(self, file_id: str) -> Any:  # noqa: N802
        if file_id not in self.files:
            _refuse(400, "Bad Request: invalid file_id")
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_path": f"documents/{file_id}"}
