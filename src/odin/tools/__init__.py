"""The tools of the model. `build_standard_tools` is the only place that knows them all."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.context.file_cache import FileCache
from odin.core.policy import Hooks, NoHooks
from odin.core.provider import Fetch, SearchEngine
from odin.core.tool import AskPlan, AskSmallModel, AskUser, CollectedItem, Tool
from odin.sandbox.background import BackgroundProcesses
from odin.sandbox.runner import ProcessRunner
from odin.tools.artifacts import ArtifactFolder, ReadArtifactTool, SaveArtifactTool
from odin.tools.commands import ExecuteCommandTool, SpawnStatusTool, SpawnStopTool, SpawnTool
from odin.tools.context_summarizer import ContextSummarizerTool
from odin.tools.edit import ApplyPatchTool, EditTool, MultiEditTool
from odin.tools.init_tool import InitTool
from odin.tools.plans import HandoffRoles, HandoffTool, PlanFolder
from odin.tools.question import QuestionTool
from odin.tools.read import FormatReader, ReadTool
from odin.tools.search_tools import GlobTool, GrepTool, LSTool
from odin.tools.todo_write import TodoWriteTool
from odin.tools.web import WebFetchTool, WebSearchTool
from odin.tools.whole_file import AppendFileTool, DeleteTool, WriteFileTool


class ToolDeps(Struct, frozen=True):
    """Dependencies of one agent's tools. If a field is None, the tools that need it do not exist.

    `session_folder` is the session's folder, `root` the project. `files` belongs to this agent alone: a file that one
    agent has read counts as unread for another. `handoff_roles` returns the roles that a plan can be handed to;
    without `ask_plan` a plan is only saved.
    """

    files: FileCache
    runner: ProcessRunner
    session_folder: Path | None = None
    root: str = ""
    on_instructions_written: Callable[[], None] = lambda: None
    small_model: AskSmallModel | None = None
    ask_user: AskUser | None = None
    ask_plan: AskPlan | None = None
    handoff_roles: Callable[[], HandoffRoles] | None = None
    fetch: Fetch | None = None
    search_engine: SearchEngine | None = None
    list_collected: Callable[[], Sequence[CollectedItem]] | None = None
    background: BackgroundProcesses | None = None
    hooks: Hooks = NoHooks()


def build_standard_tools(deps: ToolDeps) -> tuple[Tool[Any], ...]:
    """Return the tools of an agent, always in the same order, so that prompt caches stay valid."""
    files, runner = deps.files, deps.runner
    # The web tools and the summarizer, whose input the small model reads instead of the main one.
    reading: list[Tool[Any]] = []
    if deps.small_model is not None and deps.fetch is not None:
        reading.append(WebFetchTool(deps.fetch, deps.small_model, deps.runner))
    if deps.search_engine is not None:
        reading.append(WebSearchTool(deps.search_engine))
    if deps.small_model is not None and deps.list_collected is not None:
        reading.append(ContextSummarizerTool(deps.list_collected, deps.small_model, deps.files, deps.hooks))
    return (
        LSTool(files),
        ReadTool(files, FormatReader(deps.session_folder, runner)),
        GrepTool(files, runner),
        GlobTool(runner),
        ExecuteCommandTool(runner, deps.background),
        *(
            (SpawnTool(deps.background), SpawnStatusTool(deps.background), SpawnStopTool(deps.background))
            if deps.background is not None
            else ()
        ),
        TodoWriteTool(),
        QuestionTool(deps.ask_user),
        *_build_plan_tools(deps),
        *_build_artifact_tools(deps.session_folder),
        *reading,
        WriteFileTool(files),
        EditTool(files, deps.small_model),
        MultiEditTool(files, deps.small_model),
        ApplyPatchTool(files, deps.small_model),
        DeleteTool(files),
        AppendFileTool(files),
        *([InitTool(files, deps.root, deps.on_instructions_written, deps.small_model)] if deps.root else ()),
    )


def _build_plan_tools(deps: ToolDeps) -> tuple[Tool[Any], ...]:
    if deps.handoff_roles is None or not deps.root:
        return ()
    return (HandoffTool(PlanFolder(deps.root), deps.files, deps.ask_plan, deps.handoff_roles),)


def _build_artifact_tools(folder: Path | None) -> tuple[Tool[Any], ...]:
    return (
        (SaveArtifactTool(ArtifactFolder(folder)), ReadArtifactTool(ArtifactFolder(folder)))
        if folder is not None
        else ()
    )
