"""LS, Glob and Grep: list a folder, find files by name and by content. Their work is loaded with the first call."""

from odin.context.file_cache import FileCache
from odin.core.tool import Target, ToolContext, ToolOutput
from odin.sandbox.runner import ProcessRunner
from odin.tools.files import FileTool
from odin.tools.search_args import FindProgram, GlobArgs, GrepArgs, LSArgs


class LSTool(FileTool[LSArgs]):
    """List a directory."""

    name = "LS"
    kind = "read"
    short = "List a directory."
    args = LSArgs

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def get_target(self, args: LSArgs) -> Target:
        return Target(paths=(args.path,))

    def can_speculate(self, args: LSArgs) -> bool:
        return True

    async def work(self, args: LSArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.listing import list_folder

        return await list_folder(args, ctx, self._files)


class GlobTool(FileTool[GlobArgs]):
    """Find files by name, newest first, at most 100; honors .gitignore."""

    name = "Glob"
    kind = "read"
    short = "Find files by name pattern."
    args = GlobArgs

    def __init__(self, runner: ProcessRunner, rg: FindProgram | None = None) -> None:
        self._runner = runner
        self._rg = rg

    def get_target(self, args: GlobArgs) -> Target:
        from odin.tools.listing import split_pattern

        folder = split_pattern(args.pattern)[0] if args.pattern.startswith("/") else args.path
        return Target(paths=(folder,) if folder else ())

    def can_speculate(self, args: GlobArgs) -> bool:
        return True

    def get_title(self, args: GlobArgs) -> str:
        return f"{args.pattern} in {args.path}" if args.path else args.pattern

    async def work(self, args: GlobArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.listing import GlobSearch

        return await GlobSearch(self._runner, self._rg).find_files(args, ctx)


class GrepTool(FileTool[GrepArgs]):
    """Search file contents (ripgrep; honors .gitignore). Lines shown count as read. offset, limit: of one file."""

    name = "Grep"
    kind = "read"
    short = "Search file contents for a regular expression."
    args = GrepArgs

    def __init__(self, files: FileCache, runner: ProcessRunner, rg: FindProgram | None = None) -> None:
        self._files = files
        self._runner = runner
        self._rg = rg

    def get_target(self, args: GrepArgs) -> Target:
        return Target(paths=(args.path,) if args.path else ())

    def can_speculate(self, args: GrepArgs) -> bool:
        return True

    def get_title(self, args: GrepArgs) -> str:
        return f"{args.pattern} in {args.path}" if args.path else args.pattern

    async def work(self, args: GrepArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.grep import GrepSearch

        return await GrepSearch(self._files, self._runner, self._rg).find_matches(args, ctx)
