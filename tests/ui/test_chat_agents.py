"""Sub-agents in plain mode, in a real terminal: listed, prompted, interrupted and cancelled."""

import threading
from pathlib import Path

from odin.testing import ScriptedServer, call, say
from tests.engine.test_team import TeamScript, complete, delegate
from tests.ui.pseudo_terminal import open_terminal
from tests.waiting import wait_until


def test_agent_is_focused_prompted_and_interrupted_while_another_works(workspace: Path) -> None:
    gate = threading.Event()
    script = TeamScript(
        [delegate("a"), delegate("b"), say("Both are started."), *(say("I see.") for _ in range(9))],
        a=[say("Counting " * 50).stall(after=6), say("I count on.\nAnd on."), complete("Counted it.")],
        b=[complete("Read it.").hold(gate)],
    )
    with (
        ScriptedServer(script) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        terminal.see("Both are started.")
        terminal.see("[general-1] started: job a")
        wait_until(lambda: len(server.requests) >= 5)
        terminal.type("/agents\n")
        terminal.match(r"general-1: working, task adhoc-1.*: job a\r\ngeneral-2: working, task adhoc-2.*: job b")
        terminal.type("/focus nobody\n")
        terminal.see("There is no running agent 'nobody'. Running agents: general-1, general-2.")
        terminal.type("/focus general-1\n")
        terminal.see("general-1 edit> ")
        terminal.type("\x03")
        terminal.see("[general-1] idle: The user interrupted it.")
        terminal.type("count on\n")
        terminal.see("[general-1] I count on.\r\n[general-1] And on.")
        terminal.type("!echo for the agent\n")
        terminal.see("for the agent\r\n", times=2)
        terminal.type("finish\n")
        terminal.see("[general-1] completed: Counted it.")
        terminal.see("Prompts go to the main agent again.")
        terminal.see("I see.")
        terminal.type("/new\n")
        terminal.see("Agents are still at work:")
        terminal.see("Type /new again to stop them.")
        terminal.type("!echo started; sleep 600\n")
        terminal.see("started\r\n")
        terminal.type("\x03")
        terminal.see("(interrupted by the user")
        terminal.type("/exit\n")
        terminal.see("Agents are still at work:", times=2)
        terminal.see("general-2: job b", times=2)
        terminal.type("/agents stop general-2 not needed\n")
        terminal.see("Cancelled task adhoc-2.")
        terminal.see("[general-2] cancelled: not needed")
        wait_until(lambda: any(b"The user cancelled it: not needed" in seen.body for seen in server.requests))
        terminal.see("I see.", times=sum("Delegate" in seen.tool_names for seen in server.requests) - 3)
        terminal.type("/agents\n")
        terminal.match(r"adhoc-1 \(general-1\): completed: job a → Counted it\.\r\nadhoc-2 \(general-2\): cancelled")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert "Traceback" not in terminal.shown
        heard = [seen.body.decode() for seen in server.requests if "Complete" in seen.tool_names]
        assert any("count on" in body for body in heard)
        assert "Context from `echo for the agent`" in heard[-1]
        assert server.rejected == []


def test_agent_asks_for_permission_after_the_main_agents_turn(workspace: Path) -> None:
    gate = threading.Event()
    command = call("ExecuteCommand", {"command": "touch made"}).hold(gate)
    script = TeamScript([delegate("a"), say("It is started."), say("I see.")], a=[command, complete("Made it.")])
    with (
        ScriptedServer(script) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        terminal.see("It is started.")
        terminal.see("edit> ", times=2)
        gate.set()
        terminal.see("general-1 (job a) asks: Keep what this command changed?\r\n  | touch made")
        terminal.see("Keep it? [y]es")
        terminal.type("y\n")
        terminal.see("[general-1] completed: Made it.")
        wait_until((workspace / "made").exists)
        terminal.see("I see.")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0


def test_a_prompt_to_the_agent_of_an_idle_task_continues_it(workspace: Path) -> None:
    script = TeamScript(
        [delegate("a"), say("It is started."), *(say("I see.") for _ in range(3))],
        a=[say("Counting " * 50).stall(after=6), complete("Counted it.")],
    )
    with (
        ScriptedServer(script) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        terminal.see("It is started.")
        wait_until(lambda: len(server.requests) >= 3)
        terminal.type("/agents close general-1\n")
        terminal.see("Its task adhoc-1 can be continued.")
        terminal.see("mail: [mail-2] blocked from general-1, task adhoc-1")
        terminal.see("I see.")
        terminal.type("/focus general-1\n")
        terminal.see("general-1 edit> ")
        terminal.type("count on\n")
        terminal.see("[general-2] completed: Counted it.")
        terminal.see("Prompts go to the main agent again.")
        terminal.type("/exit\n")
