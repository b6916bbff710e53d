"""How full the window is, what was spent, and what may be."""

from odin.core.client import ContextReport, SessionInfo, Snapshot
from odin.core.errors import UsageError
from odin.core.spent import UsageTotals
from odin.ui.terminal import escape_hidden

_BAR_COLUMNS = 30


def parse_budget(text: str) -> float:
    """The US dollars that were typed. Raises UsageError."""
    try:
        return float(text.removeprefix("$"))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a number of US dollars.", "Write /budget 5, or /budget 0 for none."
        ) from None


def describe_budget(amount: float) -> str:
    return f"This session may cost {format_usd(amount)}." if amount else "This session may cost whatever it takes."


def can_resume_work(shot: Snapshot, amount: float) -> bool:
    """Whether work that a budget had stopped can go on with this one."""
    stopped = bool(shot.messages) and shot.messages[-1].reason == "error_max_budget_usd" and not shot.executing
    return stopped and (amount == 0 or amount > shot.cost_usd)


def format_context(report: ContextReport) -> str:
    """How full the window is, and a line for each source, the largest first."""
    about = "" if report.measured else "about "
    limit = f" of {report.limit:,}" if report.limit else ""
    lines = [f"{escape_hidden(report.model)}: {about}{report.used:,} tokens{limit}"]
    if report.limit:
        part = min(1.0, report.used / report.limit)
        lines[0] += f" ({report.used / report.limit:.0%})"
        lines.append(f"[{'#' * round(part * _BAR_COLUMNS):<{_BAR_COLUMNS}}]")
    else:
        lines[0] += "; how many it can hold is not known"
    widest = max((len(part.source) for part in report.parts), default=0)
    for part in sorted(report.parts, key=lambda part: -part.tokens):
        share = part.tokens / report.used if report.used else 0
        count = f"   {part.count} of them" if part.count > 1 else ""
        lines.append(f"  {escape_hidden(part.source):<{widest}}  {part.tokens:>9,}  {share:>4.0%}{count}")
    if report.threshold:
        lines.append(f"At {report.threshold:,} tokens older parts are made shorter. /compact does it now.")
    if report.compacting:
        lines.append("A summary is being made. /compact cancel gives it up.")
    lines.append(
        "The total is what the model counted; the parts are estimates."
        if report.measured
        else "All of it is an estimate until the next reply."
    )
    return "\n".join(lines) + "\n"


def format_usage(shot: Snapshot, info: SessionInfo) -> str:
    """What this session has spent, by model and by agent."""
    total = sum(shot.spent_by_model.values(), UsageTotals())
    if not total.calls:
        return "No model was asked yet.\n"
    alone = f" ({escape_hidden(next(iter(shot.spent_by_model)))})" if len(shot.spent_by_model) == 1 else ""
    lines = [f"This session{alone}: {format_totals(total)}"]
    groups = [shot.spent_by_model, {name or "main agent": spent for name, spent in shot.spent_by_agent.items()}]
    for group in groups:
        if len(group) > 1:
            width = max(map(len, group))
            lines += [f"  {escape_hidden(name):<{width}}  {format_totals(spent)}" for name, spent in group.items()]
    if total.unpriced:
        lines.append(f"{total.unpriced:,} tokens are of models whose price is not known; they are in no cost.")
    if info.budget_usd:
        lines.append(f"Budget: {format_usd(info.budget_usd)}. /budget USD changes it, /budget 0 takes it away.")
    lines.append("`odin usage` adds up all sessions.")
    return "\n".join(lines) + "\n"


def format_totals(spent: UsageTotals) -> str:
    used = spent.usage
    words = [f"{spent.calls} {'call' if spent.calls == 1 else 'calls'}", f"{used.input:,} input"]
    words += [
        f"{count:,} {name}" for count, name in ((used.cache_read, "cache read"), (used.cache_write, "cache write"))
    ]
    words.append(f"{used.output:,} output")
    if used.reasoning:
        words.append(f"{used.reasoning:,} reasoning")
    if spent.cache_hit_rate is not None:
        words.append(f"{spent.cache_hit_rate:.0%} from the cache")
    return ", ".join([*words, format_cost(spent)])


def format_cost(spent: UsageTotals) -> str:
    """What is not known is never shown as free."""
    if spent.unpriced:
        return f"{format_usd(spent.cost_usd)} + unknown" if spent.cost_usd else "cost unknown"
    return format_usd(spent.cost_usd)


def format_usd(amount: float) -> str:
    return f"${amount:,.2f}" if amount == 0 or amount >= 0.1 else f"${amount:,.4f}"
