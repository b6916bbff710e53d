"""The report of a run as Markdown, HTML, JSON or JUnit. What comes from tasks and agents is text in all of them."""

import re
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from odin.core.format import format_duration, format_time, format_usd
from odin.fleet.board import list_facts
from odin.fleet.engine import FleetRun, TaskState
from odin.fleet.result_store import open_store
from odin.fleet.summary import FleetSummary, get_seconds, get_status, get_usd, summarize
from odin.session.export_html import escape_text, render_head
from odin.session.export_markdown import escape_line, render_fenced


class ReportedTask(Struct, frozen=True):
    """A task in a report. `status` is its outcome, or `waiting`, `running` or `paused`. `files` are places in a store.

    `usd` includes what the task cost before its user had it start over.
    """

    id: str
    status: str
    reason: str
    detail: str
    repository: str
    revision: str
    model: str
    pool: str
    prompt: str
    session: str
    attempts: int
    retries: int
    requests: int
    tokens_in: int
    tokens_out: int
    usd: float
    seconds: float
    started: float
    ended: float
    files: tuple[str, ...]


class FleetReport(Struct, frozen=True):
    """A run at the moment `written`, in seconds since 1970 as all times are. What does not pass comes first."""

    run: FleetRun
    written: float
    summary: FleetSummary
    tasks: tuple[ReportedTask, ...]


_ORDER = ("failed", "not_run", "cancelled", "running", "paused", "waiting", "passed")


def make_report(run: FleetRun, states: Sequence[TaskState], now: float) -> FleetReport:
    store = open_store(run.store)
    tasks: list[ReportedTask] = []
    for state in states:
        task, result = state.task, state.result
        seen = result or state.progress
        tasks.append(
            ReportedTask(
                task.id,
                get_status(state),
                result.reason if result else "",
                result.detail if result else "",
                task.repository,
                task.revision,
                task.model,
                task.pool,
                task.prompt,
                result.session if result else "",
                state.attempt,
                state.retries,
                seen.requests,
                result.tokens_in if result else state.progress.tokens,
                result.tokens_out if result else 0,
                get_usd(state),
                get_seconds(state, now),
                state.started,
                state.ended,
                tuple(store.locate(f"{task.id}/{name}") for name in result.files) if result else (),
            )
        )
    tasks.sort(key=lambda task: _ORDER.index(task.status))
    return FleetReport(run, now, summarize(states, now), tuple(tasks))


def _list_head(report: FleetReport) -> list[str]:
    run = report.run
    budget = f" Budget {format_usd(run.budget_usd)}." if run.budget_usd else ""
    return [*list_facts(report.summary), f"Started {format_time(run.created)}, results in {run.store}.{budget}"]


_COLUMNS = ("Task", "Outcome", "Why", "Requests", "Tokens", "Cost", "Time")


def _make_cells(task: ReportedTask) -> tuple[str, ...]:
    tokens = f"{task.tokens_in + task.tokens_out:,}"
    took = format_duration(task.seconds)
    return (
        task.id,
        task.status.replace("_", " "),
        task.reason,
        f"{task.requests:,}",
        tokens,
        format_usd(task.usd),
        took,
    )


def _list_details(tasks: Iterable[ReportedTask]) -> list[ReportedTask]:
    return [task for task in tasks if task.status in ("failed", "not_run")]


# --- Markdown ---


def format_markdown(report: FleetReport) -> str:
    lines = [f"# {escape_line(report.run.name)}", "", *(f"{escape_line(line)}  " for line in _list_head(report)), ""]
    lines += [f"| {' | '.join(_COLUMNS)} |", "|---|---|---|---:|---:|---:|---:|"]
    lines += [f"| {' | '.join(map(escape_line, _make_cells(task)))} |" for task in report.tasks]
    text = "\n".join(lines) + "\n"
    for task in _list_details(report.tasks):
        text += f"\n## {escape_line(task.id)}\n\n{escape_line(task.prompt)}\n\n"
        text += render_fenced(task.detail) if task.detail else ""
        text += f"Session {escape_line(task.session)}\n" if task.session else ""
    return text


# --- HTML ---

_STYLE = """
body{max-width:72rem}
td:nth-child(n+4),th:nth-child(n+4){text-align:right;white-space:nowrap}
h2{margin:1.5rem 0 .6rem}
@media(min-width:40rem){dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .8rem}}
.passed{color:var(--plus)}.failed,.not_run{color:var(--minus)}
"""


def format_html(report: FleetReport) -> str:
    rows = "".join(_render_row(task) for task in report.tasks)
    heads = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    facts = "".join(f"<p>{escape_text(line)}</p>\n" for line in _list_head(report))
    details = "".join(map(_render_details, report.tasks))
    return (
        f"<!doctype html>\n{render_head(report.run.name, _STYLE)}\n<body>\n"
        f"<header>\n<h1>{escape_text(report.run.name)}</h1>\n{facts}</header>\n<main>\n"
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n'
        f"<h2>Tasks</h2>\n{details}</main>\n</body>\n</html>\n"
    )


def _render_row(task: ReportedTask) -> str:
    name, outcome, *others = map(escape_text, _make_cells(task))
    cells = "".join(f"<td>{cell}</td>" for cell in others)
    return f'<tr><td><a href="#{name}">{name}</a></td><td class="{task.status}">{outcome}</td>{cells}</tr>\n'


def _render_details(task: ReportedTask) -> str:
    facts = {
        "Repository": f"{task.repository} {task.revision}".strip(),
        "Model": task.model or task.pool,
        "Session": task.session,
        "Attempts": str(task.attempts) if task.attempts > 1 else "",
        "Files": "\n".join(task.files),
    }
    body = "".join(
        f"<dt>{name}</dt><dd>{escape_text(value).replace(chr(10), '<br>')}</dd>"
        for name, value in facts.items()
        if value
    )
    body = f'<dl>{body}</dl><pre class="wrap">{escape_text(task.prompt)}</pre>'
    body += f'<pre class="wrap bad">{escape_text(task.detail)}</pre>' if task.detail else ""
    is_open = " open" if task.status in ("failed", "not_run") else ""
    name = escape_text(task.id)
    head = f'<b>{name}</b> <span class="{task.status}">{task.status.replace("_", " ")}</span>'
    return f'<details id="{name}"{is_open}><summary>{head}</summary><div>{body}</div></details>\n'


# --- JSON ---


def format_json(report: FleetReport) -> str:
    return msgspec.json.encode(report).decode() + "\n"


# --- JUnit ---

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def format_junit(report: FleetReport) -> str:
    """A task that did not run is an error, one that was cancelled or is not done is skipped."""
    from xml.etree import ElementTree

    summary = report.summary
    skipped = summary.total - summary.passed - summary.failed - summary.not_run
    suite = ElementTree.Element(
        "testsuite",
        name=report.run.name,
        tests=str(summary.total),
        failures=str(summary.failed),
        errors=str(summary.not_run),
        skipped=str(skipped),
        time=f"{summary.seconds:.3f}",
        timestamp=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(report.run.created)),
    )
    for task in report.tasks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_clean(task.repository or report.run.name),
            name=task.id,
            time=f"{task.seconds:.3f}",
        )
        kind = {"passed": "", "failed": "failure", "not_run": "error"}.get(task.status, "skipped")
        if kind:
            first = task.detail.partition("\n")[0]
            told = ElementTree.SubElement(case, kind, message=_clean(first or task.reason or task.status))
            if kind != "skipped":
                told.set("type", _clean(task.reason or task.status))
                told.text = _clean(task.detail)
        out = "\n".join(filter(None, (task.session and f"session {task.session}", *task.files)))
        if out:
            ElementTree.SubElement(case, "system-out").text = _clean(out)
    ElementTree.indent(suite)
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{ElementTree.tostring(suite, encoding='unicode')}\n"


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


FORMATS: dict[str, Callable[[FleetReport], str]] = {
    "markdown": format_markdown,
    "html": format_html,
    "json": format_json,
    "junit": format_junit,
}
