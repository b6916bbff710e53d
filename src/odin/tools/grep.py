"""Grep: search file contents."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from odin.context.files import FileCache, Lines, fingerprint
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.policy.sandbox import ProcessRunner
from odin.tools.path import FileTool, Refusal, absolute, missing, open_regular, printable, read_whole
from odin.tools.ripgrep import find_ripgrep
from odin.tools.search import Hit, Hits, Query, count_lines, find_lines

HEAD_LIMIT = 250
SHOWN_CHARS = 30_000
LINE_CHARS = 500
RECORDED_BYTES = 10_000_000


class GrepArgs(Args, frozen=True):
    pattern: Annotated[str, Meta(description="Regular expression")]
    path: Annotated[str | None, Meta(description="Absolute; default: working directory")] = None
    glob: Annotated[str | None, Meta(description="e.g. *.{ts,tsx}")] = None
    type: Annotated[str | None, Meta(description="e.g. py")] = None
    output_mode: Annotated[
        Literal["content", "files_with_matches", "count"] | None, Meta(description="Default: content")
    ] = None
    line_numbers: bool | None = field(default=None, name="-n")
    ignore_case: bool | None = field(default=None, name="-i")
    after: float | None = field(default=None, name="-A")
    before: float | None = field(default=None, name="-B")
    around: float | None = field(default=None, name="-C")
    head_limit: Annotated[float | None, Meta(description="Default: 250")] = None
    multiline: bool | None = None
    literal_text: bool | None = None
    offset: int | None = None
    limit: int | None = None


class Grep(FileTool[GrepArgs]):
    """Search file contents (ripgrep; honours .gitignore). Lines shown count as read. offset and limit search a
    line range of one file."""

    name = "Grep"
    kind = "read"
    short = "Search file contents for a regular expression."
    args = GrepArgs

    def __init__(self, files: FileCache, runner: ProcessRunner, rg: Callable[[], str | None] = find_ripgrep) -> None:
        self._files = files
        self._runner = runner
        self._rg = rg

    def subject(self, args: GrepArgs) -> Subject:
        return Subject(paths=(args.path,) if args.path else ())

    def title(self, args: GrepArgs) -> str:
        return f"{args.pattern} in {args.path}" if args.path else args.pattern

    async def work(self, args: GrepArgs, ctx: ToolContext) -> ToolOutput:
        query = _query(args, ctx)
        if args.output_mode in (None, "content"):
            started = time.time_ns()
            found = await find_lines(query, self._rg(), self._runner)
            return self._content(found, args, started)
        counts, complete = await count_lines(query, self._rg(), self._runner)
        only_paths = args.output_mode == "files_with_matches"
        lines = [path if only_paths else f"{path}:{count}" for path, count in counts.items()]
        total = f"{len(lines)} files" if only_paths else f"{sum(counts.values())} matching lines in {len(lines)} files"
        shown = _limited(lines, args)
        return _output(args, shown, _remark(len(shown), len(lines), complete), total)

    def _content(self, found: Hits, args: GrepArgs, started: int) -> ToolOutput:
        hits = _in_range(found.hits, args)
        lines = _render(hits, args)
        shown = _limited([text for text, _ in lines], args)
        seen = [hit for _, hit in lines[: len(shown)] if hit is not None]
        self._remember(seen, started)
        matches = sum(hit.is_match for hit in hits)
        return _output(args, shown, _remark(len(shown), len(lines), found.complete), f"{matches} matches")

    def _remember(self, hits: list[Hit], started: int) -> None:
        """Lines that were shown have been read. A file that changed while we searched has not."""
        by_path: dict[str, list[Hit]] = {}
        for hit in hits:
            by_path.setdefault(hit.path, []).append(hit)
        for path, lines in by_path.items():
            try:
                file, info = open_regular(path, "/")
                with file:
                    if info.st_size > RECORDED_BYTES or info.st_mtime_ns >= started:
                        continue
                    data = read_whole(file, info)
            except (Refusal, OSError):
                continue
            if data is not None:
                cut = any(len(hit.text) > LINE_CHARS for hit in lines)
                ranges = _ranges(hit.line for hit in lines)
                self._files.saw_lines(path, fingerprint(data, info.st_mtime_ns), ranges, truncated=cut)


def _query(args: GrepArgs, ctx: ToolContext) -> Query:
    path = absolute(args.path, ctx.cwd, "path") if args.path is not None else ctx.cwd
    if not Path(path).exists():
        raise missing(path, ctx.cwd)
    if not args.pattern or "\0" in args.pattern:
        raise Refusal("pattern is empty or contains a NUL byte.")
    if (args.offset or args.limit) and not Path(path).is_file():
        raise Refusal("offset and limit need path to be one file.")
    around = args.around or 0
    return Query(
        pattern=args.pattern,
        path=path,
        glob=args.glob or "",
        type=args.type or "",
        ignore_case=bool(args.ignore_case),
        literal=bool(args.literal_text),
        multiline=bool(args.multiline),
        before=max(0, int(args.before if args.before is not None else around)),
        after=max(0, int(args.after if args.after is not None else around)),
    )


def _in_range(hits: list[Hit], args: GrepArgs) -> list[Hit]:
    first = max(1, args.offset or 1)
    last = first + args.limit - 1 if args.limit else None
    return [hit for hit in hits if hit.line >= first and (last is None or hit.line <= last)]


def _render(hits: list[Hit], args: GrepArgs) -> list[tuple[str, Hit | None]]:
    """As ripgrep prints them: `path:line:text` for a match, dashes for context, `--` where lines are left out."""
    context = bool(args.after or args.before or args.around)
    out: list[tuple[str, Hit | None]] = []
    previous: Hit | None = None
    for hit in hits:
        if context and previous and (hit.path != previous.path or hit.line > previous.line + 1):
            out.append(("--", None))
        previous = hit
        sign = ":" if hit.is_match else "-"
        text = hit.text
        if len(text) > LINE_CHARS:
            text = f"{text[:LINE_CHARS]}... [line cut: {LINE_CHARS} of {len(text)} characters]"
        number = "" if args.line_numbers is False else f"{sign}{hit.line}"
        out.append((f"{hit.path}{number}{sign}{text}", hit))
    return out


def _limited(lines: list[str], args: GrepArgs) -> list[str]:
    limit = int(args.head_limit) if args.head_limit and args.head_limit >= 1 else HEAD_LIMIT
    shown: list[str] = []
    size = 0
    for line in lines[:limit]:
        size += len(line) + 1
        if size > SHOWN_CHARS and shown:
            break
        shown.append(line)
    return shown


def _remark(shown: int, total: int, complete: bool) -> str:
    if not complete:
        return f"(showing {shown} results; the search was stopped because there are too many; narrow it down)"
    if shown < total:
        return f"(showing the first {shown} of {total} results; narrow it down or raise head_limit)"
    return ""


def _output(args: GrepArgs, shown: list[str], remark: str, total: str) -> ToolOutput:
    where = f" in {args.path}" if args.path else ""
    note = printable(f"Searched {args.pattern!r}{where}: {total}")
    if not shown:
        return ToolOutput(text="No matches found", note=note)
    return ToolOutput(text=printable("\n".join([*shown, *([remark] if remark else [])])), note=note)


def _ranges(lines: Iterable[int]) -> list[Lines]:
    ranges: list[Lines] = []
    for line in sorted(set(lines)):
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    return ranges
