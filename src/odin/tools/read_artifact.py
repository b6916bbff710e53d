"""ReadArtifact: what the session kept, or a list of it."""

from pathlib import Path

from odin.core.tool import Args, ToolContext, ToolOutput
from odin.tools.artifact import ArtifactFolder
from odin.tools.files.path import FileTool, Refusal, to_printable
from odin.tools.read import LINES, number_lines

_MAX_LISTED = 200


class ReadArtifactArgs(Args, frozen=True):
    name: str = ""
    offset: int = 1
    limit: int = LINES


class ReadArtifactTool(FileTool[ReadArtifactArgs]):
    """Read an artifact; without a name list them."""

    name = "ReadArtifact"
    kind = "talk"
    short = "Read an artifact or list them."
    args = ReadArtifactArgs

    def __init__(self, artifacts: ArtifactFolder) -> None:
        self._artifacts = artifacts

    def title_of(self, args: ReadArtifactArgs) -> str:
        return args.name or "the list"

    async def work(self, args: ReadArtifactArgs, ctx: ToolContext) -> ToolOutput:
        if not args.name:
            return self._list_artifacts()
        path = Path(self._artifacts.path_of(args.name))
        if not path.is_file():
            raise Refusal(f"There is no artifact {args.name}. {self._list_artifacts().text}")
        text = path.read_text("utf-8", "replace")
        if not text:
            return ToolOutput(text="(empty)", note=to_printable(f"Read the artifact {args.name}"))
        lines = text.removesuffix("\n").split("\n")
        first = max(1, args.offset)
        if first > len(lines):
            raise Refusal(f"The artifact {args.name} has only {len(lines)} lines; offset {first} is past the end.")
        page = number_lines(lines[first - 1 : first - 1 + max(1, args.limit)], first)
        shown = page.text
        if page.last - page.first + 1 < len(lines):
            more = f"; go on with offset={page.last + 1}" if page.last < len(lines) else ""
            shown += f"\n(showing lines {page.first}-{page.last} of {len(lines)} total{more})"
        return ToolOutput(text=to_printable(shown), note=to_printable(f"Read the artifact {args.name}"))

    def _list_artifacts(self) -> ToolOutput:
        names = self._artifacts.list_artifacts()
        lines = [f"  {name} ({size} bytes)" for name, size in names[:_MAX_LISTED]]
        if len(names) > _MAX_LISTED:
            lines.append(f"  (showing {_MAX_LISTED} of {len(names)})")
        text = "\n".join(["The artifacts of this session:", *lines]) if names else "This session has no artifacts."
        return ToolOutput(text=to_printable(text), note=f"Listed {len(names)} artifacts")
