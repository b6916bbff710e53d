"""Loop mode in words."""

from odin.core.client import LoopStatus
from odin.ui.terminal import visible

ENDS = {
    "completed": "Loop mode is over, the goal is reached",
    "blocked": "Loop mode is over, the model cannot go on",
    "budget_exhausted": "Loop mode is over, the goal is not reached",
    "idle": "Loop mode is off",
}


def status_line(status: LoopStatus) -> str:
    """How far it is, in one line."""
    if status.state == "idle":
        return loop_told(ENDS["idle"], status.reason)
    used = f"{status.iteration} of {status.limit} iterations"
    cost = f", ${status.cost_usd:,.4f}" if status.cost_usd else ""
    if status.on:
        return f"Loop mode is on ({status.state}, {used}{cost}): {visible(status.target)}"
    return f"{loop_told(ENDS[status.state], status.reason)} ({used}{cost})"


def loop_told(what: str, why: str) -> str:
    return f"{what}: {visible(why)}" if why else f"{what}."
