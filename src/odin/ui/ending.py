"""What a finished turn means to the program that started Odin: an exit code, and a sentence when it was no success."""

from odin.core import errors
from odin.core.event import ExitReason, TurnEnded

EXIT_READER_GONE = 141
"""The exit code when standard output was closed before everything was written: 128 + SIGPIPE, as for other programs."""

OUTPUT_CLOSED = "Standard output is closed, so there is nowhere to write the answer. Nothing was done."

_ENDING_SENTENCES: dict[ExitReason, str] = {
    "max_turns": "Stopped after {steps} model calls, the limit of this run. Raise it with --max-turns, or go on with "
    "--continue.",
    "error_max_budget_usd": "Stopped: the budget is used up (this turn cost ${cost:.4f}). Raise it with "
    "--max-budget-usd, and go on with --continue.",
    "interrupted": "Interrupted.",
    "max_tokens": "The model's reply was cut off by its token limit.",
    "aborted": "Aborted.",
    "error": "The turn failed.",
    "loop_detected": "Stopped: the model repeated the same calls without getting further.",
}


def exit_code_of(ended: TurnEnded) -> int:
    """0 ok, 1 error, 2 usage, 75 worth trying again, 130 interrupted."""
    if ended.reason == "end_turn":
        return 0
    if ended.reason == "interrupted":
        return errors.Interrupted.exit_code
    kind = getattr(errors, ended.error_kind, None) if ended.error_kind else None
    if isinstance(kind, type) and issubclass(kind, errors.OdinError):
        return kind.exit_code
    return 1


def describe_ending(ended: TurnEnded) -> str:
    """Why the turn ended before the work was done and what to do about it; empty after a success."""
    if ended.reason == "end_turn":
        return ""
    said = f"{ended.error} {ended.hint}".strip() if ended.reason == "error" or ended.hint else ""
    return said or _ENDING_SENTENCES[ended.reason].format(steps=ended.steps, cost=ended.cost_usd)


def format_resume_hint(session: str, asked: bool) -> str:
    """How to come back, when there is something to come back to."""
    return f"Resume this session with: odin --resume {session}\n" if session and asked else ""
