"""Typos in commands, options and values: the error suggests the right word, and no request is sent."""

import json
from pathlib import Path

import pytest

from odin.core.client import Client, CustomCommand
from odin.core.errors import UsageError
from odin.core.slash_commands import make_argument_error
from odin.core.text import find_similar
from odin.testing import ScriptedServer, say
from odin.ui.slash_commands.actions import refuse_unknown_command
from tests.conftest import Run
from tests.table import each


@each(
    ("args", "message"),
    [
        (["sesions"], "Unknown command 'sesions'. Did you mean `odin sessions`?"),
        (["Doctr"], "Unknown command 'Doctr'. Did you mean `odin doctor`?"),
        (["udno", "-c"], "Unknown command 'udno'. Did you mean `odin undo`?"),
        (["--plain", "models"], "'models' must be the first argument. Did you mean `odin models --plain`?"),
        (["help"], "Unknown command 'help'. Did you mean `odin --help`?"),
        (["login"], "Unknown command 'login'. Did you mean `odin auth add`?"),
        (["update"], "Did you mean `uv tool upgrade odin-code` or `pipx upgrade odin-code`? To send it"),
        (["Upgrade"], "Unknown command 'Upgrade'. Did you mean `uv tool upgrade odin-code` or"),
        (["export"], "Did you mean `odin sessions export`?"),
        (["clear"], "Did you mean `odin`?"),
        (["uninstall"], "Did you mean `uv tool uninstall odin-code` or `pipx uninstall odin-code`?"),
        (["install"], "Did you mean `odin plugin add` or `odin mcp add`?"),
        (["--model", "anthropic/claude-sonnet-4-5", "config"], "Did you mean `odin doctor config`?"),
        (["--plain", "info"], "Did you mean `odin doctor`?"),
        (["list"], "Did you mean `odin sessions`?"),
        (["init"], "Did you mean `odin /init`?"),
        (["-p", "hi", "--modle", "x"], "Unknown option --modle. Did you mean --model?"),
        (["-p", "hi", "--ouput-format=json"], "Unknown option --ouput-format. Did you mean --output-format?"),
        (["-p", "hi", "there"], "Unexpected argument 'there'."),
        (
            ["-p", "hi", "--output-format", "jsn"],
            "Unknown value 'jsn' for --output-format. Did you mean json? Use text, json or stream-json.",
        ),
        (["-p", "hi", "--mode", "edti"], "Unknown mode 'edti'. Did you mean edit? Use ask, plan or edit."),
        (
            ["-p", "hi", "--permission-mode", "acceptEdit"],
            "Unknown permission mode 'acceptEdit'. Did you mean acceptEdits?",
        ),
        (["-p", "hi", "--max-turns", "-1"], "--max-turns must be at least 0, not -1."),
        (["-p", "hi", "--model", "anthropc/claude"], "There is no provider 'anthropc'. Did you mean anthropic/claude?"),
        (["-p", "/undo 2"], "/undo works only in a conversation. To send it"),
        (["-p", "/modle"], "Unknown command /modle. Did you mean /model?"),
        (["-p", "/zzzz now", "--output-format", "stream-json"], "Unknown command /zzzz. /help lists the commands."),
        (["sessions", "lst"], "Unknown command 'lst'. Did you mean list? Use list, search,"),
        (["trust", "lst"], "Unknown value 'lst'. Did you mean list? Use status, add, remove or list."),
        (["usage", "--by", "modell"], "Unknown value 'modell' for --by. Did you mean model?"),
        (["usage", "--dyas", "3"], "Unknown option --dyas. Did you mean --days?"),
    ],
)
def test_typo_gets_a_suggestion_and_nothing_is_sent(run_odin: Run, args: list[str], message: str) -> None:
    with ScriptedServer([]) as server:
        ran = run_odin(*args, env=server.env("anthropic"))
        assert (ran.returncode, ran.stdout, server.requests) == (2, "", [])
    assert message in ran.stderr
    assert ran.stderr.count("\n") == 1


@each(
    ("args", "prompt"),
    [
        (["--", "sesions"], "sesions"),
        (["-p", "sesions"], "sesions"),
        (["-p", "update"], "update"),
        (["update the lock file"], "update the lock file"),
        (["sesions please"], "sesions please"),
        (["test"], "test"),
        (["-p", " /modle"], "/modle"),
        (["-p", "/usr/bin is what?"], "/usr/bin is what?"),
        (["-p", "/tmp is what?"], "/tmp is what?"),
        (["-p", "/hello there"], "Say hello to there."),
    ],
)
def test_prompt_that_resembles_a_command_is_sent(run_odin: Run, workspace: Path, args: list[str], prompt: str) -> None:
    (workspace / ".odin" / "commands").mkdir(parents=True, exist_ok=True)
    (workspace / ".odin" / "commands" / "hello.md").write_text("Say hello to $ARGUMENTS.\n")
    with ScriptedServer([say("Hi.")]) as server:
        ran = run_odin(*args, env=server.env("anthropic"))
        assert (ran.returncode, ran.stdout) == (0, "Hi.\n")
        assert prompt in json.dumps(server.requests[0].json["messages"])


class CommandClient:
    """A client that lists one custom command."""

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        return (CustomCommand("deploy", "", "", "project"),)


async def test_custom_commands_are_suggested_too() -> None:
    client: Client = CommandClient()  # pyright: ignore[reportAssignmentType]
    await refuse_unknown_command(client, "/Deploy now")
    with pytest.raises(UsageError, match="Did you mean /deploy"):
        await refuse_unknown_command(client, "/depoly now")


def test_swapped_letters_are_preferred_as_the_typo() -> None:
    assert find_similar("tset", ["set", "test"]) == "test"
    assert find_similar("max-turns", ["max_turns"]) == "max_turns"
    assert find_similar("xyz", ["model"]) == ""


def test_argument_of_a_slash_command_is_suggested() -> None:
    assert str(make_argument_error("theme", "drak")) == "Unknown argument 'drak'. Did you mean dark?"
