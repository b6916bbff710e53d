"""Text and parsing of /status and /diff."""

import shlex
from collections.abc import Iterable, Sequence

from odin.core.client import AvailableModel, ChangedFile, Client, SessionInfo, Snapshot
from odin.core.format import count_of, format_count, shorten_home
from odin.core.slash_commands import make_usage_error
from odin.core.usage import UsageTotals
from odin.ui.slash_commands.reports import format_cost
from odin.ui.terminal import TextPainter, TextStyle, escape_control, escape_hidden


async def gather_status(client: Client) -> list[tuple[str, str]]:
    """Return the status of a session as pairs of label and value. Asks no server."""
    info, shot, models = await client.get_info(), await client.snapshot(), await client.list_models()
    return [(label, escape_hidden(value)) for label, value in _list_status(info, shot, models) if value]


def _list_status(info: SessionInfo, shot: Snapshot, models: Iterable[AvailableModel]) -> list[tuple[str, str]]:
    entry = _find_model(info.model, models)
    provider = info.model.partition("/")[0]
    address = f" ({entry.address})" if entry is not None and entry.address else ""
    title = f" ({shot.title})" if shot.title else ""
    return [
        ("version", info.version),
        ("model", info.model),
        ("provider", f"{provider}{address}"),
        ("key", entry.note.removeprefix("key: ") if entry is not None else "unknown"),
        ("directory", shorten_home(info.cwd)),
        ("branch", info.branch),
        ("sandbox", info.sandbox or "none"),
        ("permissions", info.permission_mode),
        ("session", f"{info.session}{title}"),
        ("usage", _describe_usage(shot)),
        ("warnings", f"{count_of(len(info.warnings), 'warning')}; /diagnostics shows them" if info.warnings else ""),
    ]


def _find_model(ref: str, models: Iterable[AvailableModel]) -> AvailableModel | None:
    """Return the entry of a model, or of another one of its provider: both are reached with the same key."""
    same_provider = [item for item in models if item.ref.partition("/")[0] == ref.partition("/")[0]]
    return next((item for item in same_provider if item.ref == ref), same_provider[0] if same_provider else None)


def _describe_usage(shot: Snapshot) -> str:
    total = sum(shot.spent_by_model.values(), UsageTotals())
    if not total.calls:
        return "none yet"
    used = total.usage
    tokens = used.input + used.cache_read + used.cache_write + used.output
    cost = format_cost(total.cost_usd, total.unpriced)
    return f"{count_of(total.calls, 'model call')}, {format_count(tokens)} tokens, {cost}"


NO_CHANGES = "No uncommitted changes."


def parse_paths(rest: str) -> list[str]:
    """Parse the arguments of /diff. Raise UsageError for an open quote."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise make_usage_error("diff", f"Cannot parse the path: {error}.") from None


def summarize_changes(files: Sequence[ChangedFile]) -> str:
    """Return a line such as `3 files changed, +12 −4`."""
    counts = f"+{sum(file.added for file in files):,} −{sum(file.removed for file in files):,}"
    return f"{count_of(len(files), 'file')} changed, {counts}"


def describe_changed_file(file: ChangedFile) -> str:
    """Return a line such as `src/a.py (added, +12 −0)`."""
    counts = f", +{file.added:,} −{file.removed:,}" if file.added or file.removed else ""
    return f"{escape_hidden(file.path)} ({file.status}{counts})"


def format_changes(files: Sequence[ChangedFile], painter: TextPainter) -> str:
    if not files:
        return f"{NO_CHANGES}\n"
    lines: list[str] = []
    for file in files:
        lines.append(painter.paint(describe_changed_file(file), "bold"))
        hunks = file.diff.split("\n")[2:]
        lines += [_paint_line(escape_control(line.replace("\r", "")), painter) for line in hunks]
        lines.append("")
    return "\n".join([*lines, summarize_changes(files), ""])


_SIGN_STYLES: dict[str, TextStyle] = {"+": "green", "-": "red", "@": "cyan"}


def _paint_line(line: str, painter: TextPainter) -> str:
    style = _SIGN_STYLES.get(line[:1])
    return painter.paint(line, style) if style else line
