"""A prompt goes to the model, and its tool call and answer appear on the screen."""

from pathlib import Path

from odin.testing import call, say
from tests.tui.conftest import OpenApp


async def test_a_prompt_is_answered_on_the_screen(open_app: OpenApp, workspace: Path) -> None:
    (workspace / "a.py").write_text("x = 1\n")
    script = [call("Read", {"file_path": str(workspace / "a.py")}), say("It sets **x** to one.")]
    async with open_app(script, yes=True) as stage:
        await stage.send("What is in a.py?")
        await stage.shows("What is in a.py?", "Read", "It sets x to one.")
        await stage.idle()
        assert "What is in a.py?" in str(stage.server.requests[0].body)
        assert not stage.app.composer.text
