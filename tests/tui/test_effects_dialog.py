"""The request about what a command has changed in its view, over real sessions."""

from pathlib import Path

from odin.testing import call, say
from tests.tui.conftest import OpenApp

from .test_permission_dialog import list_last_results, wait_for_request, wait_until_closed

COMMAND = "echo two >>a.txt; echo new >c.txt; rm b.txt; mkdir __pycache__; echo x >__pycache__/x.json"
SCRIPT = [call("ExecuteCommand", {"command": COMMAND}, id="c1"), say("Done.")]


def make_files(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    (workspace / "b.txt").write_text("bee\n")


async def test_keep(open_app: OpenApp, workspace: Path) -> None:
    make_files(workspace)
    async with open_app(SCRIPT) as stage:
        await stage.send("Change it.")
        await wait_for_request(
            stage,
            *("Keep what this command changed?", "3 files: 1 created, 1 changed, 1 deleted."),
            *("2 + two", "1 - bee", "y Keep", "n Discard", "Esc discards and stops the work."),
        )
        assert not (workspace / "c.txt").exists()
        await stage.press("y")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        assert (workspace / "a.txt").read_text() == "one\ntwo\n"
        assert not (workspace / "b.txt").exists()


async def test_discard_and_tell_the_model(open_app: OpenApp, workspace: Path) -> None:
    make_files(workspace)
    async with open_app(SCRIPT) as stage:
        await stage.send("Change it.")
        await wait_for_request(stage, "r Discard and tell the model")
        await stage.press("r", *"keep b", "enter")
        await stage.shows("Done.", "What it changed was discarded.")
        await wait_until_closed(stage)
        assert sorted(path.name for path in workspace.iterdir()) == ["a.txt", "b.txt"]
        assert list_last_results(stage)["c1"].endswith(
            "[The user discarded: created c.txt; changed a.txt; deleted b.txt. The project is unchanged.\n"
            "The user says: keep b]"
        )


async def test_edited_command_runs_again_and_is_asked_about_again(open_app: OpenApp, workspace: Path) -> None:
    make_files(workspace)
    async with open_app([call("ExecuteCommand", {"command": "echo x >c.txt"}, id="c1"), say("Done.")]) as stage:
        await stage.send("Change it.")
        await wait_for_request(stage, "c.txt")
        await stage.press("e", *["backspace"] * 5, *"d.txt", "enter")
        await stage.shows("echo x >d.txt", "y Allow once")
        await stage.press("y")
        await wait_for_request(stage, "Keep what this command changed?", "d.txt")
        await stage.press("y")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        assert sorted(path.name for path in workspace.iterdir()) == ["a.txt", "b.txt", "d.txt"]
