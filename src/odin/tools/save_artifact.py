"""SaveArtifact: keep a text with the session."""

from pathlib import Path

from odin.context.files import count_lines
from odin.core.tool import Args, ToolContext, ToolOutput
from odin.tools.artifact import MAX_BYTES, ArtifactFolder
from odin.tools.files.atomic import replace_file
from odin.tools.files.path import FileTool, Refusal, to_printable


class SaveArtifactArgs(Args, frozen=True):
    name: str
    content: str


class SaveArtifactTool(FileTool[SaveArtifactArgs]):
    """Keep a text with the session, outside the project."""

    name = "SaveArtifact"
    kind = "talk"
    short = "Keep a text with the session."
    args = SaveArtifactArgs

    def __init__(self, artifacts: ArtifactFolder) -> None:
        self._artifacts = artifacts

    def title_of(self, args: SaveArtifactArgs) -> str:
        return args.name

    async def work(self, args: SaveArtifactArgs, ctx: ToolContext) -> ToolOutput:
        path = Path(self._artifacts.path_of(args.name))
        try:
            data = args.content.encode()
        except UnicodeEncodeError:
            raise Refusal("content contains half of a surrogate pair, which is not a character.") from None
        if len(data) > MAX_BYTES:
            raise Refusal(
                f"The content has {len(data)} bytes and an artifact at most {MAX_BYTES}. Save it in several parts."
            )
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        before = path.read_bytes() if path.exists() else None
        replace_file(str(path), data, before)
        lines = "1 line" if count_lines(data) == 1 else f"{count_lines(data)} lines"
        done = f"{'Saved' if before is None else 'Replaced'} the artifact {args.name} ({lines})"
        return ToolOutput(text=to_printable(f"{done}. It is at {path}."), note=to_printable(done))
