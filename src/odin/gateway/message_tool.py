"""The tool `message`: the model sends something to the chat before its answer, or to another chat."""

from collections.abc import Callable, Mapping

from odin.core.tool import Args, Tool, ToolContext, ToolOutput, fail
from odin.gateway.channel import Channel
from odin.gateway.outbox import Outbox
from odin.gateway.parts import split_text
from odin.gateway.store import Chat, GatewayStore, NewPart, StoreThread


class MessageArgs(Args, frozen=True):
    """`channel` and `chat_id` name another chat; without them it is this one."""

    content: str
    channel: str = ""
    chat_id: str = ""


class MessageTool(Tool[MessageArgs]):
    """Sends a message to the chat of this conversation, for example before long work. If you use it, your final answer
    is not sent as well, so say with it everything that the chat should know. With `channel` and `chat_id` it goes to
    another chat, if the owner has bound this one."""

    name = "message"
    kind = "interactive"
    short = "Sends a message to the chat."
    args = MessageArgs

    def __init__(self, db: StoreThread, outbox: Outbox, channels: Mapping[str, Channel]) -> None:
        self.place: Callable[[], Chat]
        self.on_sent: Callable[[], None]
        self._db = db
        self._outbox = outbox
        self._channels = channels

    async def run(self, args: MessageArgs, ctx: ToolContext) -> ToolOutput:
        here = self.place()
        channel, chat = args.channel or here.channel, args.chat_id or here.chat
        if args.channel not in ("", here.channel) and not args.chat_id:
            return fail("Name the chat_id as well.")
        if not args.content.strip():
            return fail("The content is empty.")
        is_here = (channel, chat) == (here.channel, here.chat)
        if not is_here:
            if not here.owner:
                return fail("Only a chat that its owner has bound may send to others.")
            known = await self._db.run(GatewayStore.list_chats)
            if channel not in self._channels or (channel, chat) not in {(item.channel, item.chat) for item in known}:
                names = ", ".join(f"{item.channel}:{item.chat}" for item in known[:20])
                return fail(f"There is no chat {channel}:{chat}. Known chats: {names}.")
        texts = split_text(args.content, self._channels[channel].abilities.max_length)
        key = f"{ctx.session}.{ctx.call_id}"
        parts = [NewPart(f"{key}.{at}", channel, chat, text) for at, text in enumerate(texts)]
        await self._db.run(GatewayStore.add_parts, parts)
        self._outbox.wake()
        if is_here and not ctx.agent:
            self.on_sent()
        return ToolOutput(f"Sent to {channel}:{chat}.", note=f"message to {channel}:{chat}")
