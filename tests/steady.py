"""Repeats tests beside processes that keep every core busy: `make steady`.

    python -m tests.steady --rounds 100 --suites 3 -k WORDS

`STEADY` names tests that once failed now and then; each runs so many rounds, and then the whole suite. Prints what
failed and, in the end, how long it took. As a plugin of pytest (`-p tests.steady --rounds 5 ID…`) it repeats the
selected tests in one run.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

STEADY = (
    "tests/acp/test_capabilities.py::test_a_recorded_conversation[list_and_delete]",
    "tests/crash/test_resume_after_kill.py::test_a_command_that_is_killed_in_a_view_has_changed_nothing",
    "tests/engine/test_background_control.py::test_an_undo_discards_what_a_moved_command_wrote",
    "tests/fleet/test_hostile.py::test_a_result_that_is_stored_is_not_made_again",
    "tests/host/test_many_sessions.py::test_a_hundred_sessions_do_not_meet",
    "tests/page/test_page_features.py::test_sub_agents_and_background_processes",
    "tests/page/test_page_files.py::test_the_page_works_below_a_base_path",
    "tests/sandbox/test_helper_processes.py::test_ended_sandboxes_leave_no_zombies_where_the_first_process_reaps_none",
    "tests/sandbox/test_views.py::test_command_in_a_view_can_be_stopped",
    "tests/sandbox/test_views.py::test_views_give_commands_no_capabilities",
    "tests/tools/test_atomic_write_kills.py::test_a_killed_writer_leaves_no_torn_file",
    "tests/tui/test_agent_focus.py::test_requests_of_sub_agents_outlive_the_main_turn_and_esc_stops_only_that_agent",
    "tests/ui/test_chat_keys.py::test_ctrl_c_closes_the_session_list_and_not_odin",
    "tests/ui/test_chat_queue.py::test_prompt_typed_right_after_ctrl_c_is_answered",
    "tests/ui/test_chat_queue.py::test_sigterm_during_a_turn_keeps_the_queue_for_the_next_start",
    "tests/ui/test_jsonl.py::test_two_clients_and_the_first_answer_counts",
)
STEADY_SEEDS = {118: ("tests/tui/test_two_clients.py::test_app_and_stream_json_client_converge[118]",)}
"""Tests of the long suites, by their seed."""

ROOT = Path(__file__).parents[1]
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000): pass"
"""A program that keeps one core busy and ends with the process that started it, however that ends."""
_STOP_S = 10.0


# --- the plugin ---


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=1, help="how often each selected test runs")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected = items[:]
    for number in range(2, int(config.getoption("rounds") or 1) + 1):
        items += [_copy_item(item, number) for item in selected]


def _copy_item(item: Any, number: int) -> pytest.Item:
    """Return the same test with fixtures and an id of its own."""
    make: Callable[..., pytest.Item] = item.from_parent  # of its class
    copied = make(
        item.parent,
        name=f"{item.name}#{number}",
        callspec=getattr(item, "callspec", None),
        callobj=item.obj,
        fixtureinfo=item._fixtureinfo,
        keywords=item.keywords,
        originalname=f"{item.originalname}#{number}",  # part of the id
    )
    copied.own_markers = item.own_markers
    return copied


# --- the command ---


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.steady", description="Repeat tests on busy cores.")
    parser.add_argument("--rounds", type=int, default=100, help="how often each test of the list runs")
    parser.add_argument("--suites", type=int, default=3, help="how often the whole suite runs")
    parser.add_argument("-k", default="", metavar="WORDS", help="only the tests of the list that these words select")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _exit)
    began = time.monotonic()
    select = ["-k", chosen.k] if chosen.k else []
    repeat = ["-p", "tests.steady", "--rounds", str(chosen.rounds), *select]
    failed = 0
    with _keep_cores_busy():
        if chosen.rounds:
            failed += _run_tests([*repeat, *STEADY])
            failed += sum(_run_tests([*repeat, *ids], seed) for seed, ids in STEADY_SEEDS.items())
        for _ in range(chosen.suites):
            failed += _run_tests([])
    outcome = "nothing failed" if not failed else "see the failures above"
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(f"{chosen.rounds} rounds and {chosen.suites} suites on busy cores, {minutes} min {seconds} s: {outcome}")
    return min(failed, 1)


def _exit(number: int, frame: object) -> None:
    sys.exit(128 + number)


@contextmanager
def _keep_cores_busy() -> Generator[None]:
    busy = [subprocess.Popen([sys.executable, "-S", "-c", _BUSY]) for _ in range(os.cpu_count() or 2)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _run_tests(arguments: Iterable[str], seed: int | None = None) -> bool:
    """Run pytest and print what it says about failures. Return whether there are any."""
    env = {**os.environ, **({} if seed is None else {"ODIN_SEED": str(seed)})}
    command = [sys.executable, "-m", "pytest", "--no-header", "--tb=short", "-p", "no:cacheprovider", *arguments]
    run = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said = run.communicate()[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            run.wait(_STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    has_selected_none = run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED and "-k" in command
    if run.returncode == 0 or has_selected_none:
        return False
    if seed is not None:
        print(f"with ODIN_SEED={seed}:")
    print(said[max(said.find("\n====="), 0) :].strip(), flush=True)  # without the dots
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
