"""Loop mode in words."""

from odin.core.client import LoopStatus
from odin.ui.terminal import escape_hidden

LOOP_ENDS = {
    "completed": "Loop mode is over, the goal is reached",
    "blocked": "Loop mode is over, the model cannot go on",
    "budget_exhausted": "Loop mode is over, the goal is not reached",
    "idle": "Loop mode is off",
}


def describe_loop_status(status: LoopStatus) -> str:
    """How far it is, in one line."""
    if status.state == "idle":
        return describe_loop_end(LOOP_ENDS["idle"], status.reason)
    used = f"{status.iteration} of {status.limit} iterations"
    cost = f", ${status.cost_usd:,.4f}" if status.cost_usd else ""
    if status.is_active:
        return f"Loop mode is on ({status.state}, {used}{cost}): {escape_hidden(status.goal)}"
    return f"{describe_loop_end(LOOP_ENDS[status.state], status.reason)} ({used}{cost})"


def describe_loop_end(what: str, why: str) -> str:
    return f"{what}: {escape_hidden(why)}" if why else f"{what}."
