"""The work of Grep: search file contents, and show the lines in the files as they are."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from odin.context.file_cache import FileCache
from odin.core.format import pluralize
from odin.core.text import join_some
from odin.core.tool import ToolContext, ToolOutput, hide_nothing
from odin.sandbox.runner import ProcessRunner
from odin.tools.files import Refusal, find_resolved_path, find_working_folder, to_printable
from odin.tools.ripgrep import SearchQuery, find_ripgrep
from odin.tools.search import (
    MAX_NAMED,
    FileCounts,
    LineHit,
    SearchProgram,
    SearchResult,
    SearchSource,
    count_matches,
    find_in_range,
    find_lines,
    find_paths,
    open_source,
)
from odin.tools.search_args import FindProgram, GrepArgs

HEAD_LIMIT = 250
SHOWN_CHARS = 30_000
LINE_CHARS = 500
MAX_CONTEXT = 10_000
_MAX_VERIFIED = 1000

T = TypeVar("T")


class GrepSearch:
    """Searches with the program that `rg` returns, by default ripgrep if it is installed."""

    def __init__(self, files: FileCache, runner: ProcessRunner, rg: FindProgram | None = None) -> None:
        self._files = files
        self._runner = runner
        self._rg = rg or find_ripgrep

    async def find_matches(self, args: GrepArgs, ctx: ToolContext) -> ToolOutput:
        place = find_resolved_path(args.path, ctx) if args.path is not None else find_working_folder(ctx)
        with open_source(place, ctx.cwd) as source:
            for name, text in (("pattern", args.pattern), ("glob", args.glob or ""), ("type", args.type or "")):
                if "\0" in text or to_printable(text) != text or (name == "pattern" and not text):
                    raise Refusal(f"{name} is empty, or contains a NUL byte or half a surrogate pair.")
            if (args.offset or args.limit) and not source.is_file:
                raise Refusal("offset and limit need path to be one file.")
            around = args.around or 0
            query = SearchQuery(
                pattern=args.pattern,
                path=source.argument,
                glob=args.glob or "",
                type=args.type or "",
                ignore_case=bool(args.ignore_case),
                literal=bool(args.literal_text),
                multiline=bool(args.multiline),
                before=_clamp_context(args.before, around),
                after=_clamp_context(args.after, around),
            )
            is_hidden = hide_nothing if source.is_file else source.hide(ctx.is_hidden)
            program = SearchProgram(source, self._rg(), self._runner, ctx.environment.timing.search_s)
            return await self._search(args, query, program, is_hidden)

    async def _search(
        self, args: GrepArgs, query: SearchQuery, program: SearchProgram, is_hidden: Callable[[str], bool]
    ) -> ToolOutput:
        if args.output_mode in (None, "content"):
            if args.offset or args.limit:
                first = max(1, args.offset or 1)
                last = first + args.limit - 1 if args.limit else sys.maxsize
                result = await find_in_range(query, first, last, program)
            else:
                result = await find_lines(query, program)
            return await self._format_content(await _verify(result, program.source), args, query, program, is_hidden)
        counts = args.output_mode == "count"
        result = await (count_matches if counts else find_paths)(query, program)
        if not program.source.is_settled(path for path, _ in result.files):
            lines = await _verify(await find_lines(replace(query, before=0, after=0), program), program.source)
            result = FileCounts([(file.path, file.matches) for file in lines.files], lines.complete)
        files = [(path, count) for path, count in result.files if not is_hidden(path)]
        if not counts:
            total = pluralize(len(files), "file")
            return _format_list([path for path, _ in files], args, result.complete, total, is_hidden)
        total = f"{pluralize(sum(count for _, count in files), 'matching line')} in {pluralize(len(files), 'file')}"
        return _format_list([f"{path}:{count}" for path, count in files], args, result.complete, total, is_hidden)

    async def _format_content(
        self,
        result: SearchResult,
        args: GrepArgs,
        query: SearchQuery,
        program: SearchProgram,
        is_hidden: Callable[[str], bool],
    ) -> ToolOutput:
        files = [file for file in result.files if not is_hidden(file.path)]
        rows = sum(file.rows for file in files) + (max(0, len(files) - 1) if query.context else 0)
        matches = sum(file.matches for file in files)
        hits = (hit for file in files for hit in file.hits())
        shown = list(_limit_rows(_render_rows(hits, args, query), args))
        shown_hits = [hit for _, hit in shown if hit is not None]
        changed = await _find_changed(self._files, program.source, shown_hits)
        lines = [text for text, hit in shown if hit is None or hit.path not in changed]
        remarks = [*_describe_cut(len(shown), rows, result.complete), *_describe_hidden(shown, is_hidden)]
        if changed:
            remarks.append(
                f"(left out because they changed during the search: {join_some(sorted(changed), MAX_NAMED)})"
            )
        return _build_output(
            args, lines, remarks, _format_total(result.complete, pluralize(matches, "match", "matches"))
        )


async def _find_changed(files: FileCache, source: SearchSource, hits: list[LineHit]) -> set[str]:
    """Return the files in which a line is not as found. All other lines count as read."""
    from odin.tools.staleness import confirm_lines

    return await asyncio.to_thread(confirm_lines, files, source, hits, LINE_CHARS)


async def _verify(result: SearchResult, source: SearchSource) -> SearchResult:
    """Return the results whose lines are in the files. If no folder has changed during the search, all of them are."""
    if source.is_settled(file.path for file in result.files):
        return result
    first = result.files[:_MAX_VERIFIED]
    hits = [hit for file in first for hit in file.hits()]
    changed = await _find_changed(FileCache(), source, hits)
    files = [file for file in first if file.path not in changed]
    return SearchResult(files, result.complete and len(result.files) <= _MAX_VERIFIED)


def _clamp_context(lines: float | None, around: float) -> int:
    return int(min(max(0, lines if lines is not None else around), MAX_CONTEXT))


def _render_rows(hits: Iterable[LineHit], args: GrepArgs, query: SearchQuery) -> Iterator[tuple[str, LineHit | None]]:
    """Format hits like ripgrep: `path:line:text` for a match, dashes for context, `--` between groups."""
    previous: LineHit | None = None
    for hit in hits:
        if query.context and previous and (hit.path != previous.path or hit.line > previous.line + 1):
            yield "--", None
        previous = hit
        sign = ":" if hit.is_match else "-"
        text = hit.text
        if len(text) > LINE_CHARS:
            text = f"{text[:LINE_CHARS]}... [line cut: {LINE_CHARS} of {len(text)} characters]"
        number = "" if args.line_numbers is False else f"{sign}{hit.line}"
        yield f"{hit.path}{number}{sign}{text}", hit


def _limit_rows(rows: Iterable[tuple[str, T]], args: GrepArgs) -> Iterator[tuple[str, T]]:
    """Yield at most head_limit rows, and not more than fit into the result."""
    limit = int(args.head_limit) if args.head_limit and args.head_limit >= 1 else HEAD_LIMIT
    size = 0
    for count, (text, hit) in enumerate(rows):
        size += len(text) + 1
        if count >= limit or (size > SHOWN_CHARS and count):
            return
        yield text, hit


def _format_list(
    lines: list[str], args: GrepArgs, complete: bool, total: str, is_hidden: Callable[[str], bool]
) -> ToolOutput:
    shown = [line for line, _ in _limit_rows(((line, None) for line in lines), args)]
    remarks = [*_describe_cut(len(shown), len(lines), complete), *_describe_hidden(shown, is_hidden)]
    return _build_output(args, shown, remarks, _format_total(complete, total))


def _describe_hidden(shown: Sequence[object], is_hidden: Callable[[str], bool]) -> list[str]:
    """Return a line about hidden files if nothing else was found.

    It never depends on the hidden files: whether a pattern matches in them would tell what they contain.
    """
    if shown or is_hidden is hide_nothing:
        return []
    return ["(files that a permission rule or a secret name protects are not searched; name a file to ask for it)"]


def _format_total(complete: bool, total: str) -> str:
    return total if complete else f"more than {total}"


def _describe_cut(shown: int, total: int, complete: bool) -> list[str]:
    if not complete:
        return [
            f"(showing the first {shown} results; the search was stopped because there are too many; "
            "narrow it down by pattern, path, glob or type)"
        ]
    if shown < total:
        return [f"(showing the first {shown} of {total} results; narrow it down or raise head_limit)"]
    return []


def _build_output(args: GrepArgs, shown: list[str], remarks: list[str], total: str) -> ToolOutput:
    where = f" in {args.path}" if args.path else ""
    note = to_printable(f"Searched {args.pattern!r}{where}: {total}")
    return ToolOutput(text=to_printable("\n".join([*(shown or ["No matches found"]), *remarks])), note=note)
