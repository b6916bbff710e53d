"""Matrix: an account on any homeserver, over the client-server API. Encrypted rooms need matrix-nio.

What came is stored before the place in the server's stream (`since`) is. Parts are sent with their keys as transaction
ids, so that the server knows one that is sent again, also if it is encrypted differently. Requests are answered with
reactions to their message, which carries what each one means.
"""

import asyncio
import re
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as quote_url
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, field

from odin.config.files import write_atomically
from odin.core.errors import ConfigError, OdinError
from odin.core.format import clip
from odin.core.private_folders import make_private_folder
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

if TYPE_CHECKING:
    from odin.gateway.channels.matrix_encryption import MatrixEncryption

POLL_S = 30.0
GRACE_S = 15.0
PAGE = 100
"""How many events of a room the server sends at once."""

TYPING_MS = 8_000
KEY_WAIT_S = 60.0
"""How long a message waits for the key to it."""

INSTALL = "Encrypted rooms need a package: pip install 'odin-code[matrix]'"
_MAX_WAITING = 100
_NO_KEY = (
    "Odin has got no key to a message here. Write it again. If that does not help, let your client give keys to "
    "unverified devices, or write /discardsession in Element."
)
_MAX_EVENT_BYTES = 60_000
_MAX_PAGES = 10
_BUTTONS = "dev.odin.buttons"
"""The field of an event with what each reaction to it means."""

_KEYS = ("1️⃣", "2️⃣", "3️⃣", "4️⃣", "5️⃣", "6️⃣", "7️⃣", "8️⃣", "9️⃣", "🔟")
_VARIATION = "\ufe0f"
_MXC = re.compile(r"mxc://([\w.:\[\]-]+)/([\w-]+)")
_QUOTED_REPLY = re.compile(r"(?:> .*\n)+\n?")
_FILES = ("m.image", "m.file")
_UNREADABLE = {"m.audio": "voice", "m.video": "video", "m.location": "location"}


class _Relation(Struct, frozen=True, rename={"reply": "m.in_reply_to"}):
    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    reply: dict[str, Any] | None = None


class _Mentions(Struct, frozen=True):
    user_ids: tuple[str, ...] = ()


class _FileInfo(Struct, frozen=True):
    mimetype: str = ""
    size: int = 0


class _FileKey(Struct, frozen=True):
    k: str


class _FileHashes(Struct, frozen=True):
    sha256: str


class _EncryptedFile(Struct, frozen=True):
    url: str
    key: _FileKey
    iv: str
    hashes: _FileHashes


_IN_MATRIX = {
    "relation": "m.relates_to",
    "mentions": "m.mentions",
    "new": "m.new_content",
    "buttons": _BUTTONS,
}


class _Content(Struct, frozen=True, omit_defaults=True, rename=_IN_MATRIX):
    msgtype: str = ""
    body: str = ""
    url: str = ""
    filename: str = ""
    membership: str = ""
    info: _FileInfo = _FileInfo()
    relation: _Relation = _Relation()
    mentions: _Mentions | None = None
    new: "_Content | None" = None
    buttons: dict[str, str] = field(default_factory=dict[str, str])
    file: _EncryptedFile | None = None
    algorithm: str = ""
    ciphertext: str = ""
    session_id: str = ""


class _Event(Struct, frozen=True, omit_defaults=True):
    type: str
    sender: str
    content: _Content
    event_id: str = ""
    origin_server_ts: int = 0
    state_key: str | None = None


class _WaitingEvent(Struct, frozen=True):
    """An encrypted event without a key to it, which came at `since`."""

    room: str
    event: _Event
    since: float


class _Timeline(Struct, frozen=True):
    events: tuple[msgspec.Raw, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class _JoinedRoom(Struct, frozen=True):
    timeline: _Timeline = _Timeline()


class _InviteState(Struct, frozen=True):
    events: tuple[msgspec.Raw, ...] = ()


class _InvitedRoom(Struct, frozen=True):
    invite_state: _InviteState = _InviteState()


class _Rooms(Struct, frozen=True):
    join: dict[str, _JoinedRoom] = field(default_factory=dict[str, _JoinedRoom])
    invite: dict[str, _InvitedRoom] = field(default_factory=dict[str, _InvitedRoom])


class _ToDevice(Struct, frozen=True):
    events: tuple[dict[str, Any], ...] = ()


class _DeviceLists(Struct, frozen=True):
    changed: tuple[str, ...] = ()


class _Sync(Struct, frozen=True):
    next_batch: str
    rooms: _Rooms = _Rooms()
    to_device: _ToDevice = _ToDevice()
    device_lists: _DeviceLists = _DeviceLists()
    device_one_time_keys_count: dict[str, int] = field(default_factory=dict[str, int])


class _Page(Struct, frozen=True):
    chunk: tuple[msgspec.Raw, ...] = ()
    end: str = ""


class _Member(Struct, frozen=True):
    display_name: str | None = None


class _Members(Struct, frozen=True):
    joined: dict[str, _Member]


class _Login(Struct, frozen=True):
    user_id: str
    access_token: str = ""
    device_id: str = ""


class _Problem(Struct, frozen=True):
    errcode: str = ""
    error: str = ""
    retry_after_ms: float = 0
    soft_logout: bool = False


class _Place(Struct, frozen=True):
    """What the channel remembers: how far it has read, its login if it has a password, the rooms that are encrypted,
    and what it could not decrypt so far."""

    since: str = ""
    token: str = ""
    device: str = ""
    encrypted: frozenset[str] = frozenset()
    waiting: tuple[_WaitingEvent, ...] = ()


class _NotFound(DeliveryRefused):
    """What was asked for does not exist."""


class _Forbidden(DeliveryRefused):
    """The server knows the account, and does not let it do this."""


class MatrixChannel:
    abilities = Abilities(
        max_length=6000,
        buttons=True,
        edits=True,
        typing=True,
        max_file_bytes=MAX_FILE_BYTES,
        is_idempotent=True,
    )

    def __init__(
        self,
        setup: ChannelSetup,
        *,
        poll_s: float = POLL_S,
        grace_s: float = GRACE_S,
        page: int = PAGE,
        key_wait_s: float = KEY_WAIT_S,
    ) -> None:
        self.name = setup.name
        where, options = f"gateway.channels.{setup.name}", setup.settings.options
        self._server = str(options.get("homeserver", "")).rstrip("/")
        self._login = str(options.get("user", "")), str(options.get("password", ""))
        if not self._server.startswith(("http://", "https://")):
            raise ConfigError(f"{where}.options.homeserver is not set.", "It is like https://matrix.example.org.")
        if not setup.settings.token and not all(self._login):
            raise ConfigError(f"{where}.token is not set.", "Set it, or the options user and password.")
        self._given_token = setup.settings.token
        self._api = PlatformApi(setup.http, "The homeserver")
        self._folder = setup.folder / "files" / setup.name
        self._file = make_private_folder(setup.folder) / f"{setup.name}.json"
        self._place = self._read_place()
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._page = page
        self._key_wait_s = key_wait_s
        self._report = setup.report
        self._encryption: MatrixEncryption | None = None
        self._published = ""
        """The token with which the server was told of the keys."""

        self._waiting: list[_WaitingEvent] = []
        self._plain = set[str]()
        """Rooms that were not encrypted when the server was asked."""

        self._me = ""
        self._rooms: dict[str, dict[str, str]] = {}
        """The members of rooms with their names."""
        self._told = set[str]()
        """Encrypted rooms that were told what is missing."""

        self._edits = count(1)
        self._logging_in = asyncio.Lock()
        self._preparing = asyncio.Lock()

    def _read_place(self) -> _Place:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Place)
        except (OSError, msgspec.MsgspecError):
            return _Place()

    def _keep(self, place: _Place) -> None:
        if place != self._place:
            write_atomically(self._file, msgspec.json.encode(place))
            self._place = place

    # --- what people write ---

    async def run(self, inbox: ChannelInbox) -> None:
        try:
            await self._follow(inbox)
        finally:
            if self._encryption:
                self._encryption.close()

    async def _follow(self, inbox: ChannelInbox) -> None:
        intake = Intake(self, inbox, self._folder)
        wanted = msgspec.json.encode(_make_filter(self._page))
        while True:
            encryption = await self._prepare()
            since = self._place.since
            query = {"timeout": str(int(self._poll_s * 1000) if since else 0), "filter": wanted}
            try:
                raw = await self._call(
                    "GET",
                    f"v3/sync?{urlencode({**query, **({'since': since} if since else {})})}",
                    timeout_s=self._poll_s + self._grace_s,
                )
            except DeliveryFailed as error:
                await asyncio.sleep(error.retry_after)
                raise
            found = msgspec.json.decode(raw, type=_Sync)
            if encryption:
                from odin.gateway.channels.matrix_encryption import KeyNews

                counts = found.device_one_time_keys_count
                left = counts.get("signed_curve25519", 0) if counts else None
                encryption.receive(KeyNews(found.to_device.events, found.device_lists.changed, left))
            self._waiting = []
            for waiting in self._place.waiting:
                await self._take_encrypted(intake, waiting)
            for room, invited in found.rooms.invite.items():
                await self._answer_invitation(intake, inbox, room, invited)
            for room, joined in found.rooms.join.items():
                if since:  # else what was written before the first start
                    await self._read_room(intake, room, joined.timeline, since)
            waiting = (*self._waiting[-_MAX_WAITING:],)
            self._keep(msgspec.structs.replace(self._place, since=found.next_batch, waiting=waiting))
            if encryption:
                await encryption.maintain()

    async def _prepare(self) -> "MatrixEncryption | None":
        """Return what encrypts, if it is installed, when the server knows its keys. It forgets them at a logout."""
        async with self._preparing:
            if self._published and self._published == self._get_token():
                return self._encryption
            login = msgspec.json.decode(await self._call("GET", "v3/account/whoami"), type=_Login)
            self._me = login.user_id
            try:
                from odin.gateway.channels.matrix_encryption import MatrixEncryption
            except ImportError:
                self._report(INSTALL)
            else:
                if not login.device_id:
                    self._report("The token belongs to no device, so that encrypted rooms cannot be read.")
                elif self._encryption is None:
                    path = self._file.with_suffix(".keys.db")
                    self._encryption = MatrixEncryption(self._me, login.device_id, path, self._call, self._report)
            if self._encryption:
                await self._encryption.publish(self._make_login() if all(self._login) else None)
            self._published = self._get_token()
            return self._encryption

    async def _answer_invitation(self, intake: Intake, inbox: ChannelInbox, room: str, invited: _InvitedRoom) -> None:
        """Join a room if one who may write has invited."""
        for event in _decode(invited.invite_state.events):
            if event.type == "m.room.member" and event.state_key == self._me and event.content.membership == "invite":
                message = InboundMessage(channel=self.name, id="", sender=event.sender, chat=room)
                if await inbox.is_wanted(message):
                    with suppress(DeliveryRefused):
                        await self._call("POST", f"v3/join/{_quote(room)}", {})

    async def _read_room(self, intake: Intake, room: str, timeline: _Timeline, since: str) -> None:
        events = _decode(timeline.events)
        if timeline.limited:
            events = [*await self._read_gap(room, timeline.prev_batch, since), *events]
            self._rooms.pop(room, None)
            self._plain.discard(room)
        mine = [at for at, event in enumerate(events) if event.type == "m.room.member" and event.state_key == self._me]
        invited = [at for at in mine if events[at].content.membership == "invite"]
        for event in events[invited[-1] + 1 if invited else 0 :]:
            if event.type == "m.room.member":
                self._rooms.pop(room, None)
            elif event.type == "m.room.encryption":
                self._plain.discard(room)
            elif event.type == "m.room.encrypted" and event.sender != self._me:
                await self._take_encrypted(intake, _WaitingEvent(room, event, time.time()))
            elif event.sender != self._me:
                await self._take(intake, room, event)

    async def _read_gap(self, room: str, start: str, since: str) -> list[_Event]:
        """Return what the server has left out of a timeline: what came since then, or since the invitation."""
        found: list[_Event] = []
        for _ in range(_MAX_PAGES):
            query = urlencode({"dir": "b", "from": start, "to": since, "limit": str(self._page)})
            try:
                raw = await self._call("GET", f"v3/rooms/{_quote(room)}/messages?{query}")
            except DeliveryRefused:
                break
            page = msgspec.json.decode(raw, type=_Page)
            events = _decode(page.chunk)
            found += events
            has_begun = any(event.state_key == self._me and event.content.membership == "invite" for event in events)
            if not page.end or not page.chunk or has_begun:
                break
            start = page.end
        return found[::-1]

    async def _take_encrypted(self, intake: Intake, waiting: _WaitingEvent) -> None:
        """Take what is in an encrypted event, or keep it until there is a key to it."""
        room, event = waiting.room, waiting.event
        self._plain.discard(room)
        if self._encryption:
            found = await self._encryption.decrypt(room, msgspec.to_builtins(event))
            if opened := _decode([msgspec.json.encode(found)]) if found else []:
                await self._take(intake, room, opened[0])
                return
            if time.time() - waiting.since < self._key_wait_s:
                self._waiting.append(waiting)
                return
            self._report(f"There is no key to the message {event.event_id} from {event.sender} in {room}.")
        if room not in self._told:
            self._told.add(room)
            message = msgspec.structs.replace(await self._make_message(room, event), is_mention=True)
            await intake.take(message, refused=[_NO_KEY if self._encryption else INSTALL])

    async def _make_message(self, room: str, event: _Event) -> InboundMessage:
        members = await self._find_members(room)
        return InboundMessage(
            channel=self.name,
            account=self._me,
            id=event.event_id,
            sender=event.sender,
            sender_name=members.get(event.sender, event.sender),
            chat=room,
            is_group=len(members) > 2,
        )

    async def _take(self, intake: Intake, room: str, event: _Event) -> None:
        message = await self._make_message(room, event)
        members = await self._find_members(room)
        relation, content = event.content.relation, event.content
        if event.type == "m.reaction":
            if choice := await self._find_choice(room, relation):
                await intake.take(msgspec.structs.replace(message, choice=choice))
            return
        if relation.rel_type == "m.replace":
            content = content.new or content
            message = msgspec.structs.replace(message, edit_of=relation.event_id)
        if content.msgtype not in ("m.text", "m.emote", *_FILES, *_UNREADABLE):
            return  # such as a notice, which no program may answer
        is_file = content.msgtype in _FILES
        text = content.body if content.msgtype in ("m.text", "m.emote") else ""
        if is_file and content.filename not in ("", content.body):
            text = content.body  # a caption
        reply = relation.reply or {}
        if reply:
            text = _QUOTED_REPLY.sub("", text, count=1) if text.startswith("> ") else text
        kind = _UNREADABLE.get(content.msgtype)
        message = msgspec.structs.replace(
            message,
            is_mention=self._is_mentioned(content, members),
            text=self._strip_mention(text, members),
            reply_to=str(reply.get("event_id", "")),
        )
        refused = [f"Odin reads text, pictures and files, but no {kind}."] if kind else []
        receipt = await intake.take(message, [self._make_file(event.event_id, content)] if is_file else [], refused)
        if receipt.admission == "accepted":
            marker = {"m.fully_read": event.event_id, "m.read": event.event_id}
            with suppress(OdinError):
                await self._call("POST", f"v3/rooms/{_quote(room)}/read_markers", marker)

    async def _find_members(self, room: str) -> dict[str, str]:
        if room not in self._rooms:
            try:
                raw = await self._call("GET", f"v3/rooms/{_quote(room)}/joined_members")
            except DeliveryRefused:  # the room was left since
                return {}
            joined = msgspec.json.decode(raw, type=_Members).joined
            self._rooms[room] = {user: member.display_name or user for user, member in joined.items()}
        return self._rooms[room]

    async def _find_choice(self, room: str, relation: _Relation) -> str:
        """Return what a reaction to a message of Odin means, or ""."""
        try:
            raw = await self._call("GET", f"v3/rooms/{_quote(room)}/event/{_quote(relation.event_id)}")
        except DeliveryRefused:
            return ""
        target = next(iter(_decode([msgspec.Raw(raw)])), None)
        if target and target.type == "m.room.encrypted" and self._encryption:
            found = await self._encryption.decrypt(room, msgspec.to_builtins(target))
            target = next(iter(_decode([msgspec.json.encode(found)])), None)
        if target is None or target.sender != self._me:
            return ""
        return target.content.buttons.get(relation.key.replace(_VARIATION, ""), "")

    def _is_mentioned(self, content: _Content, members: dict[str, str]) -> bool:
        if content.mentions is not None:
            return self._me in content.mentions.user_ids
        return any(
            re.search(rf"(?i)(?<!\w){re.escape(name)}(?!\w)", content.body) for name in self._list_names(members)
        )

    def _strip_mention(self, text: str, members: dict[str, str]) -> str:
        names = "|".join(map(re.escape, self._list_names(members)))
        return re.sub(rf"(?i)^\s*@?(?:{names})(?!\w)[\s,:]*", "", text)

    def _list_names(self, members: dict[str, str]) -> list[str]:
        return [self._me, members.get(self._me, self._me)]

    def _make_file(self, event: str, content: _Content) -> RemoteFile:
        async def fetch(path: Path) -> None:
            found = _MXC.fullmatch(content.file.url if content.file else content.url)
            if found is None:
                raise FileRefused("it has no address")
            url = f"{self._server}/_matrix/client/v1/media/download/{_quote(found[1])}/{_quote(found[2])}"
            await self._api.download(url, path, self._make_headers(), limit=MAX_FILE_BYTES)
            if file := content.file:
                from odin.gateway.channels.matrix_encryption import decrypt_file

                path.write_bytes(decrypt_file(path.read_bytes(), file.key.k, file.iv, file.hashes.sha256))

        name = content.filename or content.body or "file"
        return RemoteFile(event, name, content.info.mimetype, content.info.size, fetch)

    # --- what Odin writes ---

    async def send(self, part: OutboundPart) -> str:
        shown, buttons = part.text, part.buttons[: len(_KEYS)]
        if buttons:
            shown += "\n\n" + " · ".join(f"{key} {one.label}" for key, one in zip(_KEYS, buttons, strict=False))
        content = await self._upload(part.chat, part.file) if part.file else _make_content(shown)
        if buttons:
            content[_BUTTONS] = _name_buttons(buttons)
        event = await self._put_event(part.chat, "m.room.message", part.key, content)
        for at, key in enumerate(_KEYS[: len(buttons)]):
            relation = {"rel_type": "m.annotation", "event_id": event, "key": key}
            with suppress(DeliveryRefused):  # reactions may be forbidden in a room
                await self._put_event(part.chat, "m.reaction", f"{part.key}.{at}", {"m.relates_to": relation})
        return event

    async def _upload(self, room: str, file: Media) -> dict[str, Any]:
        """Return a message with a file that is on the server now, encrypted if the room is."""
        data, kind, keys = Path(file.path).read_bytes(), file.media_type, dict[str, Any]()
        info = {"mimetype": kind, "size": len(data)}
        if await self._find_encryption(room):
            from odin.gateway.channels.matrix_encryption import encrypt_file

            (data, keys), kind = encrypt_file(data), "application/octet-stream"
        raw = await self._call("POST", "media/v3/upload", data, kind=kind, timeout_s=DOWNLOAD_S)
        url = msgspec.json.decode(raw, type=dict[str, str])["content_uri"]
        return {
            "msgtype": "m.image" if file.media_type.startswith("image/") else "m.file",
            "body": file.name,
            "filename": file.name,
            "info": info,
            "m.mentions": {},
            **({"file": {**keys, "url": url}} if keys else {"url": url}),
        }

    async def edit(self, chat: str, message: str, text: str) -> None:
        content = _make_content(text)
        content |= {
            "m.new_content": dict(content),
            "m.relates_to": {"rel_type": "m.replace", "event_id": message},
            "body": f"* {text}",
        }
        loop = asyncio.get_running_loop()
        await self._put_event(chat, "m.room.message", f"edit.{loop.time()}.{next(self._edits)}", content)

    async def show_typing(self, chat: str) -> None:
        path = f"v3/rooms/{_quote(chat)}/typing/{_quote(self._me)}"
        await self._call("PUT", path, {"typing": True, "timeout": TYPING_MS})

    async def _put_event(self, room: str, kind: str, key: str, content: dict[str, Any]) -> str:
        # Reactions are not encrypted by any client.
        is_open = kind == "m.reaction" or content["body"] == INSTALL
        if not is_open and (encryption := await self._find_encryption(room)):
            content = await encryption.encrypt(room, await self._find_members(room), kind, content)
            kind = "m.room.encrypted"
        path = f"v3/rooms/{_quote(room)}/send/{kind}/{_quote(f'odin.{key}')}"
        raw = await self._call("PUT", path, content)
        return msgspec.json.decode(raw, type=dict[str, str])["event_id"]

    async def _find_encryption(self, room: str) -> "MatrixEncryption | None":
        """Return what encrypts for a room, None if it is not encrypted. Raise DeliveryRefused if that is missing."""
        encryption = await self._prepare()
        if not await self._is_encrypted(room):
            return None
        if encryption is None:
            raise DeliveryRefused(f"The room is encrypted. {INSTALL}")
        return encryption

    async def _is_encrypted(self, room: str) -> bool:
        """Return whether a room is encrypted. One that was stays so, whatever the server says."""
        if room not in self._place.encrypted and room not in self._plain:
            try:
                await self._call("GET", f"v3/rooms/{_quote(room)}/state/m.room.encryption")
            except _NotFound:
                self._plain.add(room)
            else:
                self._keep(msgspec.structs.replace(self._place, encrypted=self._place.encrypted | {room}))
        return room in self._place.encrypted

    # --- the API ---

    def _get_token(self) -> str:
        return self._given_token or self._place.token

    def _make_login(self) -> dict[str, Any]:
        user, password = self._login
        return {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": user},
            "password": password,
        }

    def _make_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._get_token()}"}

    async def _call(
        self, method: str, path: str, body: object = None, *, kind: str = "", timeout_s: float = TIMEOUT_S
    ) -> bytes:
        """Return the reply to a request with the token. If that has expired, log in again, with a password.

        `kind` is the media type of a body that is bytes.
        """
        more = {"content-type": kind} if kind else {}
        if not self._given_token and not self._place.token:
            await self._log_in("")
        used = self._get_token()
        try:
            return await self._request(method, path, body, {**self._make_headers(), **more}, timeout_s)
        except TokenRefused:
            if self._given_token:
                raise
        await self._log_in(used)
        return await self._request(method, path, body, {**self._make_headers(), **more}, timeout_s)

    async def _log_in(self, refused: str) -> None:
        """Get a token for the password, once for all who need one instead of the `refused` one."""
        async with self._logging_in:
            if self._place.token != refused:
                return
            body = {
                **self._make_login(),
                "initial_device_display_name": "Odin",
                **({"device_id": self._place.device} if self._place.device else {}),
            }
            try:
                raw = await self._request("POST", "v3/login", body, {}, TIMEOUT_S)
            except _Forbidden as error:
                raise TokenRefused(f"The homeserver does not accept the user and password ({error}).") from error
            login = msgspec.json.decode(raw, type=_Login)
            self._keep(msgspec.structs.replace(self._place, token=login.access_token, device=login.device_id))

    async def _request(self, method: str, path: str, body: object, headers: dict[str, str], timeout_s: float) -> bytes:
        url = f"{self._server}/_matrix/{path if path.startswith('media/') else f'client/{path}'}"
        reply = await self._api.request(method, url, headers, body, timeout=timeout_s)
        if reply.status == 200:
            return reply.content
        try:
            problem = msgspec.json.decode(reply.content, type=_Problem)
        except msgspec.MsgspecError:
            problem = _Problem()
        said = clip(f"The homeserver answered with {reply.status}: {problem.error or 'no reason given'}", 300)
        if reply.status == 401 and problem.errcode in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"):
            hint = f"Set gateway.channels.{self.name}.token, or the options user and password."
            raise TokenRefused(f"The homeserver does not accept the token. {hint}")
        if reply.status == 429:
            raise DeliveryFailed(said, problem.retry_after_ms / 1000 or reply.wait_s)
        if reply.status == 403:
            raise _Forbidden(said)
        if reply.status == 404:
            raise _NotFound(said)
        if 400 <= reply.status < 500:
            raise DeliveryRefused(said)
        raise DeliveryFailed(said)


def _make_filter(page: int) -> dict[str, Any]:
    """Return what the server is to send: messages, reactions and who comes and goes."""
    none: dict[str, list[str]] = {"types": []}
    events = ["m.room.message", "m.room.encrypted", "m.room.encryption", "m.room.member", "m.reaction"]
    room = {"account_data": none, "ephemeral": none, "state": none, "timeline": {"limit": page, "types": events}}
    return {"presence": none, "account_data": none, "room": room}


def _decode(events: Any) -> list[_Event]:
    """Return the events that can be understood; some have content of any form."""
    found: list[_Event] = []
    for raw in events:
        with suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(raw, type=_Event))
    return found


def _name_buttons(buttons: tuple[Button, ...]) -> dict[str, str]:
    return {key.replace(_VARIATION, ""): one.data for key, one in zip(_KEYS, buttons, strict=False)}


def _make_content(text: str) -> dict[str, Any]:
    """Return a message with its Markdown as HTML, if there is any and it fits into an event."""
    from markdown_it import MarkdownIt

    content: dict[str, Any] = {"msgtype": "m.text", "body": text, "m.mentions": {}}
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    html = parser.disable(["html_block", "html_inline", "image"]).render(text).strip()
    formatted = content | {"format": "org.matrix.custom.html", "formatted_body": html}
    is_plain = html == f"<p>{text}</p>"
    return content if is_plain or len(msgspec.json.encode(formatted)) > _MAX_EVENT_BYTES else formatted


def _quote(text: str) -> str:
    return quote_url(text, safe="")
