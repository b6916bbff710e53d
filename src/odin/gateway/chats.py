"""Answers the messages of chats: each chat in its order, with a session of its own, and all chats at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec.structs import replace

from odin.core.client import is_session_busy
from odin.core.errors import OdinError, SessionLocked, UsageError
from odin.core.format import format_usd
from odin.core.op import Interrupt, Prompt
from odin.gateway.channel import InboundMessage, InboxFull, SenderRight
from odin.gateway.chat_commands import ChatCommands, parse_command
from odin.gateway.outbox import describe_error
from odin.gateway.prompt_text import make_prompt
from odin.gateway.session import ChatServices, ChatSession
from odin.gateway.store import (
    MAX_ATTEMPTS,
    MAX_WAITING,
    Chat,
    DuePart,
    GatewayStore,
    InboxMessage,
    MessageKind,
    make_key,
)
from odin.ui.slash_commands.actions import refuse_unknown_command

FindRight = Callable[[InboundMessage], Awaitable[SenderRight]]
"""Tells what the sender of a message may do now."""

LOCKED_S = 5.0
"""How long a message waits while another process has the session of its chat open."""


class ChatWorker:
    """Answers the messages of one chat until none is left for a while. `is_over`: it will answer no more."""

    def __init__(self, services: ChatServices, channel: str, chat: str, find_right: FindRight) -> None:
        self.channel = channel
        self.chat = chat
        self.made_room = asyncio.Event()
        self._services = services
        self._find_right = find_right
        self._session: ChatSession | None = None
        self._opening = asyncio.Lock()
        self._work = asyncio.Event()
        self._work.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands = ChatCommands(services, self)

    @property
    def name(self) -> str:
        return f"{self.channel}:{self.chat}"

    @property
    def is_idle(self) -> bool:
        return not self._work.is_set() and not self._tasks

    def wake(self) -> None:
        self._work.set()

    async def run(self) -> None:
        """Answer messages; return when there were none for a while and nothing goes on in the session."""
        try:
            await self._run()
        except Exception:
            await self.leave_session()
            raise

    async def _run(self) -> None:
        while True:
            self._work.clear()
            stored = await self._services.db.run(GatewayStore.claim_next, self.channel, self.chat)
            if stored is not None:
                await self._process(stored)
                self._work.set()
                self.made_room.set()
                continue
            try:
                async with asyncio.timeout(self._services.settings.idle_s):
                    await self._work.wait()
            except TimeoutError:
                if self._session is not None and await is_session_busy(self._session.client):
                    continue
                if self.is_idle:
                    await self.leave_session()
                if self.is_idle:  # nothing came meanwhile
                    return

    async def _process(self, stored: InboxMessage) -> None:
        """Answer a message. Whatever fails is told to the chat, and the next message is answered."""
        chat = await self.read_chat()
        try:
            await self._answer(stored, chat)
        except SessionLocked as error:
            self._services.log.write("waits", self.channel, self.chat, stored.key, error.describe())
            await self._services.db.run(GatewayStore.change_attempts, stored.key, -1)
            await asyncio.sleep(LOCKED_S)
        except Exception as error:  # one message must not stop the others
            why = self._services.log.redact(describe_error(error))
            self._services.log.write("failed", self.channel, self.chat, stored.key, why)
            await self.reply(stored, f"Error processing message: {why}", error=why)
            if not isinstance(error, OdinError):
                await self.leave_session()

    async def _answer(self, stored: InboxMessage, chat: Chat) -> None:
        message = stored.message
        right = await self._find_right(message)
        if not right:
            await self.reply(stored, "")
            return
        if stored.attempts > MAX_ATTEMPTS:
            raise OdinError(f"It was tried {MAX_ATTEMPTS} times, and Odin ended each time.")
        try:
            if command := parse_command(message, right):
                said = await self._commands.run(command, message, right)
                if isinstance(said, str):
                    await self.reply(stored, said)
                    return
                stored = replace(stored, message=said)
            elif right == "owner" and message.origin is None and message.text.startswith("/"):
                await refuse_unknown_command((await self.open_session()).client, message.text)
        except UsageError as error:
            await self.reply(stored, error.describe())
            return
        limit = self._services.get_daily_budget(self.channel)
        if limit and await self._services.db.run(GatewayStore.get_cost_today, self.channel, self.chat) >= limit:
            await self.reply(stored, f"The budget of this chat for today, {format_usd(limit)}, is used up.")
            return
        self._services.log.write("turn", self.channel, self.chat, stored.key)
        prompt = make_prompt(stored, right, can_edit=bool(chat.owner))
        if message.options.history:
            session = await self.open_session()
            await session.answer(prompt)
        else:
            # In a session of its own, whose id is the key, so that it is found again.
            alone = replace(chat, session=stored.key, owner="", cursor=-1, counted_usd=0.0)
            session = await ChatSession.open(self._services, alone, options=message.options, new_id=stored.key)
            await self._answer_in(session, replace(prompt, mode="ask_mode"))

    async def answer_aside(self, key: str, message: InboundMessage, right: SenderRight) -> None:
        """Answer a question in a copy of the session, which goes on meanwhile and does not know of it."""
        chat = await self.read_chat()
        prompt = make_prompt(InboxMessage(key, message, 1), right, can_edit=False)
        session = await ChatSession.open(self._services, replace(chat, owner=""), forks=True)
        await self._answer_in(session, prompt)

    async def _answer_in(self, session: ChatSession, prompt: Prompt) -> None:
        try:
            await session.answer(prompt)
        finally:
            await session.close()

    async def reply(self, stored: InboxMessage, text: str, error: str = "") -> None:
        """Say something that no model has said, and be done with the message."""
        chat = await self.read_chat()
        text = text if stored.message.options.send else ""
        parts = self._services.make_parts(chat, f"{stored.key}.said", text, stored.key)
        await self._services.db.run(GatewayStore.finish, chat, parts, done=(stored.key,), error=error)
        self._services.outbox.wake()

    # --- the session ---

    async def read_chat(self) -> Chat:
        return await self._services.db.run(GatewayStore.get_chat, self.channel, self.chat)

    @property
    def session(self) -> ChatSession | None:
        return self._session

    async def open_session(self) -> ChatSession:
        """Return the open session of the chat."""
        async with self._opening:
            if self._session is not None and self._session.is_over:
                await self.leave_session()
            if self._session is None:
                chat = await self.read_chat()
                self._session = await ChatSession.open(self._services, chat)
                if self._session.chat.session != chat.session:
                    await self._services.db.run(GatewayStore.save_chat, self._session.chat)
            return self._session

    async def leave_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # --- what is done at once, also while a turn runs ---

    def choose_kind(self, message: InboundMessage, right: SenderRight, *, approves: bool) -> MessageKind:
        """Return how a message is handled: in its turn, or at once."""
        command = parse_command(message, right)
        if message.choice or (command is not None and command.is_immediate):
            return "control"
        if self._session is not None and right == "owner":
            request = self._session.find_request() if approves and not message.is_group else None
            if request is not None and command is None and request.takes(message.text):
                return "control"
        return "prompt"

    def start_control(self, stored: InboxMessage, right: SenderRight) -> None:
        action = self.steer if stored.message.edit_of else self._control
        task = asyncio.create_task(action(stored, right))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _control(self, stored: InboxMessage, right: SenderRight) -> None:
        message = stored.message
        try:
            if command := parse_command(message, right):
                if command.name == "btw":
                    question = replace(message, text=command.rest)
                    await self.answer_aside(stored.key, question, right)
                    return
                said = await self._commands.run(command, message, right)
                await self.reply(stored, said if isinstance(said, str) else "")
            else:
                await self.reply(stored, await self._answer_request(message, right))
        except Exception as error:  # a bug must not stop the chat
            await self.reply(stored, self._services.log.redact(describe_error(error)))

    async def _answer_request(self, message: InboundMessage, right: SenderRight) -> str:
        """Answer what the session asks. Return what to say if that is not possible."""
        if right != "owner" or not self._services.channels[self.channel].abilities.approves:
            self._services.log.write("ignored", self.channel, self.chat, note=f"an answer of {message.sender}")
            return ""
        session = self._session
        ask, _, choice = message.choice.partition("=")
        request = session.find_request(ask) if session is not None and (ask or not message.choice) else None
        if session is None or request is None:
            return "This is no longer open."
        try:
            answer = request.press(choice) if message.choice else request.read(message.text)
        except UsageError as error:
            return error.describe()
        who = f"{message.sender_name or message.sender} on {self.channel}"
        return "" if await session.give_answer(answer, who) else "This was answered already."

    async def interrupt(self) -> bool:
        return self._session is not None and await self._session.client.submit(Interrupt())

    async def steer(self, stored: InboxMessage, right: SenderRight) -> None:
        """Tell the running turn that its message was edited. Does nothing if another one is being answered."""
        message, session = stored.message, self._session
        key = make_key(message.channel, message.account, message.edit_of)
        edited = await self._services.db.run(GatewayStore.read_message, key)
        if edited is None or edited.message.sender != message.sender:
            return
        if session is not None and session.running == key:
            chat = await self.read_chat()
            with suppress(OdinError):  # then it is answered in its turn
                await session.steer(make_prompt(stored, right, can_edit=bool(chat.owner)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.leave_session()


class Chats:
    """The workers of all chats that have something to answer, or an open session."""

    def __init__(self, services: ChatServices, find_right: FindRight) -> None:
        self._services = services
        self._find_right = find_right
        self._workers: dict[tuple[str, str], tuple[ChatWorker, asyncio.Task[None]]] = {}

    def get(self, channel: str, chat: str) -> ChatWorker:
        """Return the worker of a chat, which runs."""
        place = channel, chat
        if place not in self._workers or self._workers[place][1].done():
            worker = ChatWorker(self._services, channel, chat, self._find_right)
            task = asyncio.create_task(worker.run())
            self._workers[place] = worker, task
            task.add_done_callback(lambda task: self._note_end(place, task))
        return self._workers[place][0]

    def _note_end(self, place: tuple[str, str], task: asyncio.Task[None]) -> None:
        """Forget a worker that has ended. After an error, such as a full disk, another one tries again."""
        if self._workers[place][1] is task:
            del self._workers[place]
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._services.log.write("failed", *place, note=describe_error(error))
            asyncio.get_running_loop().call_later(LOCKED_S, self.get, *place)

    def note_sent(self, part: DuePart) -> None:
        known = self._workers.get((part.channel, part.chat))
        if known is not None and (session := known[0].session) is not None:
            session.note_sent(part.key)

    async def take(self, message: InboundMessage, right: SenderRight, *, wait: bool) -> tuple[str, str]:
        """Store a message and see to its answer. Return its key and `accepted` or `duplicate`.

        While too many messages of the chat wait, this waits, too, or raises InboxFull.
        """
        approves = self._services.channels[message.channel].abilities.approves
        while True:
            worker = self.get(message.channel, message.chat)
            kind = worker.choose_kind(message, right, approves=approves)
            worker.made_room.clear()
            key, outcome = await self._services.db.run(GatewayStore.add_message, message, kind)
            if outcome != "full":
                break
            if not wait:
                raise InboxFull(f"{MAX_WAITING} messages of this chat wait to be answered.", "Try again later.")
            await worker.made_room.wait()
        if outcome == "accepted":
            worker = self.get(message.channel, message.chat)
            if kind == "control" or message.edit_of:
                worker.start_control(InboxMessage(key, message, 1), right)
            worker.wake()
        return key, outcome

    async def close(self) -> None:
        """Stop all turns. The next gateway goes on with them."""
        running = list(self._workers.values())
        for _, task in running:
            task.cancel()
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker, _ in running))
