"""A model that goes in circles is stopped, whatever the circle looks like (B12)."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ToolEnded, ToolStarted
from odin.core.event import TurnEnded
from odin.engine.limits import RepetitionGuard
from odin.testing import call, reply, say

from .conftest import Start

ENOUGH = 40
"""Model calls after which even the slowest circle must have been noticed."""


def counted(turn_of: Callable[[int], Any]) -> Callable[[Any], Any]:
    numbers = itertools.count()
    return lambda seen: turn_of(next(numbers))


async def ends(start: Start, turn_of: Callable[[int], Any], **options: Any) -> tuple[TurnEnded, int, Any]:
    talk = await start(counted(turn_of), max_turns=0, **options)
    ended = await talk.say("go")
    return ended, len(talk.server.requests), talk


async def test_the_same_call_for_ever(start: Start, workspace: Path) -> None:
    ended, asked, talk = await ends(start, lambda number: call("LS", {"path": str(workspace)}))
    assert (ended.reason, asked < 10) == ("loop_detected", True)
    assert len(talk.all(ToolStarted)) == 2


async def test_two_calls_taking_turns(start: Start, workspace: Path) -> None:
    one, two = call("LS", {"path": str(workspace)}), call("Glob", {"pattern": "*"})
    ended, asked, _ = await ends(start, lambda number: (one, two)[number % 2])
    assert (ended.reason, asked < 15) == ("loop_detected", True)


async def test_three_calls_taking_turns(start: Start, workspace: Path) -> None:
    calls = [call("LS", {"path": str(workspace)}), call("Glob", {"pattern": "*"}), call("Grep", {"pattern": "x"})]
    ended, asked, _ = await ends(start, lambda number: calls[number % 3])
    assert (ended.reason, asked < ENOUGH) == ("loop_detected", True)


async def test_an_edit_that_always_fails(start: Start, workspace: Path) -> None:
    (workspace / "a").write_text("x\n")
    read = call("Read", {"file_path": str(workspace / "a")})

    def turn(number: int) -> Any:
        edit = {"file_path": str(workspace / "a"), "old_string": f"missing {number}", "new_string": "y"}
        return call("EditTool", edit) if number else read

    ended, asked, talk = await ends(start, turn)
    assert (ended.reason, asked < ENOUGH) == ("loop_detected", True)
    assert any("loop detected" in event.text for event in talk.all(ToolEnded))


async def test_an_edit_that_always_fails_with_a_look_in_between(start: Start, workspace: Path) -> None:
    (workspace / "a").write_text("x\n")

    def turn(number: int) -> Any:
        if number % 2 == 0:
            return call("Read", {"file_path": str(workspace / "a"), "offset": 1, "limit": number + 1})
        edit = {"file_path": str(workspace / "a"), "old_string": f"missing {number}", "new_string": "y"}
        return call("EditTool", edit)

    ended, asked, _ = await ends(start, turn)
    assert (ended.reason, asked < ENOUGH) == ("loop_detected", True)


@pytest.mark.parametrize(
    ("tool", "field", "form"),
    [
        ("ExecuteCommand", "command", "echo same # {}"),
        ("ExecuteCommand", "command", "true --attempt={}"),
        ("ExecuteCommand", "command", "false {}"),
        ("Grep", "pattern", "nothing{}"),
    ],
    ids=["a remark", "an option", "a failure", "a search"],
)
async def test_the_same_call_with_a_counter(start: Start, tool: str, field: str, form: str) -> None:
    ended, asked, _ = await ends(start, lambda number: call(tool, {field: form.format(number)}))
    assert (ended.reason, asked < ENOUGH) == ("loop_detected", True)


async def test_work_that_looks_alike_is_no_circle(start: Start, workspace: Path) -> None:
    """Fifty files in a row: the calls differ by a number, and so do their results."""
    for number in range(50):
        (workspace / f"f{number}.txt").write_text(f"line {number}\n")

    def turn(number: int) -> Any:
        if number == 100:
            return say("done")
        path = str(workspace / f"f{number // 2}.txt")
        if number % 2 == 0:
            return call("Read", {"file_path": path})
        return call("EditTool", {"file_path": path, "old_string": "line", "new_string": "row"})

    ended, _, talk = await ends(start, turn)
    assert (ended.reason, ended.text) == ("end_turn", "done")
    assert {event.status for event in talk.all(ToolEnded)} == {"success"}


async def test_waiting_for_something_is_no_circle(start: Start, workspace: Path) -> None:
    """The same look at different states of the world, with other work in between."""

    def turn(number: int) -> Any:
        if number == 30:
            return say("done")
        return reply("", [call("ExecuteCommand", {"command": f"echo {number} >> log; wc -l < log"})])

    ended, _, _ = await ends(start, turn)
    assert ended.text == "done"


async def test_the_same_look_is_no_circle_while_it_shows_something_else(start: Start, workspace: Path) -> None:
    """A build is watched: with the very same call again and again, or in turn with a pause."""
    watch, pause = call("ExecuteCommand", {"command": "echo . >> log; wc -l < log"}), call("LS", {"path": "."})

    def turn(number: int) -> Any:
        if number == 40:
            return say("done")
        return watch if number < 20 or number % 2 else pause

    ended, _, talk = await ends(start, turn)
    assert ended.text == "done"
    assert not any("loop detected" in event.text for event in talk.all(ToolEnded))


async def test_looking_for_many_things_that_are_not_there_is_no_circle(start: Start) -> None:
    """Which of these names are used nowhere? That each is not found is the answer."""
    names = [first + second for first in "abcd" for second in "wxyz"]
    ended, _, talk = await ends(
        start, lambda number: call("Grep", {"pattern": f"def {names[number]}_"}) if number < 16 else say("none is used")
    )
    assert ended.text == "none is used"
    assert not any("loop detected" in event.text for event in talk.all(ToolEnded))


@pytest.mark.parametrize("checkpoints", [True, False])
async def test_a_test_that_fails_the_same_way_after_every_edit_is_no_circle(
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

    ended, _, _ = await ends(start, turn, config={"checkpoints": {"enabled": checkpoints}})
    assert ended.text == "done"


async def test_every_prompt_begins_anew(start: Start, workspace: Path) -> None:
    looks = [call("LS", {"path": str(workspace)})] * 2
    talk = await start([*looks, say("nothing there")] * 8)
    for _ in range(8):
        assert (await talk.say("is it there now?")).text == "nothing there"


async def test_a_stop_hook_that_always_blocks(start: Start) -> None:
    command = f"{sys.executable} -c \"import sys; sys.stderr.write('more'); sys.exit(2)\""
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}
    ended, asked, _ = await ends(start, lambda number: say(f"answer {number}"), config={"hooks": hooks})
    assert ended.reason == "end_turn"
    assert asked <= 10


class TestWhatIsNew:
    """Ten replies in a row without anything new are too many; each round here is one call."""

    @staticmethod
    def refused(rounds: Callable[[int], dict[str, Any]], count: int = 14) -> bool:
        guard = RepetitionGuard()
        for number in range(count):
            made = rounds(number)
            if guard.check_call(made.get("name", "X"), {"n": number}):
                return True
            guard.record_result(
                made.get("name", "X"), made.get("args", {}), made["text"], failed=bool(made.get("failed")), runs=False
            )
            guard.end_round(changed=bool(made.get("changed")))
        return False

    def test_failures_that_differ_only_in_numbers_are_the_same(self) -> None:
        assert self.refused(lambda number: {"text": f"failed after {number} ms", "failed": True})

    def test_results_that_differ_in_numbers_are_not(self) -> None:
        assert not self.refused(lambda number: {"text": f"{number} files"})

    def test_what_the_call_itself_says_is_nothing_new(self) -> None:
        assert self.refused(lambda number: {"args": {"path": f"/x/{number}"}, "text": f"There is no /x/{number}."})

    def test_changed_files_are_progress(self) -> None:
        assert not self.refused(lambda number: {"text": "done", "changed": True})

    def test_that_time_has_passed_is_nothing_new(self) -> None:
        guard = RepetitionGuard()
        for number in range(2):
            assert not guard.check_call("SpawnStatus", {"id": "spawn-1"})
            guard.record_result(
                "SpawnStatus", {"id": "spawn-1"}, f"build: running, {number}.{number} s at 10:0{number}", failed=False
            )
        assert guard.check_call("SpawnStatus", {"id": "spawn-1"})

    def test_one_new_result_begins_the_count_anew(self) -> None:
        assert not self.refused(lambda number: {"text": "new" if number == 7 else "old"}, count=16)

    def test_after_a_warning_there_is_a_respite_and_then_no_more(self) -> None:
        guard = RepetitionGuard()
        warned: list[int] = []
        for number in range(30):
            if guard.check_call("X", {"n": number}):
                warned.append(number)
            else:
                guard.record_result("X", {}, "old", failed=False)
            guard.end_round()
            if guard.is_hopeless:
                break
        assert warned == [11, 14, 17]
