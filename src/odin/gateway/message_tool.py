"""The tool `message`: the model sends something to the chat before its answer, or to another chat."""

import mimetypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from odin.core.format import format_size, pluralize
from odin.core.path_names import is_secret_path
from odin.core.tool import Args, Target, ToolContext, ToolOutput, fail
from odin.gateway.channel import Channel, Media
from odin.gateway.channels.intake import MAX_FILE_BYTES, MAX_FILES
from odin.gateway.outbox import Outbox
from odin.gateway.parts import split_text
from odin.gateway.store import Chat, GatewayStore, NewPart, StoreThread
from odin.tools.files import FileTool, Refusal, find_resolved_path, open_regular, read_whole


class MessageArgs(Args, frozen=True):
    """`channel` and `chat_id` name another chat; without them it is this one."""

    content: str = ""
    files: Annotated[tuple[str, ...], Meta(description="Paths of files to send with it.")] = ()
    channel: str = ""
    chat_id: str = ""


class MessageTool(FileTool[MessageArgs]):
    """Sends a message to the chat of this conversation, for example before long work, or files. If you use it, your
    final answer is not sent as well, so say with it everything that the chat should know. With `channel` and `chat_id`
    it goes to another chat, if the owner has bound this one."""

    name = "message"
    kind = "read"
    short = "Sends a message or files to the chat."
    args = MessageArgs
    exclusive = True

    def __init__(self, db: StoreThread, outbox: Outbox, channels: Mapping[str, Channel]) -> None:
        self.place: Callable[[], Chat]
        self.answers: Callable[[], str]
        self.on_sent: Callable[[], None]
        self._db = db
        self._outbox = outbox
        self._channels = channels

    def get_target(self, args: MessageArgs) -> Target:
        return Target(paths=args.files)

    def get_title(self, args: MessageArgs) -> str:
        return f"send {', '.join(args.files)}" if args.files else ""

    def validate(self, args: MessageArgs) -> str:
        if not args.content.strip() and not args.files:
            return "The content is empty."
        if len(args.files) > MAX_FILES:
            return f"A message takes at most {MAX_FILES} files."
        return ""

    async def work(self, args: MessageArgs, ctx: ToolContext) -> ToolOutput:
        here = self.place()
        channel, chat = args.channel or here.channel, args.chat_id or here.chat
        if args.channel not in ("", here.channel) and not args.chat_id:
            return fail("Name the chat_id as well.")
        is_here = (channel, chat) == (here.channel, here.chat)
        if not is_here:
            if not here.owner:
                return fail("Only a chat that its owner has bound may send to others.")
            known = await self._db.run(GatewayStore.list_chats)
            if channel not in self._channels or (channel, chat) not in {(item.channel, item.chat) for item in known}:
                names = ", ".join(f"{item.channel}:{item.chat}" for item in known[:20])
                return fail(f"There is no chat {channel}:{chat}. Known chats: {names}.")
        answers = self.answers() if is_here else ""
        key = f"{ctx.session}.{ctx.call_id}"
        texts = split_text(args.content, self._channels[channel].abilities.max_length)
        parts = [NewPart(f"{key}.{at}", channel, chat, text, answers) for at, text in enumerate(texts)]
        contents: dict[str, bytes] = {}
        for path in args.files:
            name = Path(path).name
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            part = NewPart(f"{key}.{len(parts)}", channel, chat, name, answers, file=Media("", name, kind))
            contents[part.key] = _read(path, ctx)
            parts.append(part)
        if not await self._db.run(GatewayStore.add_parts, parts, contents):
            return fail("It was not sent: another message has the id of this call. Call the tool again.")
        self._outbox.wake()
        if is_here and not ctx.agent:
            self.on_sent()
        sent = f" with {pluralize(len(args.files), 'file')}" if args.files else ""
        return ToolOutput(f"Sent to {channel}:{chat}{sent}.", note=f"message to {channel}:{chat}{sent}")


def _read(path: str, ctx: ToolContext) -> bytes:
    """Return the content of a file that may be sent. Raise Refusal."""
    place = find_resolved_path(path, ctx)
    if any(map(is_secret_path, (path, place.shown, place.path))):
        raise Refusal(f"{place.shown} may contain secrets, and is never sent.")
    file, info = open_regular(place, ctx.cwd)
    with file:
        content = read_whole(file, info) if info.st_size <= MAX_FILE_BYTES else None
    if content is None or len(content) > MAX_FILE_BYTES:
        size = format_size(info.st_size)
        raise Refusal(f"{place.shown} has {size}, and at most {format_size(MAX_FILE_BYTES)} are sent.")
    if not content:
        raise Refusal(f"{place.shown} is empty.")
    return content
