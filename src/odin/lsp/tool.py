"""`lsp` and `lsp_rename`: what the model asks language servers, and a renaming that Odin carries out itself.

`symbols` does the work, imported with the first call. A renaming is planned before the call is checked, so that the
permission rules, the checkpoint and the preview see every file that it changes.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odin.context.file_cache import FileCache
from odin.core.tool import Target, Tool, ToolContext, ToolOutput
from odin.lsp.arguments import LspArgs, RenameArgs
from odin.policy.paths import join_path
from odin.tools.files import FileTool, Refusal

if TYPE_CHECKING:
    from odin.lsp.servers import LanguageServers
    from odin.lsp.symbols import RenamePlan

_MAX_PLANS = 20

FindServers = Callable[[str], "LanguageServers | None"]
"""Returns the language servers for the folder that an absolute path lies in."""


class LspTool(FileTool[LspArgs]):
    """Ask the language server about the symbol at path and line: name it in `symbol`, or give its 1-based character.
    symbols lists a file's symbols (path) or finds the project's (query)."""

    name = "lsp"
    kind = "read"
    short = "Find definitions, references and symbols with the language server."
    args = LspArgs
    argument_aliases = (("file_path", "path"), ("column", "character"), ("operation", "action"))

    def __init__(self, find_servers: FindServers, is_offered: Callable[[], bool] = lambda: True) -> None:
        self._find_servers = find_servers
        self._is_offered = is_offered

    def is_offered(self) -> bool:
        return self._is_offered()

    def get_target(self, args: LspArgs) -> Target:
        return Target(paths=(args.path or ".",))

    def get_title(self, args: LspArgs) -> str:
        place = ":".join(filter(None, (args.path, str(args.line or ""))))
        return " ".join(filter(None, (args.action, args.symbol or args.query, place)))

    def validate(self, args: LspArgs) -> str:
        if args.action == "symbols":
            return "" if args.path or args.query else "symbols needs a path, or a query for the whole project."
        return "" if args.path and (args.line or args.symbol) else f"{args.action} needs path, and line or symbol."

    async def work(self, args: LspArgs, ctx: ToolContext) -> ToolOutput:
        from odin.lsp.symbols import answer

        return await answer(self._find_servers(join_path(ctx.cwd, args.path)), args, ctx)


class LspRenameTool(FileTool[RenameArgs]):
    """Rename a symbol in all files of the project. Name it as it stands in path (at line, if it occurs more often)."""

    name = "lsp_rename"
    kind = "edit"
    short = "Rename a symbol in all files."
    args = RenameArgs
    exclusive = True
    resolves = True
    argument_aliases = (("file_path", "path"), ("newName", "new_name"))

    def __init__(
        self, find_servers: FindServers, files: FileCache, is_offered: Callable[[], bool] = lambda: True
    ) -> None:
        self._find_servers = find_servers
        self._files = files
        self._is_offered = is_offered
        self._plans: OrderedDict[RenameArgs, RenamePlan] = OrderedDict()

    def is_offered(self) -> bool:
        return self._is_offered()

    async def resolve(self, args: RenameArgs, ctx: ToolContext) -> None:
        from odin.lsp.symbols import plan_rename

        servers = self._find_servers(join_path(ctx.cwd, args.path))
        self._plans[args] = await plan_rename(servers, args, ctx)
        while len(self._plans) > _MAX_PLANS:
            self._plans.popitem(last=False)

    def get_target(self, args: RenameArgs) -> Target:
        plan = self._plans.get(args)
        return Target(paths=tuple(file.path for file in plan.files) if plan and plan.files else (args.path,))

    def get_title(self, args: RenameArgs) -> str:
        return f"{args.symbol} to {args.new_name}"

    def validate(self, args: RenameArgs) -> str:
        plan = self._plans.get(args)
        return "The renaming was not planned. Repeat the call." if plan is None else plan.failure

    async def preview(self, args: RenameArgs) -> str:
        from odin.lsp.symbols import preview_rename

        return await preview_rename(self._plans[args])

    def plan(self, args: RenameArgs, ctx: ToolContext) -> object:
        from odin.lsp.symbols import plan_files

        return plan_files(self._get_plan(args), self._files, ctx)

    def _get_plan(self, args: RenameArgs) -> "RenamePlan":
        plan = self._plans.get(args)
        if plan is None or plan.failure:
            raise Refusal(self.validate(args))
        return plan

    async def work(self, args: RenameArgs, ctx: ToolContext) -> ToolOutput:
        from odin.lsp.symbols import write_rename

        output = await write_rename(self._get_plan(args), args, self._files, ctx)
        del self._plans[args]
        return output


def make_tools(find_servers: FindServers, files: FileCache, is_offered: Callable[[], bool]) -> tuple[Tool[Any], ...]:
    return LspTool(find_servers, is_offered), LspRenameTool(find_servers, files, is_offered)
