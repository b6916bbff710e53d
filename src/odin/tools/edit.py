"""EditTool, MultiEditTool and apply_patch. `file_edit` and `file_patch` do the work, imported with the first edit."""

from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from odin.context.file_cache import FileCache
from odin.core.tool import A, Args, AskSmallModel, Target, ToolContext, ToolOutput
from odin.tools.files import FileTool, Refusal

if TYPE_CHECKING:
    from odin.tools.file_edit import EditReviewer
    from odin.tools.replacement import Edit


class EditItem(Struct, frozen=True, forbid_unknown_fields=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class EditArgs(Args, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False


class MultiEditArgs(Args, frozen=True):
    file_path: str
    edits: Annotated[tuple[EditItem, ...], Meta(min_length=1)]


class _ReplacementTool(FileTool[A]):
    kind = "edit"

    def __init__(self, files: FileCache, small_model: AskSmallModel | None = None) -> None:
        self._files = files
        self._small_model = small_model

    def can_speculate(self, args: A) -> bool:
        return True

    def plan_edits(self, path: str, edits: "list[Edit]", ctx: ToolContext) -> object:
        from odin.tools.file_edit import apply_in_memory

        return apply_in_memory(self._files, path, edits, ctx)

    async def edit(self, path: str, edits: "list[Edit]", ctx: ToolContext) -> ToolOutput:
        from odin.tools.file_edit import edit_file

        return await edit_file(self._files, path, edits, ctx, self._reviewer)

    @cached_property
    def _reviewer(self) -> "EditReviewer":
        from odin.tools.file_edit import EditReviewer

        return EditReviewer(self._files, self._small_model)


class EditTool(_ReplacementTool[EditArgs]):
    """Replace exact text in a file you have read. old_string, without line numbers, must occur once unless
    replace_all."""

    name = "EditTool"
    short = "Replace old_string with new_string in a file you have read."
    args = EditArgs
    argument_aliases = (("path", "file_path"), ("old_text", "old_string"), ("new_text", "new_string"))

    def get_target(self, args: EditArgs) -> Target:
        return Target(paths=(args.file_path,))

    def plan(self, args: EditArgs, ctx: ToolContext) -> object:
        return self.plan_edits(args.file_path, _make_edits(args), ctx)

    async def work(self, args: EditArgs, ctx: ToolContext) -> ToolOutput:
        return await self.edit(args.file_path, _make_edits(args), ctx)


class MultiEditTool(_ReplacementTool[MultiEditArgs]):
    """Several EditTool replacements in one file, in order, all or none."""

    name = "MultiEditTool"
    short = "Make several replacements in one file, all or none."
    args = MultiEditArgs

    def get_target(self, args: MultiEditArgs) -> Target:
        return Target(paths=(args.file_path,))

    def plan(self, args: MultiEditArgs, ctx: ToolContext) -> object:
        return self.plan_edits(args.file_path, _make_edits(*args.edits), ctx)

    async def work(self, args: MultiEditArgs, ctx: ToolContext) -> ToolOutput:
        return await self.edit(args.file_path, _make_edits(*args.edits), ctx)


class PatchArgs(Args, frozen=True):
    input: str


class ApplyPatchTool(_ReplacementTool[PatchArgs]):
    """Edit, create, move and delete files with one patch, all or none. Read files before you change them.
    *** Begin Patch
    *** Update File: a.py
    *** Move to: b.py (optional)
    @@ def f(): (what contains the change, if its lines are not unique)
     unchanged line
    -old line
    +new line
    *** Add File: c.py
    +line
    *** Delete File: d.py
    *** End Patch"""

    name = "apply_patch"
    short = "Change files with a patch."
    args = PatchArgs
    offered = False
    freeform = "input"
    argument_aliases = (("patch", "input"), ("patch_text", "input"))

    def get_target(self, args: PatchArgs) -> Target:
        from odin.tools.patch import parse_patch

        try:
            files = parse_patch(args.input)
        except Refusal:
            return Target()
        paths = [path for file in files for path in (file.path, file.move_to) if path]
        removed = tuple(file.path for file in files if file.action == "delete" or file.move_to)
        return Target(paths=tuple(paths), removes=removed)

    def validate(self, args: PatchArgs) -> str:
        from odin.tools.patch import parse_patch

        try:
            parse_patch(args.input)
        except Refusal as refusal:
            return str(refusal)
        return ""

    def plan(self, args: PatchArgs, ctx: ToolContext) -> object:
        from odin.tools.file_patch import plan_patch

        return plan_patch(self._files, args.input, ctx)

    async def work(self, args: PatchArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.file_patch import apply_patch

        return await apply_patch(self._files, args.input, ctx, self._reviewer)


def _make_edits(*items: EditArgs | EditItem) -> "list[Edit]":
    from odin.tools.replacement import Edit

    return [Edit(item.old_string, item.new_string, item.replace_all) for item in items]
