"""Slash commands in chats: those of the gateway, and some of plain mode, in the session of the chat."""

import io
import os
import shlex
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from odin.app.workspace import make_workspace
from odin.core.errors import UsageError
from odin.core.slash_commands import find_slash_command
from odin.gateway.channel import InboundMessage, SenderRight
from odin.gateway.session import ChatServices, ChatSession
from odin.gateway.store import Chat, GatewayStore
from odin.host.workspace_sessions import WorkspaceSessions
from odin.ui.plain.commands import PlainCommands
from odin.ui.slash_commands.actions import resolve_synonym
from odin.ui.slash_commands.extensions import make_skill_prompt

_OWN = {
    "help": "show this list",
    "clear": "start a new conversation",
    "stop": "stop what is running",
    "btw": "ask something beside the conversation: /btw QUESTION",
    "show": "show the model, the mode or the channel: /show model|mode|channel",
    "list": "list models, channels or tools: /list models|channels|tools",
    "switch": "use another model: /switch model to NAME",
    "context": "show what fills the context window",
    "forget": "remove the last message from the conversation",
    "use": "use a skill: /use SKILL [TEXT]",
    "subagents": "list the sub-agents",
    "reload": "read settings, skills and instruction files again",
    "bind": "work in a folder, with your approval: /bind [CHANNEL:CHAT] FOLDER [ROLE]",
    "unbind": "only answer questions again",
}
_OF_PLAIN_MODE = frozenset(
    (
        *("show", "list", "switch", "context", "forget", "agents", "model", "models", "role", "skills", "memory"),
        *("usage", "status", "undo", "redo", "effort"),
    )
)
_SYNONYMS = {"new": "clear", "subagents": "agents"}
_FOR_SENDERS = ("help", "clear", "stop", "btw")
_IMMEDIATE = frozenset(("help", "stop", "btw", "show", "list", "switch", "context", "agents", "usage", "status"))
_BIND_USAGE = "Usage: /bind [CHANNEL:CHAT] FOLDER [ROLE]"


class ChatCommand(Struct, frozen=True):
    name: str
    rest: str

    @property
    def is_immediate(self) -> bool:
        """True if it is carried out while a turn runs."""
        return self.name in _IMMEDIATE


def parse_command(message: InboundMessage, right: SenderRight) -> ChatCommand | None:
    """Return the command that a message is; None if it is a prompt. In groups, only owners give commands."""
    if not message.text.startswith("/") or message.origin or (message.is_group and right != "owner"):
        return None
    word, _, rest = message.text.strip().partition(" ")
    name = word[1:].casefold()
    name = _SYNONYMS.get(name, name)
    known = find_slash_command(name)
    if name not in _OWN and name not in _SYNONYMS.values() and known is None:
        return None
    name = known.name if known is not None and name not in _OWN else name
    return ChatCommand(name, rest.strip()) if right == "owner" or name in _FOR_SENDERS else None


class ChatHolder(Protocol):
    """The worker of a chat, as its commands see it."""

    async def read_chat(self) -> Chat: ...

    async def open_session(self) -> ChatSession: ...

    async def leave_session(self) -> None:
        """Close the session. The next message opens that which is stored for the chat then."""
        ...

    async def interrupt(self) -> bool: ...


class ChatCommands:
    """The commands of one chat."""

    def __init__(self, services: ChatServices, holder: ChatHolder) -> None:
        self._services = services
        self._holder = holder

    async def run(self, command: ChatCommand, message: InboundMessage, right: SenderRight) -> str | InboundMessage:
        """Carry out a command. Return what to say, or the message to be answered instead. Raise UsageError."""
        name, rest = command.name, command.rest
        self._services.log.write("command", message.channel, message.chat, note=f"/{name}")
        if name == "help":
            shown = [f"/{word}: {about}" for word, about in _OWN.items() if right == "owner" or word in _FOR_SENDERS]
            return "\n".join(shown)
        if name == "stop":
            return "" if await self._holder.interrupt() else "Nothing is running."
        if name == "clear":
            await self._change_chat(session="", cursor=-1, counted_usd=0.0)
            return "A new conversation begins."
        if name == "reload":
            await self._holder.leave_session()
            return "Settings, skills and instruction files are read again with the next message."
        if name == "bind":
            return await self._bind(rest, message)
        if name == "unbind":
            await self._change_chat(owner="", folder="", role="", session="", cursor=-1, counted_usd=0.0)
            return "This chat is bound to no folder any more."
        if (name, rest) in (("show", "channel"), ("list", "channels")):
            return f"Channel: {message.channel}" if name == "show" else "\n".join(self._services.channels)
        if name == "use":
            client = (await self._holder.open_session()).client
            return replace(message, text=await make_skill_prompt(client, rest))
        return await self._run_plain(name, rest)

    async def _change_chat(self, **changes: str | float) -> Chat:
        """Close the session and store the chat with other values."""
        await self._holder.leave_session()
        chat = replace(await self._holder.read_chat(), **changes)
        await self._services.db.run(GatewayStore.save_chat, chat)
        return chat

    async def _bind(self, rest: str, message: InboundMessage) -> str:
        """Bind this chat, or another one, to a folder. The sender is its owner."""
        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise UsageError(f"{rest!r} cannot be read: {error}.", _BIND_USAGE) from error
        channel, _, chat = words[0].partition(":") if words else ("", "", "")
        is_other = bool(chat) and channel in self._services.channels
        place, words = (words[0], words[1:]) if is_other else ("", words)
        if not 1 <= len(words) <= 2:
            raise UsageError("/bind needs a folder.", _BIND_USAGE)
        folder = Path(self._services.environment.expand_home(words[0]))
        if not folder.is_absolute() or not folder.is_dir():
            raise UsageError(f"There is no folder {words[0]!r}.", "Give its whole path, or one that begins with `~/`.")
        role = words[1] if len(words) == 2 else ""
        bound = {"owner": message.sender, "folder": os.path.realpath(folder), "role": role}
        fresh = {"session": "", "cursor": -1, "counted_usd": 0.0}
        if is_other:
            stored = await self._services.db.run(GatewayStore.get_chat, channel, chat)
            await self._services.db.run(GatewayStore.save_chat, replace(stored, **bound, **fresh))
        else:
            await self._change_chat(**bound, **fresh)
        self._services.log.write("bound", message.channel, message.chat, note=f"{place} {bound['folder']}".strip())
        where = f"{place} works" if is_other else "This chat works"
        return f"{where} in {bound['folder']} now. Owners are asked here before anything is changed that needs it."

    async def _run_plain(self, name: str, rest: str) -> str:
        """Run a command of plain mode. What it sets holds for this chat only."""
        name, rest = resolve_synonym(name, rest)
        if name not in _OF_PLAIN_MODE:
            hint = "Ask for it in your own words." if name in ("loop", "at") else "/help lists what does."
            raise UsageError(f"/{name} does not work in a chat.", hint)
        if name in ("model", "effort") and rest and "--session" not in rest.split():
            rest = f"{rest} --session"
        session = await self._holder.open_session()
        options = self._services.make_options(session.chat)
        workspace = make_workspace(options)
        services = self._services.manager, workspace.store, options, workspace.environment
        out, info = io.StringIO(), await session.client.get_info()
        mode = "edit_mode" if session.chat.owner else "ask_mode"
        await PlainCommands(WorkspaceSessions(*services, session.client), info, mode, out, lambda: None).run(name, rest)
        return out.getvalue().strip()
