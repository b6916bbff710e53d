"""`/context`, `/usage` and `/budget` in a real terminal."""

from pathlib import Path

from odin.core.call_events import UsageReport, UsageRow
from odin.core.client import ContextPart, ContextReport
from odin.core.message import Usage
from odin.testing import ScriptedServer, call, reply
from odin.ui.slash_commands.reports import format_context, format_table
from tests.ui.pseudo_terminal import open_terminal

PRICES = '{"anthropic": {"m": {"price_input": 1000000, "price_output": 0, "context": 25000}}}'


def test_turn_stopped_by_the_budget_continues_after_it_is_raised(home: Path, workspace: Path) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(PRICES)
    script = [
        reply(calls=[call("LS", {"path": str(workspace)})], usage=Usage(2)),
        reply("All seen.", usage=Usage(200, 0, 300)),
    ]
    with (
        ScriptedServer(script) as server,
        open_terminal(
            "--yes",
            "--max-budget-usd",
            "1",
            "--model",
            "anthropic/m",
            cwd=workspace,
            env=server.env("anthropic"),
            with_stdout=True,
        ) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/usage\n")
        terminal.see("No usage yet.")
        terminal.type("look around\n")
        terminal.see("The session budget of $1.00 is used up: $2.00 spent.")
        assert len(server.requests) == 1
        terminal.type("/budget lots\n")
        terminal.see("Not an amount in US dollars: 'lots'.")
        terminal.type("/budget 1.5\n")
        terminal.see("Budget of this session: $1.50")
        terminal.type("/budget 5\n")
        terminal.see("Budget of this session: $5.00")
        terminal.see("All seen.")
        assert len(server.requests) == 2
        terminal.type("/cost\n")
        terminal.match(r"model +calls +input +output +cache +cost\r\nanthropic/m +2 +502 +0 +60% +\$202\.00\r\n")
        terminal.see("Budget: $5.00.")
        terminal.type("/context\n")
        terminal.see("anthropic/m: 500 tokens of 18,750 (3%)")
        terminal.see(f"[#{' ' * 29}]")
        terminal.see("system prompt")
        terminal.see("the parts are estimates")
        terminal.type("/exit\n")
        terminal.wait_for_exit()
        assert server.rejected == []


def test_usage_table_with_a_usual_model_name_fits_into_eighty_columns() -> None:
    row = UsageRow("openai/gpt-4.1-mini", "", 4, 1_200, 800, 30_000_000, 2_500, 0, 0.0412, 9, 0.89)
    lines = format_table(UsageReport("", "model", (row,), row), 79)
    assert lines[1].startswith("openai/gpt-4.1-mini ")
    assert max(map(len, lines)) <= 79


def test_context_report_marks_estimates_and_an_unknown_window() -> None:
    parts = (ContextPart("tools", 30, 17), ContextPart("prompts", 70))
    shown = format_context(ContextReport("m", 100, 0, 0, measured=False, parts=parts))
    assert shown.splitlines() == [
        "m: about 100 tokens; window size unknown",
        "  prompts         70   70%",
        "  tools           30   30%   (17 items)",
        "All numbers are estimates until the next reply.",
    ]
    shown = format_context(ContextReport("m", 1_500, 1_000, 800, measured=True, parts=parts))
    assert "1,500 tokens of 1,000 (150%)" in shown
    assert "Auto-compacts at 800 tokens" in shown
