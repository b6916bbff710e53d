"""Painting of cards: tool calls in every state, diffs, output, images, and the ends of turns."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from odin.core.message import Image
from odin.ui.transcript.blocks import (
    AgentBlock,
    CallBlock,
    CallState,
    EndBlock,
    NoticeBlock,
    ProcessBlock,
    PromptBlock,
    ReasoningBlock,
    SummaryBlock,
    TranscriptBlock,
)
from odin.ui.transcript.words import ShownFolders, is_folded
from odin.ui.tui.paint.ansi import parse_ansi
from odin.ui.tui.paint.canvas import Canvas, ThumbnailCache, load_thumbnail
from odin.ui.tui.paint.diff import SHORT_DIFF, paint_diff, parse_diff
from odin.ui.tui.paint.painter import can_fold, choose_fold, paint_block
from odin.ui.tui.palette import DARK, make_palette
from tests.pictures import png

PALETTE = make_palette(DARK)
CANVAS = Canvas(80, PALETTE, now=1_012.0, folders=ShownFolders("/home/me/project", "/home/me"))

DIFF = """--- /home/me/project/a.py
+++ /home/me/project/a.py
@@ -1,3 +1,3 @@
 def f(value):
-    return value + 1
+    return value + 2
 # end
@@ -20,2 +20,1 @@
--- a comment
 last
"""


def paint_lines(block: TranscriptBlock, canvas: Canvas = CANVAS) -> list[str]:
    painted = paint_block(block, canvas)
    assert all(line.cell_length <= canvas.width for line in painted), "wider than the screen"
    return [line.text.rstrip() for line in painted]


def call_block(state: CallState = "success", **more: object) -> CallBlock:
    fields = {"key": "c", "name": "Read", "args": {"file_path": "/home/me/project/src/a.py"}, **more}
    return CallBlock(state=state, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("block", "head"),
    [
        (call_block("writing", chars=1234), "· Read src/a.py  writing · 1,234 chars"),
        (call_block("queued"), "○ Read src/a.py  queued"),
        (call_block("asking"), "? Read src/a.py  waiting for your answer"),
        (call_block("running", started=1_000.0), "◑ Read src/a.py  running · 12 s"),
        (
            call_block(note="Read /home/me/project/src/a.py (lines 1-9)", duration_ms=300),
            "✓ Read src/a.py  lines 1-9 · 0.3 s",
        ),
        (call_block(result="first\nsecond"), "✓ Read src/a.py  first (+1 line)"),
        (
            call_block(name="Spawn", args={"command": "make"}, note="Started spawn-1 (make)", background=True),
            "✓ Spawn make  Started spawn-1 · continues in the background",
        ),
        (
            call_block(name="Grep", description="TAX in a.py", note="Searched 'TAX' in a.py: 2 matches"),
            "✓ Grep TAX in a.py  2 matches",
        ),
        (call_block("error", result="No such file"), "✗ Read src/a.py  failed"),
        (call_block("cancelled"), "– Read src/a.py  cancelled"),
        (call_block("denied", explanation="denied by you"), "⊘ Read src/a.py  denied"),
        (call_block("discarded", explanation="it was interrupted"), "– Read src/a.py  discarded"),
        (
            call_block(name="X", args={"command": "make\ntest"}, note="Ran: make (exit code 1)"),
            "✓ X make test  Ran: make (exit code 1)",
        ),
        (call_block(name="X", description="/home/me/other/b", args={}), "✓ X ~/other/b"),
    ],
)
def test_the_header_of_a_call_shows_its_state_in_words(block: CallBlock, head: str) -> None:
    assert paint_lines(block)[1] == head


def test_only_a_running_call_is_animated() -> None:
    later = replace(CANVAS, now=1_012.4)
    for state in ("writing", "queued", "asking", "success", "error", "cancelled", "denied", "discarded"):
        assert paint_lines(call_block(state)) == paint_lines(call_block(state), later)
    running = call_block("running", started=1_000.0)
    assert paint_lines(running)[1][0] != paint_lines(running, later)[1][0]


def test_a_running_call_shows_the_end_of_its_output() -> None:
    assert len(paint_lines(call_block("running"))) == len(paint_lines(call_block())), (
        "a running call without output has no extra row"
    )
    block = call_block("running", tail=[f"line {n}" for n in range(9)])
    assert paint_lines(block)[2:] == [f"  line {n}" for n in range(4, 9)]


def test_results_are_folded_and_failures_are_open() -> None:
    block = call_block(result="\n".join(f"row {n}" for n in range(40)))
    assert len(paint_lines(block)) == 2
    block.folded = False
    assert "  40 lines" in paint_lines(block) and paint_lines(block)[-1] == "  row 39"
    assert any("file_path: /home/me/project/src/a.py" in line for line in paint_lines(block))
    failed = call_block("error", result="\n".join(f"row {n}" for n in range(40)))
    assert "  row 0" in paint_lines(failed) and paint_lines(failed)[-1] == "  … 28 more lines"
    assert choose_fold(failed) is False
    failed.folded = False
    assert choose_fold(failed) is True


def test_a_todo_list_is_folded_because_it_has_a_panel() -> None:
    block = call_block(name="TodoWrite", args={"todos": []}, view="[x] One\n[ ] Two", note="Todos: 1 of 2 completed")
    assert paint_lines(block)[1:] == ["✓ TodoWrite  Todos: 1 of 2 completed"]
    block.folded = False
    assert "[x] One" in "\n".join(paint_lines(block))


def test_the_card_shows_changed_arguments_and_redactions() -> None:
    block = call_block(
        args={"a": 2}, original_args={"a": 1}, changed_by="user", redacted=("an API key",), for_user="See it."
    )
    said = "\n".join(paint_lines(block))
    assert "changed by you" in said and "an API key" in said and "See it." in said
    block.folded = False
    assert "the model asked for:" in "\n".join(paint_lines(block)) and "a: 1" in "\n".join(paint_lines(block))


def test_output_keeps_colors_but_no_other_control_sequences() -> None:
    text = "\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07\x1b[8mhidden\x1b[0m "
    text += "\x1b[38;5;40mgreen\x1b[48;2;0;0;0m\x1b[?1049h\x07"
    line = parse_ansi(text, PALETTE.dim)[0]
    assert "".join(segment.text for segment in line) == "red hidden green\\x07"
    looks = {segment.text.strip(): segment.style for segment in line if segment.style is not None}
    assert looks["red"].color is not None and looks["red"].color.number == 1
    assert looks["green"].color is not None and looks["green"].color.number == 40
    assert all(not style.bgcolor and not style.conceal for style in looks.values())


def test_a_diff_is_parsed_with_line_numbers_and_changed_words() -> None:
    changes = parse_diff(DIFF)[0]
    rows = [(row.sign, row.old, row.new, row.text) for hunk in changes.hunks for row in hunk.rows]
    assert rows[1:3] == [("-", 2, 0, "    return value + 1"), ("+", 0, 2, "    return value + 2")]
    assert rows[4] == ("-", 20, 0, "-- a comment")
    assert changes.hunks[1].skipped == 16
    old = changes.hunks[0].rows[1]
    assert [old.text[a:b] for a, b in old.words] == ["1"]


def test_a_diff_is_unified_or_side_by_side() -> None:
    unified = [line.text for line in paint_diff(DIFF, CANVAS, whole=True)]
    assert [line.rstrip() for line in unified[:3]] == [
        "    1   def f(value):",
        "    2 -     return value + 1",
        "    2 +     return value + 2",
    ]
    assert unified[4].strip() == "⋯ 16 lines"
    # A terminal of 140 columns leaves 136.
    split = [line.text for line in paint_diff(DIFF, replace(CANVAS, width=136), whole=True)]
    assert split[1].count("return value") == 2 and "│" in split[1]
    new = "--- /dev/null\n+++ /home/me/project/a.py\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    wide = DIFF.replace("# end", f"# {'end' * 30}")
    for text, width in ((DIFF, 135), (new, 200), (wide, 136)):
        assert "│" not in "".join(line.text for line in paint_diff(text, replace(CANVAS, width=width), whole=True))
    forced = paint_diff(DIFF, replace(CANVAS, diff_style="split"), whole=True)
    assert forced[1].text.count("return value") == 2
    assert all(line.cell_length <= 80 for line in forced)
    kept = paint_diff(DIFF, replace(CANVAS, width=136, diff_style="unified"), whole=True)
    assert kept[1].text.count("return value") == 1


def test_output_is_wrapped_between_words() -> None:
    block = call_block(name="ExecuteCommand", result=f"{'word ' * 15}python3 script.py", folded=False)
    assert paint_lines(block)[-2:] == [f"  {'word ' * 15}".rstrip(), "  python3 script.py"]


def test_a_result_of_which_only_a_part_is_shown_says_so() -> None:
    text = "1\n\n[... output cut: 108894 bytes in all ...]\n\n20000"
    block = call_block(name="ExecuteCommand", args={"command": "seq 1 20000"}, result=text, folded=False)
    block.note = "Ran: seq 1 20000: 20,000 lines"
    assert paint_lines(block)[1] == "✓ Bash seq 1 20000  20,000 lines"
    assert "  5 lines shown" in paint_lines(block)


def test_a_plan_is_painted_as_markdown_and_named_with_its_folder() -> None:
    block = call_block(name="Handoff", args={"title": "Rename it"}, note=".odin/plans/plan-001.md: approved")
    block.view = "# Rename it\n\nA **bold** step."
    assert paint_lines(block)[1:] == [
        "✓ Handoff Rename it  .odin/plans/plan-001.md: approved",
        "  Rename it",
        "",
        "  A bold step.",
    ]
    block.view += "\n\nMore." * 10
    assert paint_lines(block)[-1] == "  … 11 more lines"


def test_a_long_diff_is_cut_until_it_is_unfolded() -> None:
    body = "".join(f"+line {n}\n" for n in range(100))
    view = f"--- /x/a.txt\n+++ /x/a.txt\n@@ -0,0 +1,100 @@\n{body}"
    block = call_block(name="WriteFile", view=view)
    assert not is_folded(block)
    assert len(paint_lines(block)) == 3 + SHORT_DIFF and "70 more lines of changes" in paint_lines(block)[-1]
    assert choose_fold(block) is False
    block.folded = False
    assert "line 99" in paint_lines(block)[-1]


def test_thinking_shows_its_duration() -> None:
    block = ReasoningBlock(key="t", ts=1_008.0, live=True)
    block.append("Hm.")
    assert paint_lines(block)[1] == "▸ Thinking… 4 s"
    block.live, block.seconds = False, 12.4
    assert paint_lines(block)[1] == "▸ Thought for 12 s"
    block.seconds = 0.4
    assert paint_lines(block)[1] == "▸ Thought for less than a second"
    block.seconds = 12.4
    block.folded = False
    assert paint_lines(block)[1:] == ["▾ Thought for 12 s", "  Hm."]


def test_an_interrupted_call_shows_the_end_of_its_output() -> None:
    printed = "\n".join(f"line {number}" for number in range(1, 31))
    block = call_block("cancelled", duration_ms=4_000, result=f"{printed}\n\n[Interrupted: it did not finish.]")
    shown = paint_lines(block)[2:]
    assert (shown[0], shown[1]) == ("  … 20 earlier lines", "  line 21")
    assert shown[-1] == "  [Interrupted: it did not finish.]"
    assert len(paint_lines(call_block("cancelled", result="Not run."))) == 2, (
        "a call that never started shows no output"
    )


def test_the_end_of_a_turn_shows_a_footer_or_the_error() -> None:
    assert paint_lines(EndBlock(key="e", reason="end_turn", duration_ms=300)) == []
    footer = EndBlock(key="e", reason="end_turn", duration_ms=34_000, cost_usd=0.0312)
    assert paint_lines(footer)[1:] == ["34 s · $0.0312"]
    stopped = EndBlock(key="e", reason="interrupted", duration_ms=2_000, error="The turn was interrupted.")
    assert paint_lines(stopped)[1:] == ["– interrupted · 2.0 s"]
    failed = EndBlock(key="e", reason="error", error="The key was refused.", hint="Set ANTHROPIC_API_KEY.")
    assert paint_lines(failed)[1:] == ["✗ The key was refused.", "  Set ANTHROPIC_API_KEY."]


def test_cards_of_agents_processes_notices_and_summaries() -> None:
    agent = AgentBlock(key="agent-1", task="Look at it", mode="ask_mode", ts=1_000.0, doing="Grep todo", calls=2)
    assert paint_lines(agent)[1:] == ["◑ agent-1 Look at it  working · 12 s · 2 calls", "  Grep todo"]
    agent.description, agent.denied, agent.doing = "find it", 1, ""
    assert paint_lines(agent)[1:] == ["◑ agent-1 find it  working · 12 s · 2 calls · 1 denied"]
    agent.folded = False
    assert paint_lines(agent)[2:] == ["  Look at it"]
    agent.folded, agent.task_id, agent.state = True, "adhoc-1", "idle"
    assert paint_lines(agent)[1:] == ["• agent-1 find it  idle · 2 calls · 1 denied"], "an idle agent shows no duration"
    process = ProcessBlock(key="spawn-1", command="make", status="failed", code=2, output="boom", ts=1.0, ended=4.0)
    assert paint_lines(process)[1:] == ["✗ spawn-1 make  failed with exit code 2 · 3.0 s", "  boom"]
    assert paint_lines(NoticeBlock(key="n", text="Mind this.", level="warn"))[1:] == ["! Mind this."]
    summary = SummaryBlock(key="s", text="## Done\nAll.", tokens_before=9000, tokens_after=900)
    assert paint_lines(summary)[1:] == ["▸ Conversation compacted: 9,000 → 900 tokens"]
    summary.folded = False
    assert paint_lines(summary)[2:] == ["  Done", "  All."]


def test_a_prompt_is_shown_whole_unless_it_is_very_long() -> None:
    block = PromptBlock(key="p", text="a\nb", mode="plan_mode")
    assert paint_lines(block)[1:] == ["› a", "  b", "  plan"]
    long = PromptBlock(key="p", text="line\n" * 60, mode="edit_mode")
    long.folded = False
    assert len(paint_lines(long)) == 61


def test_text_before_and_after_a_long_paste_stays_visible() -> None:
    pasted = "\n".join(f"log line {number}" for number in range(240))
    block = PromptBlock(key="p", text=f"Look at this:\n{pasted}\nWhy does it fail?\n", mode="edit_mode")
    shown = paint_lines(block)[1:]
    assert (shown[0], shown[-1]) == ("› Look at this:", "  Why does it fail?")
    assert shown[5] == "  [… 232 more lines …]"
    assert len(shown) == 11
    for text, can in ((block.text, True), ("word " * 400, True), ("short", False)):
        assert can_fold(PromptBlock(key="p", text=text, mode="edit_mode")) is can


def test_an_image_is_named_until_its_thumbnail_is_loaded(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / "p.png"
    path.write_bytes(png(64, 32))
    gallery = ThumbnailCache()
    canvas = replace(CANVAS, thumbnails=gallery)
    block = call_block(images=(Image(str(path), "image/png", 64, 32),))
    assert paint_lines(block, canvas)[-1] == "  [image: p.png, 64×32]"
    for key in list(gallery.missing):
        gallery.store(key, load_thumbnail(*key))
    assert "▀▀▀▀" in paint_lines(block, canvas)[-1]
    assert load_thumbnail(str(tmp_path / "none.png"), 20) is None


def test_every_card_fits_any_width() -> None:
    blocks: list[TranscriptBlock] = [
        call_block("error", description="文字" * 60, result="x" * 300 + "\n文字" * 90, note="a note" * 20),
        call_block(view=DIFF),
        call_block("running", started=1_000.0, tail=["y" * 300, "文" * 200]),
        AgentBlock(key="agent-1", task="task " * 60, mode="ask_mode", doing="z" * 300),
        NoticeBlock(key="n", text="w" * 300),
        PromptBlock(key="p", text="文字" * 100, mode="edit_mode", images=(Image("/a/b.png", "image/png"),)),
        EndBlock(key="e", reason="error", error="e" * 200, hint="h" * 200),
    ]
    for width in (20, 38, 39, 60, 118, 158, 298):
        for block in blocks:
            for fold in (None, False, True):
                block.folded = fold
                paint_lines(block, replace(CANVAS, width=width))
