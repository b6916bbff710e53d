"""What the model asks language servers about symbols, and the renaming of one.

Places are lines of the form `path:line:column`, bounded in number and length. Nothing that a server sends is trusted.
It says which places a renaming changes. Odin writes the new name there and nothing else, in all files or none.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.context.file_cache import FileCache, hash_bytes
from odin.core.format import pluralize
from odin.core.path_names import contains
from odin.core.tool import ResolvedPath, ToolContext, ToolOutput
from odin.lsp.arguments import LspArgs, RenameArgs
from odin.lsp.detection import SCRIPT_TYPES
from odin.lsp.documents import OpenDocument, read_source
from odin.lsp.protocol import Position, PositionMap, Range, ServerFault, uri_to_path
from odin.lsp.server import LanguageServer
from odin.lsp.servers import LanguageServers, shorten_path
from odin.policy.command_scope import CommandScope
from odin.policy.paths import resolve_given
from odin.tools.change_preview import preview_diff
from odin.tools.diff import compare
from odin.tools.file_patch import PlannedFile, write_all
from odin.tools.files import Refusal, decode, find_resolved_path, to_printable
from odin.tools.patch import FilePatch
from odin.tools.staleness import read_current_bytes

MAX_LOCATIONS = 50
MAX_SYMBOLS = 200
MAX_LINE_CHARS = 200
MAX_HOVER_CHARS = 4_000
MAX_RENAMED_FILES = 200

_CAPABILITIES: dict[str, str] = {
    "definition": "definitionProvider",
    "references": "referencesProvider",
    "implementation": "implementationProvider",
    "hover": "hoverProvider",
    "symbols": "documentSymbolProvider",
}

_KINDS = (
    *("file", "module", "namespace", "package", "class", "method", "property", "field", "constructor", "enum"),
    *("interface", "function", "variable", "constant", "string", "number", "boolean", "array", "object", "key"),
    *("null", "member", "struct", "event", "operator", "type-parameter"),
)
"""The kinds of symbols; the protocol counts them from 1."""

_LOADING = "{} is still loading the project, so this may be incomplete."


async def answer(servers: LanguageServers | None, args: LspArgs, ctx: ToolContext) -> ToolOutput:
    """Return the answer to a call of `lsp`. Raise Refusal if there is none."""
    servers = _require_servers(servers)
    try:
        if args.action == "symbols" and not args.path:
            return await _list_project_symbols(servers, args.query, ctx)
        server, document = await _open_document(servers, find_resolved_path(args.path, ctx))
        if not server.supports(_CAPABILITIES[args.action]):
            raise Refusal(f"{server.spec.name} does not support {args.action}.")
        if args.action == "symbols":
            result = await server.ask("textDocument/documentSymbol", {"textDocument": {"uri": document.uri}})
            positions = server.map_positions(document.source.text)
            lines: list[str] = []
            for depth, symbol in _parse_symbols(result):
                span = symbol.selectionRange or symbol.range or (symbol.location.range if symbol.location else None)
                if span is not None:
                    number = positions.to_place(span.start)[0]
                    name = f"{'  ' * depth}{symbol.name[:MAX_LINE_CHARS]} ({_get_kind(symbol)})"
                    lines.append(f"{shorten_path(document.path, servers.shown_from)}:{number}: {name}")
            return _make_output(_bound(lines) or "No symbols found.", "symbol", len(lines))
        text = document.source.text
        position = _find_position(text, server.map_positions(text), args.path, args.line, args.character, args.symbol)
        params: dict[str, Any] = {
            "textDocument": {"uri": document.uri},
            "position": {"line": position.line, "character": position.character},
        }
        if args.action == "references":
            params["context"] = {"includeDeclaration": True}
        result = await server.ask(f"textDocument/{args.action}", params)
        if args.action == "hover":
            text = _format_hover(result)
            return ToolOutput(text=to_printable(text) or "Nothing is known about it.", note=to_printable(text[:60]))
        lines = _format_locations(_parse_locations(result), server, servers, ctx)
        what = {"definition": "definition", "references": "reference", "implementation": "implementation"}[args.action]
        text = "\n".join(lines) or f"No {what} found."
        loading = f"\n{_LOADING.format(server.spec.name)}" if server.is_loading else ""
        return _make_output(f"{text}{loading}", what, len(lines))
    except ServerFault as fault:
        raise Refusal(f"The language server cannot answer: {fault}.") from None


def _require_servers(servers: LanguageServers | None) -> LanguageServers:
    if servers is None:
        raise Refusal("Too many folders have language servers in this session.")
    return servers


async def _open_document(servers: LanguageServers, place: ResolvedPath) -> tuple[LanguageServer, OpenDocument]:
    server = await servers.find_navigator(place.path)
    servers.report_changes()
    document = server.follow(place.path)
    if document is None:
        raise Refusal(f"{place.shown} does not exist, or is too large or no text.")
    await server.settle(document)
    return server, document


def _find_position(
    text: str, positions: PositionMap, path: str, line: int | None, character: int | None, symbol: str
) -> Position:
    """Return the position of a symbol. Raise Refusal if it is not there."""
    if symbol:
        found = _compile_name(symbol).search(text if line is None else positions.get_line(line))
        if found is None:
            where = f"in line {line} of {path}" if line else f"in {path}"
            raise Refusal(f"{symbol!r} is not {where}.")
        offset = found.start() if line is None else (positions.find_offset(line, found.start() + 1) or 0)
        return positions.to_position(offset)
    at = positions.find_offset(line or 1, character or _find_first_column(positions.get_line(line or 1)))
    if at is None:
        raise Refusal(f"{path} has no line {line}.")
    return positions.to_position(at)


def _compile_name(symbol: str) -> re.Pattern[str]:
    """Return a pattern for the whole name, not for a part of another one."""
    return re.compile(rf"(?<!\w){re.escape(symbol)}(?!\w)")


def _find_first_column(line: str) -> int:
    return len(line) - len(line.lstrip()) + 1


def _make_output(text: str, what: str, count: int) -> ToolOutput:
    note = pluralize(count, what) if count else f"no {what}"
    return ToolOutput(text=to_printable(text), note=note)


class _RawLocation(Struct):
    uri: str | None = None
    range: Range | None = None
    targetUri: str | None = None  # noqa: N815
    targetSelectionRange: Range | None = None  # noqa: N815


def _parse_locations(result: Any) -> Iterator[tuple[str, Range]]:
    """Yield the files and ranges of a result. What is no location is left out."""
    for item in cast("list[Any]", result) if isinstance(result, list) else [result]:
        try:
            raw = msgspec.convert(item, _RawLocation)
        except msgspec.ValidationError:
            continue
        path, span = uri_to_path(raw.uri or raw.targetUri), raw.range or raw.targetSelectionRange
        if path and span is not None:
            yield path, span


def _format_locations(
    found: Iterator[tuple[str, Range]], server: LanguageServer, servers: LanguageServers, ctx: ToolContext
) -> list[str]:
    """Return one line for each place, with its text if the file belongs to the project and may be shown."""
    maps: dict[str, PositionMap | None] = {}
    places: dict[tuple[str, int, int], str] = {}
    for path, span in found:
        if ctx.is_hidden(path):
            continue
        if path not in maps:
            inside = path.startswith(f"{servers.root}/")
            source = read_source(path) if inside and len(maps) < MAX_LOCATIONS else None
            maps[path] = server.map_positions(source.text) if source else None
        positions = maps[path]
        line, column = positions.to_place(span.start) if positions else (span.start.line + 1, span.start.character + 1)
        text = positions.get_line(line).strip()[:MAX_LINE_CHARS] if positions else ""
        name = shorten_path(path, servers.shown_from)
        places[path, line, column] = f"{name}:{line}:{column}{f': {text}' if text else ''}"
    lines = [places[key] for key in sorted(places)]
    more = len(lines) - MAX_LOCATIONS
    return [*lines[:MAX_LOCATIONS], f"... and {more} more"] if more > 0 else lines


def _format_hover(result: Any) -> str:
    contents = cast("dict[str, Any]", result).get("contents") if isinstance(result, dict) else None
    parts = cast("list[Any]", contents) if isinstance(contents, list) else [contents]
    texts = [cast("dict[str, Any]", part).get("value") if isinstance(part, dict) else part for part in parts]
    text = "\n\n".join(text.strip() for text in texts if isinstance(text, str))
    return text if len(text) <= MAX_HOVER_CHARS else f"{text[:MAX_HOVER_CHARS]}..."


class _RawSymbol(Struct):
    name: str
    kind: int = 0
    range: Range | None = None
    selectionRange: Range | None = None  # noqa: N815
    location: _RawLocation | None = None
    containerName: str | None = None  # noqa: N815
    children: list[Any] | None = None


def _parse_symbols(result: Any, depth: int = 0) -> Iterator[tuple[int, _RawSymbol]]:
    for item in cast("list[Any]", result) if isinstance(result, list) and depth < 20 else ():
        try:
            symbol = msgspec.convert(item, _RawSymbol)
        except msgspec.ValidationError:
            continue
        yield depth, symbol
        yield from _parse_symbols(symbol.children, depth + 1)


def _get_kind(symbol: _RawSymbol) -> str:
    return _KINDS[symbol.kind - 1] if 1 <= symbol.kind <= len(_KINDS) else "symbol"


async def _list_project_symbols(servers: LanguageServers, query: str, ctx: ToolContext) -> ToolOutput:
    """Ask all servers of the project at once. Those that fail are named with the symbols of the others."""
    asked = servers.list_navigators()
    answers = await asyncio.gather(*(_find_symbols(servers, server, query) for server in asked), return_exceptions=True)
    lines: list[str] = []
    failures: list[str] = []
    for server, answer in zip(asked, answers, strict=True):
        if isinstance(answer, ServerFault):
            failures.append(f"{server.spec.name} cannot answer: {answer}.")
        elif isinstance(answer, BaseException):
            raise answer
        elif answer is not None:
            lines += _format_symbols(answer, servers.shown_from, ctx)
    failures += [_LOADING.format(server.spec.name) for server in asked if server.is_loading]
    if all(answer is None or isinstance(answer, ServerFault) for answer in answers):
        reason = "No language server of this project can search for symbols. Use Grep."
        raise Refusal("\n".join([*failures, reason]))
    text = _bound(lines, MAX_LOCATIONS) or f"No symbol matches {query!r}."
    return _make_output("\n".join([text, *failures]), "symbol", len(lines))


async def _find_symbols(servers: LanguageServers, server: LanguageServer, query: str) -> list[_RawSymbol] | None:
    """Return the symbols that a server finds in the project; None if it cannot search. Raise ServerFault."""
    await servers.load_project(server)
    if not server.supports("workspaceSymbolProvider"):
        return None
    result = await server.ask("workspace/symbol", {"query": query})
    return [symbol for _, symbol in _parse_symbols(result)]


def _format_symbols(symbols: Iterable[_RawSymbol], root: str, ctx: ToolContext) -> Iterator[str]:
    for symbol in symbols:
        path = uri_to_path(symbol.location.uri if symbol.location else None)
        if not path or ctx.is_hidden(path):
            continue
        span = symbol.location.range if symbol.location else None
        line = f":{span.start.line + 1}" if span is not None else ""
        owner = f" in {symbol.containerName[:100]}" if symbol.containerName else ""
        shown = f"{symbol.name[:MAX_LINE_CHARS]} ({_get_kind(symbol)}{owner})"
        yield f"{shorten_path(path, root)}{line}: {shown}"


def _bound(lines: Sequence[str], limit: int = MAX_SYMBOLS) -> str:
    more = [f"... and {len(lines) - limit} more"] if len(lines) > limit else []
    return "\n".join([*lines[:limit], *more])


# --- rename ---


class _RawTextEdit(Struct):
    range: Range
    newText: str  # noqa: N815


class RenamedFile(Struct, frozen=True):
    """The text of a file before and after a renaming, as the server read it."""

    path: str
    before: str
    after: str
    count: int


class RenamePlan(Struct, frozen=True):
    """The files of a renaming, or why there are none."""

    files: tuple[RenamedFile, ...] = ()
    failure: str = ""


async def plan_rename(servers: LanguageServers | None, args: RenameArgs, ctx: ToolContext) -> RenamePlan:
    """Ask the server what a renaming changes."""
    try:
        return RenamePlan(await _find_changes(_require_servers(servers), args, ctx))
    except (Refusal, ServerFault, OSError) as error:
        return RenamePlan(failure=str(error))


async def _find_changes(servers: LanguageServers, args: RenameArgs, ctx: ToolContext) -> tuple[RenamedFile, ...]:
    server, document = await _open_document(servers, resolve_given(args.path, ctx.cwd, ctx.environment.home))
    name = server.spec.name
    if not server.supports("renameProvider"):
        raise Refusal(f"{name} does not support renaming.")
    if server.is_loading:
        raise Refusal(f"{name} is still loading the project, so it does not know all places. Repeat the call.")
    text = document.source.text
    position = _find_position(text, server.map_positions(text), args.path, args.line, None, args.symbol)
    at = {"line": position.line, "character": position.character}
    params = {"textDocument": {"uri": document.uri}, "position": at, "newName": args.new_name}
    edits = _parse_workspace_edit(await server.ask("textDocument/rename", params))
    if not edits:
        raise Refusal(f"The language server finds nothing to rename at {args.symbol!r}.")
    if len(edits) > MAX_RENAMED_FILES:
        raise Refusal(f"This would change {len(edits)} files; {MAX_RENAMED_FILES} is the limit.")
    scope = CommandScope(servers.root, servers.root, ctx.environment)
    return tuple(_apply_edits(path, items, server, scope, args) for path, items in sorted(edits.items()))


def _parse_workspace_edit(result: Any) -> dict[str, list[_RawTextEdit]]:
    """Return the text edits by file. Raise Refusal for what is not a change of text."""
    fields = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
    pairs: list[tuple[Any, Any]] = []
    for change in cast("list[Any]", fields.get("documentChanges") or ()):
        item = cast("dict[str, Any]", change) if isinstance(change, dict) else {}
        if "kind" in item:
            raise Refusal("The language server wants to create, move or delete files, which lsp_rename does not do.")
        document = item.get("textDocument")
        uri = cast("dict[str, Any]", document).get("uri") if isinstance(document, dict) else ""
        pairs.append((uri, item.get("edits")))
    if not pairs and isinstance(fields.get("changes"), dict):
        pairs = list(cast("dict[str, Any]", fields["changes"]).items())
    edits: dict[str, list[_RawTextEdit]] = {}
    for uri, items in pairs:
        path = uri_to_path(uri)
        try:
            parsed = msgspec.convert(items, list[_RawTextEdit])
        except msgspec.ValidationError as error:
            raise Refusal(f"The language server sent an edit that is none: {error}.") from None
        if not path:
            raise Refusal(f"The language server wants to change {str(uri)[:200]}, which is no file.")
        edits.setdefault(path, []).extend(parsed)
    return {path: items for path, items in edits.items() if items}


def _apply_edits(
    path: str, edits: Sequence[_RawTextEdit], server: LanguageServer, scope: CommandScope, args: RenameArgs
) -> RenamedFile:
    """Return the file with its edits. Raise Refusal if one does more than to rename the symbol in the project."""
    resolved = resolve_given(path, scope.root, scope.environment.home)
    if not contains(scope.root, path) or not contains(scope.root, resolved.path):
        raise Refusal(f"The renaming would change {path}, which is outside the project.")
    if not server.spec.covers(resolved.path) or scope.find_protected_part(resolved.path):
        raise Refusal(f"The renaming would change {path}, which is protected or no file of {server.spec.name}.")
    source = read_source(resolved.path)
    if source is None:
        raise Refusal(f"The renaming would change {path}, which cannot be read as text.")
    positions, name = server.map_positions(source.text), _compile_name(args.symbol)
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.range.start.line, edit.range.start.character)):
        start, end = positions.to_offset(edit.range.start), positions.to_offset(edit.range.end)
        if start < at:
            raise Refusal(f"The language server sent overlapping edits for {path}.")
        found = name.match(source.text, start)
        is_exact = Range(positions.to_position(start), positions.to_position(end)) == edit.range
        if not is_exact or found is None or found.end() != end or edit.newText not in _list_spellings(args, path):
            raise Refusal(
                f"The language server would do more than rename {args.symbol!r}: in {path}, it replaces "
                f"{source.text[start:end][:80]!r} by {edit.newText[:80]!r}. Nothing was renamed; use the edit tools."
            )
        parts += [source.text[at:start], edit.newText]
        at = end
    return RenamedFile(resolved.path, source.text, "".join([*parts, source.text[at:]]), len(edits))


def _list_spellings(args: RenameArgs, path: str) -> tuple[str, ...]:
    """Return what may stand for the old name: the new one, and in TypeScript what keeps the other name of a place."""
    old, new = args.symbol, args.new_name
    if not path.endswith(SCRIPT_TYPES):
        return (new,)
    return new, f"{old}: {new}", f"{new}: {old}", f"{old} as {new}", f"{new} as {old}"


async def preview_rename(plan: RenamePlan) -> str:
    """Return the differences of all files."""

    async def diff() -> str:
        return "".join(compare(file.before, file.after, file.path).text for file in plan.files)

    return await preview_diff(diff())


def plan_files(plan: RenamePlan, cache: FileCache, ctx: ToolContext) -> list[PlannedFile]:
    """Return the files to write. Raise Refusal if one is not as the server read it."""
    return [_plan_file(file, cache, ctx) for file in plan.files]


def _plan_file(file: RenamedFile, cache: FileCache, ctx: ToolContext) -> PlannedFile:
    place = find_resolved_path(file.path, ctx)
    data = read_current_bytes(cache, place, ctx.cwd, too_large="rename in")
    decoded = decode(data or b"")
    if decoded is None or to_printable(decoded.text) != file.before:
        raise Refusal(f"{place.shown} has changed in the meantime. Nothing was renamed; repeat the call.")
    if decoded.text != file.before:
        raise Refusal(f"{place.shown} is not valid text in any known encoding. Nothing was renamed.")
    decoded.check_text(file.after, "new_name")
    return PlannedFile(FilePatch("update", file.path), place, data, decoded, file.after)


async def write_rename(plan: RenamePlan, args: RenameArgs, cache: FileCache, ctx: ToolContext) -> ToolOutput:
    """Change all files, or none and raise Refusal."""
    planned = plan_files(plan, cache, ctx)
    counts = {file.path: file.count for file in plan.files}
    seen = [file.place.path for file in planned if _has_seen_all(file, cache)]
    await write_all(cache, planned)
    for file in planned:
        if file.place.path not in seen:
            cache.forget(file.place.path)
    diffs = [compare(file.style.text, file.text, file.name) for file in planned]
    total = pluralize(sum(counts.values()), "place")
    done = f"Renamed {args.symbol} to {args.new_name}: {total} in {pluralize(len(planned), 'file')}"
    lines = [f"{file.place.shown} ({counts[file.patch.path]})" for file in planned]
    return ToolOutput(
        text=to_printable("\n".join([f"{done}.", *lines])),
        note=to_printable(done),
        view=to_printable("".join(diff.text for diff in diffs)),
        files=tuple(to_printable(file.place.path) for file in planned),
    )


def _has_seen_all(file: PlannedFile, cache: FileCache) -> bool:
    path = file.place.path
    is_current = cache.compare(path, hash_bytes(file.before or b"")) == "current"
    return is_current and not cache.list_unseen(path)
