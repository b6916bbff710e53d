"""InitTool: writes ODIN.md, which describes the repository."""

import os
from collections.abc import Callable
from pathlib import Path

from odin.context.file_cache import FileCache, count_lines, hash_bytes, take_fingerprint
from odin.context.instructions import ODIN_MD
from odin.core.timing import run_in_thread
from odin.core.tool import Args, AskSmallModel, ResolvedPath, Target, ToolContext, ToolOutput
from odin.tools.files import FileTool, Refusal, find_resolved_path, open_regular, read_whole, to_printable


class InitArgs(Args, frozen=True):
    pass


class InitTool(FileTool[InitArgs]):
    """Write or renew ODIN.md from the project's files."""

    name = "InitTool"
    kind = "edit"
    short = "Write ODIN.md from the project's files."
    args = InitArgs

    def __init__(
        self,
        files: FileCache,
        root: str,
        on_written: Callable[[], None] = lambda: None,
        small_model: AskSmallModel | None = None,
    ) -> None:
        self._files = files
        self._small_model = small_model
        self._path = str(Path(root, ODIN_MD))
        self._root = root
        self._on_written = on_written

    def get_target(self, args: InitArgs) -> Target:
        return Target(paths=(self._path,))

    async def work(self, args: InitArgs, ctx: ToolContext) -> ToolOutput:
        from odin.tools.atomic_write import replace_file
        from odin.tools.diff import compare
        from odin.tools.project_page import write_project_page

        place = find_resolved_path(self._path, ctx)
        before = self._read_current(place, ctx.cwd)
        part = await write_project_page(Path(self._root), ctx.is_hidden, self._small_model)
        after = _insert_part(before, part.encode("utf-8", "replace"), self._path)
        if after == before:
            return ToolOutput(text=f"{self._path} is up to date; nothing was written.", note=f"{ODIN_MD} is up to date")
        target = place.path
        info = await run_in_thread(lambda _: replace_file(target, after, before))
        self._files.record_write(target, take_fingerprint(after, info))
        self._on_written()
        diff = compare((before or b"").decode("utf-8", "replace"), after.decode("utf-8", "replace"), self._path)
        done = f"{'Created' if before is None else 'Renewed'} {self._path} ({count_lines(after)} lines, {diff.counts})"
        return ToolOutput(
            text=to_printable(
                f"{done}. It takes effect with the next prompt. Check it, and add what the files do not show."
            ),
            note=to_printable(done),
            view=to_printable(diff.text),
            files=(to_printable(target),),
        )

    def _read_current(self, place: ResolvedPath, cwd: str) -> bytes | None:
        from odin.tools.staleness import exists, make_stale_refusal

        if not Path(place.path).is_relative_to(os.path.realpath(self._root)):
            raise Refusal(f"{self._path} points outside the project. Remove the link first.")
        if not exists(place):
            return None
        file, info = open_regular(place, cwd)
        with file:
            data = read_whole(file, info)
        if data is None:
            raise Refusal(f"{self._path} is too large ({info.st_size} bytes). Shorten it first.")
        sha256 = hash_bytes(data)
        if self._files.compare(place.path, sha256) == "changed":
            message = f"{self._path} changed on disk since you read it. Nothing was written. Read it again first."
            raise make_stale_refusal(self._files, place.path, sha256, message)
        return data


def _insert_part(before: bytes | None, part: bytes, path: str) -> bytes:
    """Return the file with the generated part. Everything outside of the markers is left unchanged."""
    from odin.tools.project_page import BEGIN, END

    if not before:
        return part
    begin_marker, end_marker = BEGIN.encode(), END.encode()
    start, stop = before.find(begin_marker), before.find(end_marker)
    if before.count(begin_marker) != 1 or before.count(end_marker) != 1 or stop < start:
        raise Refusal(
            f"{path} exists without a generated part (between {BEGIN} and {END}), so nothing was written. "
            f"Change it with EditTool, or add the two markers where that part should be."
        )
    crlf = before.count(b"\n") > 0 and before.count(b"\n") == before.count(b"\r\n")
    inner = part.removesuffix(b"\n")
    return before[:start] + (inner.replace(b"\n", b"\r\n") if crlf else inner) + before[stop + len(end_marker) :]
