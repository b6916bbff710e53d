"""EditTool: one exact replacement in one file."""

from odin.context.files import FileCache
from odin.core.tool import Args, AskSmallModel, Subject, ToolContext, ToolOutput
from odin.tools.files.change import edit_file
from odin.tools.files.path import FileTool
from odin.tools.files.replace import Edit
from odin.tools.files.sufficiency import EditReviewer


class EditArgs(Args, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class EditTool(FileTool[EditArgs]):
    """Replace exact text in a file you have read. old_string, without line numbers, must occur once unless
    replace_all."""

    name = "EditTool"
    kind = "edit"
    short = "Replace old_string with new_string in a file you have read."
    args = EditArgs
    argument_aliases = (("path", "file_path"), ("old_text", "old_string"), ("new_text", "new_string"))

    def __init__(self, files: FileCache, small_model: AskSmallModel | None = None) -> None:
        self._files = files
        self._reviewer = EditReviewer(files, small_model)

    def subject_of(self, args: EditArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def can_speculate(self, args: EditArgs) -> bool:
        return True

    async def work(self, args: EditArgs, ctx: ToolContext) -> ToolOutput:
        edit = Edit(args.old_string, args.new_string, args.replace_all)
        return await edit_file(self._files, args.file_path, [edit], ctx, self._reviewer)
