"""Who may write to the gateway: senders that the settings name, those who were paired, and nobody else."""

from collections.abc import Mapping

from msgspec.structs import replace

from odin.config.gateway_settings import ChannelSettings
from odin.core.errors import UsageError
from odin.gateway.channel import Channel, InboundMessage, SenderRight
from odin.gateway.chat_commands import parse_command
from odin.gateway.store import Chat, GatewayStore, StoreThread
from odin.server.guard import TooManyRequests
from odin.server.pairing_codes import CodeAttempts, read_code

_PAIR = "/pair"


class SenderAccess:
    def __init__(
        self, db: StoreThread, channels: Mapping[str, Channel], settings: Mapping[str, ChannelSettings]
    ) -> None:
        self._db = db
        self._channels = channels
        self._settings = settings
        self._attempts = CodeAttempts()

    async def find_right(self, message: InboundMessage) -> SenderRight:
        """Return what the sender of a message may do now."""
        if (origin := message.origin) is not None:
            made_by_sender = replace(message, sender=origin.maker, origin=None)
            is_allowed = not origin.maker or await self.find_right(made_by_sender)
            return origin.right if is_allowed else ""
        settings = self._settings.get(message.channel, ChannelSettings())
        if message.sender in settings.owners:
            return "owner"
        paired = await self._db.run(GatewayStore.get_right, message.channel, message.sender)
        listed: SenderRight = "sender" if message.sender in settings.allow_from else ""
        return paired or listed or self._channels[message.channel].abilities.right

    async def is_answered(self, message: InboundMessage, right: SenderRight) -> bool:
        """Return whether a message is for Odin. In a group it must be mentioned, and the owner must want it there."""
        if not message.is_group:
            return True
        if not message.is_mention and not message.choice:
            return False
        groups = self._settings.get(message.channel, ChannelSettings()).groups
        if message.chat in groups or message.chat.partition("/")[0] in groups:  # `GROUP/THREAD`
            return True
        chat: Chat = await self._db.run(GatewayStore.get_chat, message.channel, message.chat)
        command = parse_command(message, right)
        return bool(chat.owner) or (command is not None and command.name == "bind")

    async def pair(self, message: InboundMessage) -> str:
        """Let a stranger in who writes a code in a direct chat, or give a code to one who writes `/pair`.

        Return what to say, or "": all other messages of strangers get no answer, and cost nothing.
        """
        text, name = message.text.strip(), message.sender_name
        asks = text.casefold() == _PAIR
        code = read_code(text.removeprefix(_PAIR))
        if message.is_group or not (asks or code):
            return ""
        try:
            self._attempts.take(f"{message.channel}:{message.sender}")
            if asks:
                shown = await self._db.run(GatewayStore.create_code, "sender", message.channel, message.sender, name)
                return f"Run this on the computer, within an hour:\n\n`odin gateway pair {shown}`"
        except (TooManyRequests, UsageError):
            return ""
        paired = await self._db.run(GatewayStore.redeem, code, message.channel, message.sender, name)
        if paired is None:
            return ""
        return "You are paired. Write what you want to know; /help shows more."
