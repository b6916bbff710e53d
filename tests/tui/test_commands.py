"""Slash commands of the app: done at once, never read by the model."""

from pathlib import Path

import pytest

from odin.core.errors import OdinError
from odin.core.op import CancelCompaction, Compact, Prompt, RemoveLastMessage, SetLoop
from odin.core.slash_commands import SLASH_COMMANDS
from odin.testing import ScriptedServer, call, say
from tests.tui.conftest import OpenApp, play
from tests.tui.played import PlayedClient, PlayedSessions


async def test_the_app_has_every_command_there_is() -> None:
    async with play(PlayedSessions(PlayedClient())) as stage:
        assert stage.app.commands.names == {command.name for command in SLASH_COMMANDS}


async def test_a_text_that_names_no_command_goes_to_the_model(open_app: OpenApp) -> None:
    async with open_app([say("That is a path.")]) as stage:
        assert not await stage.app.run_command("usr/bin", "")
        await stage.send("/usr/bin is what?")
        await stage.shows("That is a path.")
        assert "/usr/bin is what?" in str(stage.server.requests[0].body)


async def test_a_misspelled_command_is_named_and_stays_in_the_composer(open_app: OpenApp) -> None:
    async with open_app([say("Hello.")]) as stage:
        await stage.send("/modle scripted")
        await stage.shows("Unknown command /modle. Did you mean /model?")
        assert stage.app.composer.text == "/modle scripted"
        assert stage.server.requests == []


async def test_a_model_that_does_not_exist_is_refused(open_app: OpenApp) -> None:
    with ScriptedServer([], models=["house-model"]) as server:
        async with open_app(server=server) as stage:
            await stage.send("/model anthropic/hose-model")
            await stage.shows("anthropic has no model 'hose-model'.", "Did you mean")
            assert (await stage.app.client.get_info()).model == "anthropic/house-model"


async def test_the_prompt_of_the_command_line_may_be_a_command(open_app: OpenApp) -> None:
    async with open_app([], first="/hlep") as stage:
        await stage.shows("Unknown command /hlep. Did you mean /help?")
    async with open_app([], first="/context") as stage:
        await stage.shows("Context window")
        assert stage.server.requests == []


async def test_commands_act_while_the_model_is_at_work_and_never_reach_it(open_app: OpenApp, workspace: Path) -> None:
    async with open_app([say("Never said.").stall()]) as stage:
        await stage.send("Go on for ever")
        await stage.until(lambda: stage.app.executing and len(stage.server.requests) == 1)
        await stage.send("/rename My title")
        await stage.until(lambda: "My title" in stage.screen())
        await stage.send("/rules add Edit(docs/**)")
        await stage.shows("allow Edit(docs/**)")
        await stage.send("/context")
        await stage.shows("Context window")
        await stage.press("escape")
        await stage.send("/export html out.html")
        await stage.until(lambda: (workspace / "out.html").exists())
        assert stage.app.executing and len(stage.server.requests) == 1
        assert "My title" not in str(stage.server.requests[0].body)
        await stage.press("escape")
        await stage.idle()


async def test_a_mode_is_chosen_by_its_name_and_its_text_is_sent(open_app: OpenApp) -> None:
    async with open_app([say("Planned.")]) as stage:
        await stage.send("/ask")
        await stage.until(lambda: stage.app.mode == "ask_mode")
        await stage.send("/plan how to go on")
        await stage.shows("how to go on", "Planned.")
        assert stage.app.mode == "plan_mode"
        assert "/plan how" not in str(stage.server.requests[0].body)


async def test_words_for_the_turn_that_runs_are_told_to_it(open_app: OpenApp, workspace: Path) -> None:
    command = "touch begun; until test -e go; do sleep 0.05; done"
    async with open_app([call("Bash", {"command": command}), say("Heard.")], yes=True) as stage:
        await stage.send("Wait a moment")
        await stage.until((workspace / "begun").exists)
        await stage.send("/steer Be quick")
        await stage.shows("Be quick")
        (workspace / "go").touch()
        await stage.shows("Heard.")
        assert "Be quick" in str(stage.server.requests[1].body)


async def test_what_was_said_is_forgotten_and_asked_for_again(open_app: OpenApp) -> None:
    async with open_app([say("One."), say("Two.")]) as stage:
        await stage.send("First")
        await stage.shows("One.")
        await stage.idle()
        await stage.send("/forget")
        await stage.shows("Removed the last message")
        await stage.send("/continue")
        await stage.shows("Two.")
        assert "One." not in str(stage.server.requests[1].body)


async def test_what_cannot_be_done_is_said_and_the_command_comes_back_to_be_mended(open_app: OpenApp) -> None:
    async with open_app() as stage:
        before = stage.app.info
        await stage.send("/resume 19990101000000000")
        await stage.shows("There is no session 19990101000000000")
        assert stage.app.info == before
        assert stage.app.composer.text == "/resume 19990101000000000"
        assert stage.server.requests == []


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("steer", ""),
        ("rename", ""),
        ("delete", ""),
        ("loop", "sideways"),
        ("rules", "shake"),
        ("rules", "remove 77"),
        ("budget", "a lot"),
        ("stats", "yesterday"),
        ("fork", "9"),
        ("undo", "9"),
        ("rewind", "9"),
        ("redo", "quickly"),
        ("redo", ""),
        ("show", "me"),
        ("list", "birds"),
        ("switch", "sides"),
        ("theme", "pink"),
        ("mouse", "maybe"),
        ("vim", "maybe"),
        ("copy", "7"),
        ("copy", ""),
        ("export", "a b"),
        ("queue", "shuffle"),
        ("yolo", "perhaps"),
        ("permissions", "whatever"),
        ("resume", "No matching sessions"),
    ],
)
async def test_each_command_refuses_what_it_does_not_understand(open_app: OpenApp, name: str, rest: str) -> None:
    async with open_app() as stage:
        with pytest.raises(OdinError) as refused:
            await stage.app.run_command(name, rest)
        assert refused.value.describe().endswith((".", ")", "?")) or "Usage: /" in refused.value.hint
        assert stage.server.requests == []


async def test_small_commands_say_what_holds(open_app: OpenApp) -> None:
    async with open_app() as stage:
        for written, said in (
            ("show mode", "Mode: edit"),
            ("show model", "Model: anthropic/"),
            ("show sandbox", "Sandbox: "),
            ("list tools", "Read"),
            ("permissions", "Permission mode: default"),
            ("permissions acceptEdits", "Permission mode: acceptEdits"),
            ("yolo on", "Permission prompts are off."),
            ("yolo off", "Permission mode: acceptEdits"),
            ("budget 5", "Budget of this session: $5.00"),
            ("budget", "$5.00; spent so far"),
            ("loop", "Loop mode is off"),
            ("forget", "No message to remove."),
            ("switch mode ask", ""),
            ("rules add --deny Bash(git push:*)", "deny Bash(git push:*)"),
            ("rules remove 1", "Rule removed for this session: deny Bash(git push:*)"),
            ("vim on", "Esc leaves the prompt"),
            ("mouse off", "Mouse support is off"),
            ("mouse", "Mouse support is on"),
        ):
            name, _, rest = written.partition(" ")
            assert await stage.app.run_command(name, rest)
            await stage.shows(said)
        assert stage.app.mode == "ask_mode"
        assert (await stage.app.client.get_info()).budget_usd == 5


async def test_commands_become_ops() -> None:
    client = PlayedClient()
    client.answers = {Compact: False, CancelCompaction: False, RemoveLastMessage: True, SetLoop: True}
    async with play(PlayedSessions(client)) as stage:
        await stage.app.run_command("compact", "the parser")
        await stage.shows("Nothing was compacted")
        await stage.app.run_command("compact", "cancel")
        await stage.shows("No compaction is running.")
        await stage.app.run_command("loop", "on all tests pass")
        await stage.app.run_command("steer", "Look left")
        await stage.app.run_command("EDIT", "go")
    assert Compact("the parser") in client.submitted
    assert SetLoop(True, "all tests pass", "edit_mode") in client.submitted
    prompts = [(op.text, op.delivery, op.mode) for op in client.submitted if isinstance(op, Prompt)]
    assert prompts == [("Look left", "steer", "edit_mode"), ("go", None, "edit_mode")]


async def test_the_colours_can_be_changed(open_app: OpenApp) -> None:
    async with open_app(tui={"theme": "dark"}) as stage:
        await stage.send("/theme light")
        await stage.until(lambda: not stage.app.current_theme.dark)
        await stage.send("/theme")
        await stage.until(lambda: stage.app.current_theme.dark)


async def test_an_answer_is_copied(open_app: OpenApp) -> None:
    async with open_app([say("The **first** answer."), say("The second.")]) as stage:
        await stage.send("One?")
        await stage.shows("The first answer.")
        await stage.idle()
        await stage.send("Two?")
        await stage.shows("The second.")
        await stage.idle()
        await stage.send("/copy")
        await stage.until(lambda: stage.app.clipboard == "The second.")
        await stage.send("/copy 2")
        await stage.until(lambda: stage.app.clipboard == "The **first** answer.")


async def test_leaving_by_a_word(open_app: OpenApp) -> None:
    async with open_app() as stage:
        await stage.send("/quit")
        await stage.until(lambda: stage.app.return_code == 0 and not stage.app.is_running)
