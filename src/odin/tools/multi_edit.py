"""MultiEditTool: several exact replacements in one file, all or none."""

from typing import Annotated

from msgspec import Meta, Struct

from odin.context.files import FileCache
from odin.core.tool import Args, AskSmallModel, Subject, ToolContext, ToolOutput
from odin.tools.files.change import edit_file
from odin.tools.files.path import FileTool
from odin.tools.files.replace import Edit
from odin.tools.files.sufficiency import EditReviewer


class EditItem(Struct, frozen=True, forbid_unknown_fields=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class MultiEditArgs(Args, frozen=True):
    file_path: str
    edits: Annotated[tuple[EditItem, ...], Meta(min_length=1)]


class MultiEditTool(FileTool[MultiEditArgs]):
    """Several EditTool replacements in one file, in order, all or none."""

    name = "MultiEditTool"
    kind = "edit"
    short = "Make several replacements in one file, all or none."
    args = MultiEditArgs

    def __init__(self, files: FileCache, small_model: AskSmallModel | None = None) -> None:
        self._files = files
        self._reviewer = EditReviewer(files, small_model)

    def subject_of(self, args: MultiEditArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def can_speculate(self, args: MultiEditArgs) -> bool:
        return True

    async def work(self, args: MultiEditArgs, ctx: ToolContext) -> ToolOutput:
        edits = [Edit(edit.old_string, edit.new_string, edit.replace_all) for edit in args.edits]
        return await edit_file(self._files, args.file_path, edits, ctx, self._reviewer)
