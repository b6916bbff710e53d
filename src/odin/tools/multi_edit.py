"""MultiEditTool: several exact replacements in one file, all or none."""

from typing import Annotated

from msgspec import Meta, Struct

from odin.context.files import FileCache
from odin.core.tool import Args, AskLesser, Subject, ToolContext, ToolOutput
from odin.tools.files.change import change_file
from odin.tools.files.path import FileTool
from odin.tools.files.replace import Edit
from odin.tools.files.sufficiency import Reviewer


class OneEdit(Struct, frozen=True, forbid_unknown_fields=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class MultiEditArgs(Args, frozen=True):
    file_path: str
    edits: Annotated[tuple[OneEdit, ...], Meta(min_length=1)]


class MultiEditTool(FileTool[MultiEditArgs]):
    """Several EditTool replacements in one file, in order, all or none."""

    name = "MultiEditTool"
    kind = "edit"
    short = "Make several replacements in one file, all or none."
    args = MultiEditArgs

    def __init__(self, files: FileCache, lesser: AskLesser | None = None) -> None:
        self._files = files
        self._reviewer = Reviewer(files, lesser)

    def subject(self, args: MultiEditArgs) -> Subject:
        return Subject(paths=(args.file_path,))

    def early(self, args: MultiEditArgs) -> bool:
        return True

    async def work(self, args: MultiEditArgs, ctx: ToolContext) -> ToolOutput:
        edits = [Edit(edit.old_string, edit.new_string, edit.replace_all) for edit in args.edits]
        return await change_file(self._files, args.file_path, edits, ctx, self._reviewer)
