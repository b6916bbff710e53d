"""What a run predicts, in the shape of SWE-bench, whose harness scores it: the patch of each instance."""

import asyncio
from collections.abc import Sequence

import msgspec

from odin.core.errors import OdinError
from odin.fleet.engine import TaskState
from odin.fleet.result_store import ResultStore

PREDICTIONS_NAME = "predictions.jsonl"
INSTANCES_NAME = "instances.jsonl"


async def write_predictions(store: ResultStore, states: Sequence[TaskState]) -> tuple[str, ...]:
    """Write the predictions of the tasks that are to have one, and what each cost. Return the names of both files; ()
    if no task is to have one.

    A task that was not run or was cancelled has no prediction: that would count as a wrong one. One that failed has
    the patch that it left, which may be empty.
    """
    asked = [state for state in states if "prediction" in state.task.outputs]
    if not asked:
        return ()
    patches = await asyncio.to_thread(lambda: [_read_patch(store, state) for state in asked])
    predictions = [
        {"instance_id": state.task.id, "model_name_or_path": _get_model(state), "model_patch": patch}
        for state, patch in zip(asked, patches, strict=True)
        if patch is not None
    ]
    instances = [_describe_instance(store, state) for state in asked]
    for name, lines in ((PREDICTIONS_NAME, predictions), (INSTANCES_NAME, instances)):
        await asyncio.to_thread(store.write, name, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return PREDICTIONS_NAME, INSTANCES_NAME


def _read_patch(store: ResultStore, state: TaskState) -> str | None:
    """Return the patch of a task; None if it has no prediction."""
    if state.result is None or state.result.outcome not in ("passed", "failed"):
        return None
    if "patch.diff" not in state.result.files:  # its process died each time
        return ""
    name = f"{state.task.id}/patch.diff"
    try:
        return store.read(name).decode("utf-8", "replace")
    except OSError as error:
        raise OdinError(
            f"{store.locate(name)} cannot be read: {error.strerror or error}.", "Check the store."
        ) from error


def _get_model(state: TaskState) -> str:
    return (state.result and state.result.model) or state.task.model or state.task.pool or "odin"


def _describe_instance(store: ResultStore, state: TaskState) -> dict[str, object]:
    result = state.result
    if result is None:
        return {"instance_id": state.task.id, "outcome": state.status}
    log = next((name for name in result.files if name.startswith("session/") and name.endswith(".jsonl")), "")
    return {
        "instance_id": state.task.id,
        "outcome": result.outcome,
        "reason": result.reason,
        "model": _get_model(state),
        "requests": result.requests,
        "tokens_in": result.tokens_in,
        "tokens_out": result.tokens_out,
        "usd": result.usd,
        "seconds": result.seconds,
        "session": result.session,
        "log": store.locate(f"{state.task.id}/{log}") if log else "",
    }
