"""What the model may do. One file, one tool; this list is the only place that knows them all."""

from typing import Any

from odin.context.files import FileCache
from odin.core.tool import Tool
from odin.policy.sandbox import ProcessRunner
from odin.tools.edit import EditTool
from odin.tools.execute_command import ExecuteCommand
from odin.tools.glob import Glob
from odin.tools.grep import Grep
from odin.tools.ls import LS
from odin.tools.multi_edit import MultiEditTool
from odin.tools.read import Read
from odin.tools.todo_write import TodoWrite
from odin.tools.write_file import WriteFile


def standard_tools(*, files: FileCache, runner: ProcessRunner) -> tuple[Tool[Any], ...]:
    """The tools every agent has, in the order models see them: it never changes, so that prompt caches hold."""
    return (
        LS(files),
        Read(files),
        Grep(files, runner),
        Glob(runner),
        ExecuteCommand(runner),
        TodoWrite(),
        WriteFile(files),
        EditTool(files),
        MultiEditTool(files),
    )
