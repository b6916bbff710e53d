"""A session as Markdown: prompts quoted, answers as the model wrote them, calls folded."""

import re
from collections.abc import Callable, Iterable

import msgspec

from odin.session.export.overview import Overview
from odin.session.export.story import AnswerEntry, CallEntry, Entry, PromptEntry, RemarkEntry, TodosEntry
from odin.session.export.words import called, dollars, ending, languages, moment, plain, tokens

_BOXES = {"completed": "[x]", "cancelled": "[-]"}


def write_markdown(about: Overview, told: Iterable[Entry], mark: str, write: Callable[[str], None]) -> None:
    write(f"{mark}\n# {_line(about.name)}\n\n{_facts(about)}\n")
    for entry in told:
        write(_entry(entry))


def _facts(about: Overview) -> str:
    rows = [
        f"- Session: {about.session}",
        f"- Folder: `{_line(about.cwd)}`",
        f"- Model: {_line(about.model)}",
        f"- From {moment(about.created)} to {moment(about.modified)}, {len(about.turns)} prompts",
        f"- Usage: {tokens(about.usage)}",
    ]
    if about.cost_usd:
        rows.append(f"- Cost: {dollars(about.cost_usd)}")
    if len(about.usage_by_model) > 1:
        rows += [f"  - {_line(model)}: {tokens(usage)}" for model, usage in sorted(about.usage_by_model.items())]
    return "\n".join(rows) + "\n"


def _entry(entry: Entry) -> str:
    if isinstance(entry, PromptEntry):
        return _prompt(entry)
    if isinstance(entry, AnswerEntry):
        return _answer(entry)
    if isinstance(entry, CallEntry):
        return _call(entry)
    if isinstance(entry, TodosEntry):
        boxes = (f"- {_BOXES.get(todo.status, '[ ]')} {_line(todo.content)}\n" for todo in entry.todos)
        return f"{_whose(entry.agent, 'Todos')}\n\n{''.join(boxes)}\n"
    if isinstance(entry, RemarkEntry):
        folded = _folded("more", _fenced(entry.detail)) if entry.detail else ""
        return f"*{_whose(entry.agent, _line(entry.text))}*\n\n{folded}"
    return "" if entry.agent else f"*{_line(ending(entry))}*\n\n"


def _prompt(entry: PromptEntry) -> str:
    mode = entry.mode.removesuffix("_mode")
    back = " · taken back" if entry.taken_back else ""
    if entry.continues:
        return f"## {entry.number}. Continued ({mode}, {moment(entry.ts)}{back})\n\n"
    head = f"## {entry.number}. Prompt" if entry.number else "### Said meanwhile"
    quoted = "\n".join(f"> {line}".rstrip() for line in plain(entry.text).split("\n"))
    images = "".join(f"\\[image: {_line(called(image))}\\]\n\n" for image in entry.images)
    return f"{head} ({mode}, {moment(entry.ts)}{back})\n\n{quoted}\n\n{images}"


def _answer(entry: AnswerEntry) -> str:
    parts: list[str] = []
    if entry.thinking.strip():
        parts.append(_folded(_whose(entry.agent, "Thinking"), _fenced(entry.thinking)))
    if entry.text.strip():
        whose = f"**{_line(entry.agent)}:**\n\n" if entry.agent else ""
        cut = "\n\n*(interrupted here)*" if entry.interrupted else ""
        parts.append(f"{whose}{plain(entry.text).strip()}{cut}\n\n")
    return "".join(parts)


def _call(entry: CallEntry) -> str:
    args = msgspec.json.format(msgspec.json.encode(entry.args), indent=2).decode()
    inside = _fenced(args, "json")
    if entry.view:
        inside += _fenced(entry.view, languages(entry.name, entry.view))
    inside += _fenced(entry.text)
    inside += "".join(f"Image: `{_line(image.path)}`\n\n" for image in entry.images)
    title = _line(entry.title)[:120]
    status = "" if entry.status == "success" else f" ({entry.status})"
    return _folded(_whose(entry.agent, f"{entry.name}{status} {title}".strip()), inside)


def _whose(agent: str, text: str) -> str:
    return f"{_line(agent)}: {text}" if agent else text


def _line(text: str) -> str:
    """On one line, and no markup: what a session holds must not build its document."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(plain(text).split()))


def _folded(summary: str, inside: str) -> str:
    safe = summary.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "")
    return f"<details><summary>{safe}</summary>\n\n{inside}</details>\n\n"


def _fenced(text: str, language: str = "") -> str:
    """In a fence longer than any in the text."""
    text = plain(text).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"
