"""Writes a session as Markdown: prompts quoted, answers verbatim, tool calls folded."""

import re
from collections.abc import Callable, Iterable

import msgspec

from odin.core.format import format_time, format_usd, pluralize
from odin.session.export_entries import (
    AnswerEntry,
    CallEntry,
    PromptEntry,
    RemarkEntry,
    SessionOverview,
    TodosEntry,
    TranscriptEntry,
    describe_end,
    format_tokens,
    get_image_name,
    get_language,
    strip_control_codes,
)

_CHECKBOXES = {"completed": "[x]", "cancelled": "[-]"}


def write_markdown(
    overview: SessionOverview, entries: Iterable[TranscriptEntry], mark: str, write: Callable[[str], None]
) -> None:
    write(f"{mark}\n# {escape_line(overview.name)}\n\n{_render_facts(overview)}\n")
    for entry in entries:
        write(_render_entry(entry))


def _render_facts(overview: SessionOverview) -> str:
    rows = [
        f"- Session: {overview.session}",
        f"- Folder: `{escape_line(overview.cwd)}`",
        f"- Model: {escape_line(overview.model)}",
        f"- From {format_time(overview.created)} to {format_time(overview.modified)}, "
        f"{pluralize(len(overview.turns), 'prompt')}",
        f"- Usage: {format_tokens(overview.usage)}",
    ]
    if overview.cost_usd:
        rows.append(f"- Cost: {format_usd(overview.cost_usd)}")
    if len(overview.usage_by_model) > 1:
        rows += [
            f"  - {escape_line(model)}: {format_tokens(usage)}"
            for model, usage in sorted(overview.usage_by_model.items())
        ]
    return "\n".join(rows) + "\n"


def _render_entry(entry: TranscriptEntry) -> str:
    if isinstance(entry, PromptEntry):
        mode = entry.mode.removesuffix("_mode")
        rewound = " · rewound" if entry.rewound else ""
        if entry.continues:
            return f"## {entry.number}. Continued ({mode}, {format_time(entry.ts)}{rewound})\n\n"
        head = f"## {entry.number}. Prompt" if entry.number else "### Prompt during the turn"
        quoted = "\n".join(f"> {line}".rstrip() for line in strip_control_codes(entry.text).split("\n"))
        images = "".join(f"\\[image: {escape_line(get_image_name(image))}\\]\n\n" for image in entry.images)
        return f"{head} ({mode}, {format_time(entry.ts)}{rewound})\n\n{quoted}\n\n{images}"
    if isinstance(entry, AnswerEntry):
        parts: list[str] = []
        if entry.thinking.strip():
            parts.append(_render_details(_prefix_agent(entry.agent, "Thinking"), render_fenced(entry.thinking)))
        if entry.text.strip():
            agent = f"**{escape_line(entry.agent)}:**\n\n" if entry.agent else ""
            ending = "\n\n*(interrupted here)*" if entry.interrupted else ""
            parts.append(f"{agent}{strip_control_codes(entry.text).strip()}{ending}\n\n")
        return "".join(parts)
    if isinstance(entry, CallEntry):
        args = msgspec.json.format(msgspec.json.encode(entry.args), indent=2).decode()
        body = render_fenced(args, "json")
        if entry.view:
            body += render_fenced(entry.view, get_language(entry.view))
        body += render_fenced(entry.text)
        body += "".join(f"Image: `{escape_line(image.path)}`\n\n" for image in entry.images)
        title = escape_line(entry.title)[:120]
        status = "" if entry.status == "success" else f" ({entry.status})"
        return _render_details(_prefix_agent(entry.agent, f"{entry.name}{status} {title}".strip()), body)
    if isinstance(entry, TodosEntry):
        boxes = (f"- {_CHECKBOXES.get(todo.status, '[ ]')} {escape_line(todo.content)}\n" for todo in entry.todos)
        return f"{_prefix_agent(entry.agent, 'Todos')}\n\n{''.join(boxes)}\n"
    if isinstance(entry, RemarkEntry):
        folded = _render_details("more", render_fenced(entry.detail)) if entry.detail else ""
        return f"*{_prefix_agent(entry.agent, escape_line(entry.text))}*\n\n{folded}"
    return "" if entry.agent else f"*{escape_line(describe_end(entry))}*\n\n"


def _prefix_agent(agent: str, text: str) -> str:
    return f"{escape_line(agent)}: {text}" if agent else text


def escape_line(text: str) -> str:
    """On one line with Markdown escaped, so that session content cannot add markup."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(strip_control_codes(text).split()))


def _render_details(summary: str, body: str) -> str:
    safe = summary.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "")
    return f"<details><summary>{safe}</summary>\n\n{body}</details>\n\n"


def render_fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    text = strip_control_codes(text).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"
