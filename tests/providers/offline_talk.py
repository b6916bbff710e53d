"""A conversation with the offline planner over real tools in a real folder: a minimal engine loop."""

from pathlib import Path
from typing import Any

from odin.config.paths import make_environment
from odin.context.file_cache import FileCache
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.core.provider import ReplyBuilder, Request
from odin.core.tool import Tool, ToolContext
from odin.providers.offline import OfflinePlanner
from odin.sandbox.runner import ProcessRunner
from odin.tools import ToolDeps, build_standard_tools

MAX_STEPS = 80


class Talk:
    """`calls` are the calls of the last prompt, `refusals` maps names of tools to results that replace a run."""

    def __init__(self, folder: Path, mode: str = "edit") -> None:
        self.folder = folder
        self.mode = mode
        self.runner = ProcessRunner(
            make_environment(cwd="/"), folder.parent / "spill", term_grace=0.3, cancel_grace=0.2, linger=0.1
        )
        self.tools: dict[str, Tool[Any]] = {
            tool.name: tool for tool in build_standard_tools(ToolDeps(FileCache(), self.runner, root=str(folder)))
        }
        self.refusals: dict[str, str] = {}
        self.messages: list[Message] = []
        self.calls: list[ToolCall] = []

    def write(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_bytes().decode()

    def request(self) -> Request:
        offered = [tool.build_spec() for tool in self.tools.values() if self.mode == "edit" or tool.kind != "edit"]
        system = ("You are Odin.", f"# Mode: {self.mode}\nDo it.")
        return Request("planner", tuple(self.messages), system, tuple(offered))

    async def say(self, prompt: str) -> str:
        """Send a prompt, run the calls of each reply, and return the final answer."""
        notes = () if self.messages else (f"Working directory: {self.folder}\nPlatform: linux",)
        self.messages.append(PromptMessage(prompt, notes))
        self.calls = []
        for _ in range(MAX_STEPS):
            message = await self._reply()
            self.messages.append(message)
            if not message.calls:
                return message.text
            self.calls += message.calls
            results = [await self._run(call) for call in message.calls]
            self.messages.append(ToolMessage(tuple(results)))
        raise AssertionError(f"no answer to {prompt!r} after {MAX_STEPS} steps")

    async def _reply(self) -> ReplyMessage:
        builder = ReplyBuilder("offline")
        async for piece in OfflinePlanner().stream(self.request()):
            builder.add(piece)
        reply = builder.finish()
        assert not reply.malformed_calls
        return reply.message

    async def _run(self, call: ToolCall) -> ToolResult:
        if call.name in self.refusals:
            return ToolResult(call.id, self.refusals[call.name], True)
        tool = self.tools[call.name]
        context = ToolContext(
            cwd=str(self.folder),
            root=str(self.folder),
            session="s",
            agent="",
            call_id=call.id,
            mode="edit_mode",
            progress=lambda text: None,
            environment=make_environment(cwd=str(self.folder)),
        )
        output = await tool.run(tool.parse(call.args), context)
        return ToolResult(call.id, output.text, output.is_error)

    @property
    def tools_called(self) -> list[str]:
        return [call.name for call in self.calls]
