"""The repetition guard ends the turn of a model that repeats itself in any form (B12)."""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ToolEnded, ToolStarted
from odin.core.errors import NoProgress
from odin.core.event import TurnEnded
from odin.core.provider import ModelInfo
from odin.engine.limits import RepetitionGuard
from odin.testing import call, reply, say

from .conftest import Start


def number_requests(turn_of: Callable[[int], Any]) -> Callable[[Any], Any]:
    numbers = itertools.count()
    return lambda seen: turn_of(next(numbers))


async def run_script(start: Start, turn_of: Callable[[int], Any], **options: Any) -> tuple[TurnEnded, int, Any]:
    talk = await start(number_requests(turn_of), max_turns=0, **options)
    ended = await talk.say("go")
    return ended, len(talk.server.requests), talk


async def test_endless_identical_calls_end_the_turn(start: Start, workspace: Path) -> None:
    """Calls three and four are marked as repeated, five to seven are refused, and then the turn ends."""
    ended, asked, talk = await run_script(start, lambda number: call("LS", {"path": str(workspace)}))
    assert (ended.reason, asked) == ("loop_detected", 7)
    assert len(talk.all(ToolStarted)) == 4
    texts = [event.text for event in talk.all(ToolEnded)]
    assert [("the same call for the" in text, "loop detected" in text) for text in texts] == [
        *[(False, False)] * 2,
        *[(True, False)] * 2,
        *[(True, True)] * 3,
    ]
    assert texts[2].startswith(f"{texts[0]}\n\n[This is the same call for the third time, with the same result.")


async def test_endless_calls_of_an_unknown_tool_end_the_turn(start: Start) -> None:
    ended, asked, _ = await run_script(start, lambda number: call("Teleport", {"to": "there"}))
    assert (ended.reason, asked) == ("loop_detected", 7)


async def test_endless_calls_changed_by_a_hook_end_the_turn(start: Start) -> None:
    """The guard compares the arguments of the model, not those of the hook."""
    change = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "pwd"}}})
    hooks = {"PreToolUse": [{"command": f"echo '{change}'"}]}
    ended, asked, _ = await run_script(
        start, lambda number: call("ExecuteCommand", {"command": "ls"}), config={"hooks": hooks}
    )
    assert (ended.reason, asked) == ("loop_detected", 7)


@pytest.mark.parametrize("count", [2, 3, 6])
async def test_endless_cycles_of_calls_end_the_turn(start: Start, workspace: Path, count: int) -> None:
    """Four rounds without a new result are allowed."""
    paths = [workspace / name for name in "abcdef"[:count]]
    for path in paths:
        path.write_text(f"{path.name}\n")
    looks = [call("Read", {"file_path": str(path)}) for path in paths]
    ended, asked, talk = await run_script(start, lambda number: looks[number % count])
    assert (ended.reason, asked) == ("loop_detected", 5 * count + 2)
    assert len(talk.all(ToolStarted)) == 5 * count - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "field", "form"),
    [
        ("LS", "path", "d{}"),
        ("LS", "path", "missing{}"),
        ("Grep", "pattern", "nothing{}"),
        ("Read", "file_path", "missing{}"),
        ("ExecuteCommand", "command", "true --attempt={}"),
        ("ExecuteCommand", "command", "false {}"),
    ],
)
async def test_calls_with_different_arguments_are_no_repetition(
    start: Start, workspace: Path, tool: str, field: str, form: str
) -> None:
    """Forty calls about different things return the same text: that each is empty or missing is an answer."""
    for number in range(40):
        (workspace / f"d{number}").mkdir()
    ended, _, talk = await run_script(
        start, lambda number: call(tool, {field: form.format(number)}) if number < 40 else say("none")
    )
    assert (ended.reason, ended.text) == ("end_turn", "none")
    assert len(talk.all(ToolStarted)) == 40
    assert not any("the same call" in event.text for event in talk.all(ToolEnded))


async def test_a_call_that_changes_a_file_is_progress(start: Start, workspace: Path) -> None:
    """The same command again and again, which prints nothing and changes a file."""
    ended, _, talk = await run_script(
        start, lambda number: call("ExecuteCommand", {"command": "echo x >> log"}) if number < 12 else say("done")
    )
    assert ended.text == "done"
    assert (workspace / "log").read_text() == "x\n" * 12
    assert not any("the same call" in event.text for event in talk.all(ToolEnded))


async def test_progress_in_between_resets_the_count(start: Start, workspace: Path) -> None:
    """After two refusals and another call, the turn continues and the first call may be made again."""
    same, other = call("LS", {"path": str(workspace)}), call("Glob", {"pattern": "*.py"})
    script = [*[same] * 6, other, *[same] * 4, say("done")]
    ended, _, talk = await run_script(start, lambda number: script[number])
    assert ended.text == "done"
    assert [event.status for event in talk.all(ToolEnded)] == [*["success"] * 4, *["error"] * 2, *["success"] * 5]


@pytest.mark.slow
async def test_similar_work_is_no_repetition(start: Start, workspace: Path) -> None:
    """Fifty files in a row: the calls and their results differ by a number."""
    for number in range(50):
        (workspace / f"f{number}.txt").write_text(f"line {number}\n")

    def turn(number: int) -> Any:
        if number == 100:
            return say("done")
        path = str(workspace / f"f{number // 2}.txt")
        if number % 2 == 0:
            return call("Read", {"file_path": path})
        return call("EditTool", {"file_path": path, "old_string": "line", "new_string": "row"})

    ended, _, talk = await run_script(start, turn)
    assert (ended.reason, ended.text) == ("end_turn", "done")
    assert {event.status for event in talk.all(ToolEnded)} == {"success"}


@pytest.mark.slow
async def test_polling_with_changing_results_is_no_repetition(start: Start, workspace: Path) -> None:
    """The same kind of command reports different states, with other work in between."""

    def turn(number: int) -> Any:
        if number == 30:
            return say("done")
        return reply("", [call("ExecuteCommand", {"command": f"echo {number} >> log; wc -l < log"})])

    ended, _, _ = await run_script(start, turn)
    assert ended.text == "done"


@pytest.mark.slow
async def test_identical_call_with_changing_results_is_no_repetition(start: Start, workspace: Path) -> None:
    """A build is watched with the same call again and again, or alternating with another call."""
    watch, pause = call("ExecuteCommand", {"command": "echo . >> log; wc -l < log"}), call("LS", {"path": "."})

    def turn(number: int) -> Any:
        if number == 40:
            return say("done")
        return watch if number < 20 or number % 2 else pause

    ended, _, talk = await run_script(start, turn)
    assert ended.text == "done"
    assert not any("loop detected" in event.text for event in talk.all(ToolEnded))


@pytest.mark.slow
@pytest.mark.parametrize("checkpoints", [True, False])
async def test_identical_test_failure_after_every_edit_is_no_repetition(
    start: Start, workspace: Path, checkpoints: bool
) -> None:
    (workspace / "a").write_text("try 0\n")

    def turn(number: int) -> Any:
        if number == 0:
            return call("Read", {"file_path": str(workspace / "a")})
        if number > 30:
            return say("done")
        if number % 2 == 0:
            return call("ExecuteCommand", {"command": "echo 1 failed; false"})
        edit = {"file_path": str(workspace / "a"), "old_string": f"try {number // 2}", "new_string": ""}
        return call("EditTool", {**edit, "new_string": f"try {number // 2 + 1}"})

    ended, _, _ = await run_script(start, turn, config={"checkpoints": {"enabled": checkpoints}})
    assert ended.text == "done"


async def test_every_prompt_resets_the_count(start: Start, workspace: Path) -> None:
    looks = [call("LS", {"path": str(workspace)})] * 2
    talk = await start([*looks, say("nothing there")] * 8)
    for _ in range(8):
        assert (await talk.say("is it there now?")).text == "nothing there"


async def test_turn_ends_although_a_stop_hook_always_blocks(start: Start) -> None:
    command = f"{sys.executable} -c \"import sys; sys.stderr.write('more'); sys.exit(2)\""
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}
    ended, asked, _ = await run_script(start, lambda number: say(f"answer {number}"), config={"hooks": hooks})
    assert ended.reason == "end_turn"
    assert asked <= 10


def test_results_that_differ_only_in_times_are_identical() -> None:
    guard = RepetitionGuard()
    said: list[str] = []
    for number in range(5):
        said.append(guard.check_call(f"{number}", "SpawnStatus", {"id": "spawn-1"}))
        guard.record_result(f"{number}", f"build: running, {number}.{number} s at 10:0{number}", failed=False)
        guard.end_round()
    assert [bool(text) for text in said] == [False] * 4 + [True]


def test_a_small_model_is_stopped_after_two_identical_failures_and_others_are_not() -> None:
    guard = RepetitionGuard()
    small, large = ModelInfo("s", parameters=1e9), ModelInfo("l")
    for number, (args, text, failed) in enumerate(
        [({"n": 1}, "took 1s", True), ({"n": 2}, "ok", False), ({"n": 3}, "took 1s", True)]
    ):
        guard.check_call(str(number), "Run", args)
        guard.record_result(str(number), text, failed=failed)
    guard.raise_if_stuck(lambda: small)
    guard.check_call("again", "Run", {"n": 1})
    guard.record_result("again", "took 2s", failed=True)
    guard.raise_if_stuck(lambda: large)
    with pytest.raises(NoProgress, match="Run failed twice in the same way: took 2s") as error:
        guard.raise_if_stuck(lambda: small)
    assert "larger model" in error.value.hint


def test_failures_with_a_change_in_between_are_not_identical() -> None:
    guard = RepetitionGuard()
    for number in range(3):
        guard.check_call(f"test{number}", "Run", {"n": 1})
        guard.record_result(f"test{number}", "failed", failed=True)
        guard.check_call(f"edit{number}", "Edit", {"n": number})
        guard.record_result(f"edit{number}", "ok", failed=False, changed=True)
    guard.raise_if_stuck(lambda: ModelInfo("s", parameters=1e9))
