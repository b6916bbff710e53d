"""EditTool: one exact replacement in one file."""

from typing import Annotated

from msgspec import Meta

from odin.context.files import FileCache
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.change import change_file
from odin.tools.path import FileTool
from odin.tools.replace import Edit


class EditArgs(Args, frozen=True):
    file_path: Annotated[str, Meta(description="Absolute")]
    old_string: str
    new_string: str
    replace_all: bool = False


class EditTool(FileTool[EditArgs]):
    """Replace exact text in a file you have read. old_string must match to the space, without line numbers, and occur
    once unless replace_all."""

    name = "EditTool"
    kind = "edit"
    short = "Replace old_string with new_string in a file you have read."
    args = EditArgs

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject(self, args: EditArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    async def work(self, args: EditArgs, ctx: ToolContext) -> ToolOutput:
        return change_file(self._files, args.file_path, [Edit(args.old_string, args.new_string, args.replace_all)], ctx)
