"""What the model may do. One file, one tool; this list is the only place that knows them all."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.context.file_cache import FileCache
from odin.core.policy import Hooks, NoHooks
from odin.core.tool import AskSmallModel, AskUser, CollectedItem, Fetch, SearchEngine, Tool
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.tools.artifacts import ArtifactFolder, ReadArtifactTool, SaveArtifactTool
from odin.tools.commands import ExecuteCommandTool, SpawnStatusTool, SpawnStopTool, SpawnTool
from odin.tools.context_summarizer import ContextSummarizerTool
from odin.tools.edit import EditTool, MultiEditTool
from odin.tools.grep import GrepTool
from odin.tools.init_tool import InitTool
from odin.tools.listing import GlobTool, LSTool
from odin.tools.read import FormatReader, ReadTool
from odin.tools.talk import QuestionTool, TodoWriteTool
from odin.tools.web import WebFetchTool, WebSearchTool
from odin.tools.whole_file import AppendFileTool, DeleteTool, WriteFileTool


class ToolDeps(Struct, frozen=True):
    """What the tools of one agent work with. Where something is None, the tools that need it are not there.

    `folder` is the session's own folder, `root` the project's. `files` is the agent's alone: what one agent has read,
    another has not seen.
    """

    files: FileCache
    runner: ProcessRunner
    session_folder: Path | None = None
    root: str = ""
    on_instructions_written: Callable[[], None] = lambda: None
    small_model: AskSmallModel | None = None
    ask_user: AskUser | None = None
    fetch: Fetch | None = None
    search_engine: SearchEngine | None = None
    list_collected: Callable[[], Sequence[CollectedItem]] | None = None
    background: BackgroundProcesses | None = None
    hooks: Hooks = NoHooks()


def build_standard_tools(services: ToolDeps) -> tuple[Tool[Any], ...]:
    """The tools every agent has, in the order models see them: it never changes, so that prompt caches hold."""
    files, runner = services.files, services.runner
    return (
        LSTool(files),
        ReadTool(files, FormatReader(services.session_folder, runner)),
        GrepTool(files, runner),
        GlobTool(runner),
        ExecuteCommandTool(runner, services.background),
        *_build_background_tools(services.background),
        TodoWriteTool(),
        QuestionTool(services.ask_user),
        *_build_artifact_tools(services.session_folder),
        *_build_reading_tools(services),
        WriteFileTool(files),
        EditTool(files, services.small_model),
        MultiEditTool(files, services.small_model),
        DeleteTool(files),
        AppendFileTool(files),
        *_build_init_tools(services),
    )


def _build_reading_tools(services: ToolDeps) -> tuple[Tool[Any], ...]:
    """The web and the summary: what the lesser model reads in the place of the planner."""
    tools: list[Tool[Any]] = []
    if services.small_model is not None and services.fetch is not None:
        tools.append(WebFetchTool(services.fetch, services.small_model, services.runner))
    if services.search_engine is not None:
        tools.append(WebSearchTool(services.search_engine))
    if services.small_model is not None and services.list_collected is not None:
        tools.append(
            ContextSummarizerTool(services.list_collected, services.small_model, services.files, services.hooks)
        )
    return tuple(tools)


def _build_init_tools(services: ToolDeps) -> tuple[Tool[Any], ...]:
    return (InitTool(services.files, services.root, services.on_instructions_written),) if services.root else ()


def _build_artifact_tools(folder: Path | None) -> tuple[Tool[Any], ...]:
    return (
        (SaveArtifactTool(ArtifactFolder(folder)), ReadArtifactTool(ArtifactFolder(folder)))
        if folder is not None
        else ()
    )


def _build_background_tools(background: BackgroundProcesses | None) -> tuple[Tool[Any], ...]:
    return (
        (SpawnTool(background), SpawnStatusTool(background), SpawnStopTool(background))
        if background is not None
        else ()
    )
