"""The standard tools in a real folder, called by name like the engine does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from odin.config.paths import make_environment
from odin.context.file_cache import FileCache
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.core.tool import Tool, ToolContext, ToolOutput
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.tools import ToolDeps, build_standard_tools
from odin.tools.search_tools import GlobTool, GrepTool


class Toolbox:
    """The standard tools. `without_ripgrep` makes Grep and Glob use the built-in search."""

    def __init__(self, folder: Path, *, without_ripgrep: bool = False, timing: Timing = DEFAULT_TIMING) -> None:
        self.folder = folder
        self.session = folder.parent / "session"
        self.files = FileCache()
        self.environment = make_environment(cwd=str(folder), timing=timing)
        self.runner = ProcessRunner(
            self.environment, folder.parent / "spill", term_grace=0.3, cancel_grace=0.2, linger=0.1
        )
        self.background = BackgroundProcesses(self.runner, self.session / "spawn-logs")
        self.progress: list[str] = []
        tools: list[Tool[Any]] = list(
            build_standard_tools(ToolDeps(self.files, self.runner, self.session, background=self.background))
        )
        if without_ripgrep:
            nothing: Callable[[], str | None] = lambda: None  # noqa: E731
            tools += [GrepTool(self.files, self.runner, nothing), GlobTool(self.runner, nothing)]
        self.tools = {tool.name: tool for tool in tools}

    def context(self) -> ToolContext:
        return ToolContext(
            cwd=str(self.folder),
            root=str(self.folder),
            session="s",
            agent="",
            call_id="c",
            mode="edit_mode",
            progress=self.progress.append,
            environment=self.environment,
        )

    async def call(self, name: str, /, **args: Any) -> ToolOutput:
        tool = self.tools[name]
        return await tool.run(tool.parse(args), self.context())

    async def ok(self, name: str, /, **args: Any) -> ToolOutput:
        """Call a tool, which must succeed."""
        output = await self.call(name, **args)
        assert not output.is_error, output.text
        return output

    async def refused(self, name: str, /, **args: Any) -> str:
        """Call a tool, which must fail; return the error text."""
        output = await self.call(name, **args)
        assert output.is_error, output.text
        return output.text

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file in the folder and return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)
