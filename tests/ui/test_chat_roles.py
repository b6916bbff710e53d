"""The `/role` command in plain mode."""

from pathlib import Path

from odin.testing import ScriptedServer, say
from tests.ui.pseudo_terminal import open_terminal


def test_the_role_is_switched_and_shown(workspace: Path) -> None:
    with (
        ScriptedServer([say("Planned."), say("Built.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/role\n")
        terminal.see("Role: builder (one of builder, planner)")
        terminal.type("/role planer\n")
        terminal.see("There is no role 'planer'. Did you mean planner? The roles are: builder, planner.")
        terminal.type("/role planner\n")
        terminal.see("Role: planner. Reads and plans; every change needs approval.")
        terminal.see("planner edit> ")
        terminal.type("one\n")
        terminal.see("Planned.")
        terminal.type("/switch role builder\n")
        terminal.see("Role: builder.")
        terminal.type("two\n")
        terminal.see("Built.")
    assert ["# Role: planner" in str(request.json["system"]) for request in server.requests] == [True, False]
