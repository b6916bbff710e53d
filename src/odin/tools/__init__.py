"""What the model may do. One file, one tool; this list is the only place that knows them all."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.context.files import FileCache
from odin.core.hook import Hooks, NoHooks
from odin.core.tool import AskLesser, AskPerson, Collected, Fetch, SearchEngine, Tool
from odin.policy.process.background import Background
from odin.policy.process.runner import ProcessRunner
from odin.tools.append_file import AppendFile
from odin.tools.artifact import Shelf
from odin.tools.context_summarizer import ContextSummarizer
from odin.tools.delete import Delete
from odin.tools.edit import EditTool
from odin.tools.execute_command import ExecuteCommand
from odin.tools.glob import Glob
from odin.tools.grep import Grep
from odin.tools.init_tool import InitTool
from odin.tools.ls import LS
from odin.tools.multi_edit import MultiEditTool
from odin.tools.question import Question
from odin.tools.read import Read
from odin.tools.read_artifact import ReadArtifact
from odin.tools.reading.formats import Formats
from odin.tools.save_artifact import SaveArtifact
from odin.tools.spawn import Spawn
from odin.tools.spawn_status import SpawnStatus
from odin.tools.spawn_stop import SpawnStop
from odin.tools.todo_write import TodoWrite
from odin.tools.web_fetch import WebFetch
from odin.tools.web_search import WebSearch
from odin.tools.write_file import WriteFile


class Services(Struct, frozen=True):
    """What the tools of one agent work with. Where something is None, the tools that need it are not there.

    `folder` is the session's own folder, `root` the project's. `files` is the agent's alone: what one agent has read,
    another has not seen.
    """

    files: FileCache
    runner: ProcessRunner
    folder: Path | None = None
    root: str = ""
    instructions_written: Callable[[], None] = lambda: None
    lesser: AskLesser | None = None
    person: AskPerson | None = None
    fetch: Fetch | None = None
    search: SearchEngine | None = None
    collected: Callable[[], Sequence[Collected]] | None = None
    background: Background | None = None
    hooks: Hooks = NoHooks()


def standard_tools(services: Services) -> tuple[Tool[Any], ...]:
    """The tools every agent has, in the order models see them: it never changes, so that prompt caches hold."""
    files, runner = services.files, services.runner
    return (
        LS(files),
        Read(files, Formats(services.folder, runner)),
        Grep(files, runner),
        Glob(runner),
        ExecuteCommand(runner, services.background),
        *_background_tools(services.background),
        TodoWrite(),
        Question(services.person),
        *_artifact_tools(services.folder),
        *_reading_tools(services),
        WriteFile(files),
        EditTool(files, services.lesser),
        MultiEditTool(files, services.lesser),
        Delete(files),
        AppendFile(files),
        *_init_tools(services),
    )


def _reading_tools(services: Services) -> tuple[Tool[Any], ...]:
    """The web and the summary: what the lesser model reads in the place of the planner."""
    tools: list[Tool[Any]] = []
    if services.lesser is not None and services.fetch is not None:
        tools.append(WebFetch(services.fetch, services.lesser, services.runner))
    if services.search is not None:
        tools.append(WebSearch(services.search))
    if services.lesser is not None and services.collected is not None:
        tools.append(ContextSummarizer(services.collected, services.lesser, services.files, services.hooks))
    return tuple(tools)


def _init_tools(services: Services) -> tuple[Tool[Any], ...]:
    return (InitTool(services.files, services.root, services.instructions_written),) if services.root else ()


def _artifact_tools(folder: Path | None) -> tuple[Tool[Any], ...]:
    return (SaveArtifact(Shelf(folder)), ReadArtifact(Shelf(folder))) if folder is not None else ()


def _background_tools(background: Background | None) -> tuple[Tool[Any], ...]:
    return (Spawn(background), SpawnStatus(background), SpawnStop(background)) if background is not None else ()
