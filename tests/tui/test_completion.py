"""The completion popup: files after `@`, commands after `/`, by keyboard and by mouse."""

import asyncio
from pathlib import Path

import pytest

from odin.core.client import CustomCommand
from odin.core.op import Prompt
from odin.core.slash_commands import SLASH_COMMANDS
from odin.testing import say
from odin.ui.completion import complete_command, find_target, score_match
from tests.tui.conftest import OpenApp, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

PATHS = ("src/event.py", "src/even more.txt", "src/events/", "README.md")


def client_with_files() -> FakeClient:
    client = FakeClient()
    client.paths = PATHS
    return client


async def test_files_of_the_project_are_completed(open_app: OpenApp, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "parser.py").write_text("TOKEN = 42\n")
    async with open_app([say("It is 42.")]) as stage:
        await stage.type("what is in @parsr")
        await stage.shows("› src/parser.py")
        await stage.press("tab")
        assert stage.app.composer.text == "what is in @src/parser.py "
        await stage.press("enter")
        await stage.shows("It is 42.")
        assert "TOKEN = 42" in str(stage.server.requests[0].body)


async def test_paths_with_spaces_are_quoted_and_folders_complete_further() -> None:
    async with run_app(FakeSessions(client_with_files())) as stage:
        composer = stage.app.composer
        await stage.type("@even")
        await stage.shows("› src/event.py", "src/even more.txt", "src/events/")
        await stage.press("down", "enter")
        assert composer.text == '@"src/even more.txt" '
        await stage.press("ctrl+u")
        await stage.type("@even")
        await stage.shows("› src/event.py")
        await stage.press("up", "tab")
        assert composer.text == "@src/events/"
        await stage.shows("› src/events/")
        await stage.press("escape")
        await stage.until(lambda: "›" not in stage.screen())
        assert composer.text == "@src/events/"


async def test_the_popup_is_as_wide_as_the_composer() -> None:
    client = client_with_files()
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("@even")
        await stage.shows("› src/event.py")
        assert stage.app.query_one("#popup").size.width >= stage.app.composer.size.width


async def test_ctrl_n_and_ctrl_p_move_in_the_popup_and_a_click_completes() -> None:
    async with run_app(FakeSessions(client_with_files())) as stage:
        await stage.type("@even")
        await stage.shows("› src/event.py")
        await stage.press("ctrl+n", "ctrl+n", "ctrl+p")
        await stage.shows("› src/even more.txt")
        await stage.pilot.click("#popup", offset=(4, 0))
        await stage.until(lambda: stage.app.composer.text == "@src/event.py ")
        assert stage.app.composer.has_focus


async def test_enter_sends_a_complete_path() -> None:
    client = client_with_files()
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("@README.md")
        await stage.shows("› README.md")
        await stage.press("enter")
        await stage.until(lambda: any(isinstance(op, Prompt) and op.text == "@README.md" for op in client.submitted))


async def test_typing_never_waits_for_files_and_a_new_search_cancels_the_old_one() -> None:
    class SlowClient(FakeClient):
        def __init__(self) -> None:
            super().__init__()
            self.searches: list[str] = []

        async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
            self.searches.append(words)
            try:
                await asyncio.sleep(600 if words != "abc" else 0)
            except asyncio.CancelledError:
                self.searches.append(f"ended {words}")
                raise
            return ("found.py",)

    client = SlowClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("@ab")
        assert stage.app.composer.text == "@ab"
        await stage.until(lambda: "ab" in client.searches)
        await stage.type("c")
        await stage.shows("› found.py")
        assert "ended ab" in client.searches
        await stage.type(" d")
        await stage.until(lambda: "found.py" not in stage.screen())


async def test_files_found_later_appear_in_the_popup() -> None:
    client = client_with_files()
    client.paths = ()
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("@even")
        client.paths = PATHS
        await stage.shows("› src/event.py")


@pytest.mark.parametrize(
    ("line", "letters"),
    [
        ("@a", "a"),
        ("see @src/a", "src/a"),
        ("(@a", "a"),
        ('@"my fi', "my fi"),
        ("me@example", None),
        ("@a.py:10-2", None),
        ("@a.py:", None),
        ("!cat @a", None),
        ("@a b", None),
    ],
)
def test_where_a_file_path_is_completed(line: str, letters: str | None) -> None:
    target = find_target(line, len(line), first=True)
    assert (target.letters if target is not None else None) == letters


async def test_a_range_of_lines_follows_a_completed_path() -> None:
    async with run_app(FakeSessions(client_with_files())) as stage:
        for letters, keys, text in (
            ("@even", (), "@src/event.py:1-5"),
            ("@even", ("down",), '@"src/even more.txt":1-5'),
        ):
            await stage.type(letters)
            await stage.shows("› src/event.py")
            await stage.press(*keys, "tab")
            await stage.type(":1-5")
            assert stage.app.composer.text == text
            await stage.press("ctrl+u")


@pytest.mark.parametrize(
    ("letters", "first"),
    [
        ("", ["model", "compact", "resume", "undo", "new", "plan"]),
        ("co", ["compact", "context", "copy"]),
        ("re", ["resume", "review", "redo"]),
        ("cost", ["usage"]),
        ("mod", ["model", "models"]),
    ],
)
def test_the_usual_commands_come_first(letters: str, first: list[str]) -> None:
    review = CustomCommand("review", "Reviews what was changed.", "[FILE]")
    found = [item.label.removeprefix("/") for item in complete_command(letters, [review])]
    assert found[: len(first)] == first


async def test_the_popup_says_how_many_more_commands_there_are() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.type("/")
        await stage.shows("› /model", f"{len(SLASH_COMMANDS) - 8} more: type some letters")


async def test_commands_are_listed_with_descriptions_and_tab_completes() -> None:
    client = FakeClient()
    client.custom_commands = (CustomCommand("team/review", "Reviews what was changed.", "[FILE]"),)
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("/COMP")
        await stage.shows("› /compact [INSTRUCTIONS|cancel]", "Summarize the conversation", "/ command")
        await stage.press("tab")
        assert stage.app.composer.text == "/compact "
        await stage.press("ctrl+u")
        await stage.type("/revi")
        await stage.shows("› /team/review [FILE]", "Reviews what was changed.")
        await stage.press("enter")
        await stage.until(lambda: any(isinstance(op, Prompt) for op in client.submitted))
        sent = next(op for op in client.submitted if isinstance(op, Prompt))
        assert sent.text.strip() == "/team/review"


@pytest.mark.slow
async def test_enter_runs_a_command_and_a_leading_space_sends_it_as_a_prompt() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.send("/plan")
        await stage.shows("─ plan ─")
        await stage.send("/as")
        await stage.shows("─ ask ─")
        await stage.send("/nosuchthing now")
        await stage.shows("Unknown command /nosuchthing.")
        stage.app.composer.clear_draft()
        await stage.send(" /nosuchthing now")
        await stage.until(lambda: any(isinstance(op, Prompt) for op in client.submitted))
        assert [op.text for op in client.submitted if isinstance(op, Prompt)] == [" /nosuchthing now"]


async def test_enter_only_completes_a_command_that_needs_arguments() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("/stee")
        await stage.shows("› /steer TEXT")
        await stage.press("enter")
        assert stage.app.composer.text == "/steer "
        assert client.submitted == []


async def test_arguments_of_some_commands_are_completed() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.type("/permissions ac")
        await stage.shows("› acceptEdits")
        await stage.press("tab")
        assert stage.app.composer.text == "/permissions acceptEdits"


async def test_a_prompt_from_the_history_opens_no_popup() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.send("/nothing of ours")
        await stage.send("two")
        await stage.press("up", "up")
        assert stage.app.composer.text == "/nothing of ours"
        assert not stage.app.composer.popup.open


def test_match_scores() -> None:
    assert score_match("ev", "event") > score_match("ev", "the event") > score_match("ev", "keeevil") > 0
    assert score_match("evt", "event") > 0
    assert score_match("zz", "event") == 0
    assert score_match("fix parser", "please fix the parser") > 0
    assert score_match("fix lexer", "please fix the parser") == 0
    assert score_match("EVENT", "event") == score_match("event", "event")
