"""SaveArtifact and ReadArtifact: texts kept with the session, in a folder that no artifact name can leave."""

import os
from pathlib import Path

from odin.context.file_cache import count_lines
from odin.core.format import pluralize
from odin.core.timing import run_in_thread
from odin.core.tool import Args, ToolContext, ToolOutput
from odin.tools.files import LINES, FileTool, Refusal, number_lines, to_printable

MAX_BYTES = 5_000_000
"""Maximum size of an artifact."""

_MAX_NAME_BYTES = 200
_MAX_PATH_BYTES = 1000

_MAX_LISTED = 200


class ArtifactFolder:
    """The artifacts of one session. Names may contain folders."""

    def __init__(self, session_folder: Path) -> None:
        self.folder = session_folder / "artifacts"

    def get_path(self, name: str) -> str:
        """Return the real path of an artifact. Raise Refusal if it would lie outside the folder."""
        parts = name.split("/")
        if "\0" in name or not all(parts) or {".", ".."} & set(parts):
            raise Refusal(f"{name!r} is not a valid artifact name. Use a name such as notes.md or plan/step-1.md.")
        size = len(os.fsencode(name.encode("utf-8", "replace")))
        if size > _MAX_PATH_BYTES or any(len(part.encode("utf-8", "replace")) > _MAX_NAME_BYTES for part in parts):
            raise Refusal(f"The name of the artifact is too long ({size} bytes). Use a shorter one.")
        path = os.path.realpath(self.folder / name)
        if not Path(path).is_relative_to(os.path.realpath(self.folder)):
            raise Refusal(f"{name} points outside the artifact folder. Use another name.")
        if Path(path).is_dir():
            raise Refusal(f"{name} is a folder of artifacts, not an artifact.")
        return path

    def save(self, name: str, data: bytes) -> bool:
        """Write an artifact atomically; return True if it replaces one. Raise Refusal if the name is not valid."""
        from odin.tools.atomic_write import replace_file

        path = Path(self.get_path(name))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        before = path.read_bytes() if path.exists() else None
        replace_file(str(path), data, before)
        return before is not None


class SaveArtifactArgs(Args, frozen=True):
    name: str
    content: str


class SaveArtifactTool(FileTool[SaveArtifactArgs]):
    """Save a text with the session, outside the project."""

    name = "SaveArtifact"
    kind = "interactive"
    short = "Save a text with the session."
    args = SaveArtifactArgs

    def __init__(self, artifacts: ArtifactFolder) -> None:
        self._artifacts = artifacts

    def get_title(self, args: SaveArtifactArgs) -> str:
        return args.name

    async def work(self, args: SaveArtifactArgs, ctx: ToolContext) -> ToolOutput:
        path = Path(self._artifacts.get_path(args.name))
        try:
            data = args.content.encode()
        except UnicodeEncodeError:
            raise Refusal("content contains half of a surrogate pair, which is not a character.") from None
        if len(data) > MAX_BYTES:
            raise Refusal(
                f"The content has {len(data)} bytes and an artifact at most {MAX_BYTES}. Save it in several parts."
            )
        is_replaced = await run_in_thread(lambda _: self._artifacts.save(args.name, data))
        lines = pluralize(count_lines(data), "line")
        done = f"{'Replaced' if is_replaced else 'Saved'} the artifact {args.name} ({lines})"
        return ToolOutput(text=to_printable(f"{done}. It is at {path}."), note=to_printable(done))


class ReadArtifactArgs(Args, frozen=True):
    name: str = ""
    offset: int = 1
    limit: int = LINES


class ReadArtifactTool(FileTool[ReadArtifactArgs]):
    """Read an artifact; without a name list them."""

    name = "ReadArtifact"
    kind = "interactive"
    short = "Read an artifact or list them."
    args = ReadArtifactArgs

    def __init__(self, artifacts: ArtifactFolder) -> None:
        self._artifacts = artifacts

    def get_title(self, args: ReadArtifactArgs) -> str:
        return args.name or "the list"

    async def work(self, args: ReadArtifactArgs, ctx: ToolContext) -> ToolOutput:
        if not args.name:
            return self._list_artifacts()
        path = Path(self._artifacts.get_path(args.name))
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
        # The name and size in bytes of every artifact, sorted by name.
        found: list[tuple[str, int]] = []
        for folder, _, files in os.walk(self._artifacts.folder):
            for file in files:
                path = Path(folder, file)
                if path.is_file() and not path.is_symlink():
                    found.append((str(path.relative_to(self._artifacts.folder)), path.stat().st_size))
        names = sorted(found)
        lines = [f"  {name} ({size} bytes)" for name, size in names[:_MAX_LISTED]]
        if len(names) > _MAX_LISTED:
            lines.append(f"  (showing {_MAX_LISTED} of {len(names)})")
        text = "\n".join(["The artifacts of this session:", *lines]) if names else "This session has no artifacts."
        return ToolOutput(text=to_printable(text), note=f"Listed {len(names)} artifacts")
