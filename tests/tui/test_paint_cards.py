"""Cards on the screen: calls in every state, diffs, output, pictures, and the ends of turns."""

from dataclasses import replace
from pathlib import Path

import pytest

from odin.core.message import Image
from odin.ui.tui.blocks import (
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
from odin.ui.tui.paint.canvas import Canvas, ThumbnailCache, load_thumbnail
from odin.ui.tui.paint.diff import SHORT_DIFF, paint_diff, parse_diff
from odin.ui.tui.paint.painter import can_fold, choose_fold, is_folded, paint_block
from odin.ui.tui.paint.sanitize import parse_ansi
from odin.ui.tui.palette import DARK, make_palette
from tests.pictures import png

COLOURS = make_palette(DARK)
CANVAS = Canvas(80, COLOURS, now=1_012.0, cwd="/home/me/project", home="/home/me")

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


def lines(block: TranscriptBlock, canvas: Canvas = CANVAS) -> list[str]:
    painted = paint_block(block, canvas)
    assert all(line.cell_length <= canvas.width for line in painted), "wider than the screen"
    return [line.text.rstrip() for line in painted]


def call(state: CallState = "success", **more: object) -> CallBlock:
    fields = {"key": "c", "name": "Read", "args": {"file_path": "/home/me/project/src/a.py"}, **more}
    return CallBlock(state=state, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("block", "head"),
    [
        (call("writing", chars=1234), "· Read src/a.py  writing · 1,234 chars"),
        (call("queued"), "○ Read src/a.py  queued"),
        (call("asking"), "? Read src/a.py  waiting for your answer"),
        (call("running", started=1_000.0), "◑ Read src/a.py  running · 12 s"),
        (
            call(note="Read /home/me/project/src/a.py (lines 1-9)", duration_ms=300),
            "✓ Read src/a.py  lines 1-9 · 0.3 s",
        ),
        (call(result="first\nsecond"), "✓ Read src/a.py  first (+1 lines)"),
        (
            call(name="Spawn", args={"command": "make"}, note="Started spawn-1 (make)", background=True),
            "✓ Spawn make  Started spawn-1 · continues in the background",
        ),
        (
            call(name="Grep", description="TAX in a.py", note="Searched 'TAX' in a.py: 2 matches"),
            "✓ Grep TAX in a.py  2 matches",
        ),
        (call("error", result="No such file"), "✗ Read src/a.py  failed"),
        (call("cancelled"), "– Read src/a.py  cancelled"),
        (call("denied", explanation="denied by you"), "⊘ Read src/a.py  denied"),
        (call("discarded", explanation="it was interrupted"), "– Read src/a.py  discarded"),
        (
            call(name="X", args={"command": "make\ntest"}, note="Ran: make (exit code 1)"),
            "✓ X make test  Ran: make (exit code 1)",
        ),
        (call(name="X", description="/home/me/other/b", args={}), "✓ X ~/other/b"),
    ],
)
def test_the_head_of_a_call_says_its_state_in_words(block: CallBlock, head: str) -> None:
    assert lines(block)[1] == head


def test_only_a_running_call_moves() -> None:
    later = replace(CANVAS, now=1_012.4)
    for state in ("writing", "queued", "asking", "success", "error", "cancelled", "denied", "discarded"):
        assert lines(call(state)) == lines(call(state), later)
    running = call("running", started=1_000.0)
    assert lines(running)[1][0] != lines(running, later)[1][0]


def test_a_running_call_shows_the_end_of_its_output() -> None:
    assert len(lines(call("running"))) == len(lines(call())), "a card is no row longer while nothing is printed"
    block = call("running", tail=[f"line {n}" for n in range(9)])
    assert lines(block)[2:] == [f"  line {n}" for n in range(4, 9)]


def test_results_are_folded_failures_are_open_and_all_is_seen_when_unfolded() -> None:
    block = call(result="\n".join(f"row {n}" for n in range(40)))
    assert len(lines(block)) == 2
    block.folded = False
    assert "  40 lines" in lines(block) and lines(block)[-1] == "  row 39"
    assert any("file_path: /home/me/project/src/a.py" in line for line in lines(block))
    failed = call("error", result="\n".join(f"row {n}" for n in range(40)))
    assert "  row 0" in lines(failed) and lines(failed)[-1] == "  … 28 more lines"
    assert choose_fold(failed) is False
    failed.folded = False
    assert choose_fold(failed) is True


def test_a_list_of_tasks_is_folded_because_it_has_a_panel() -> None:
    block = call(name="TodoWrite", args={"todos": []}, view="[x] One\n[ ] Two", note="Todos: 1 of 2 completed")
    assert lines(block)[1:] == ["✓ TodoWrite  Todos: 1 of 2 completed"]
    block.folded = False
    assert "[x] One" in "\n".join(lines(block))


def test_what_somebody_changed_or_took_out_is_told_on_the_card() -> None:
    block = call(args={"a": 2}, original_args={"a": 1}, changed_by="user", redacted=("an API key",), for_user="See it.")
    said = "\n".join(lines(block))
    assert "changed by you" in said and "an API key" in said and "See it." in said
    block.folded = False
    assert "the model asked for:" in "\n".join(lines(block)) and "a: 1" in "\n".join(lines(block))


def test_output_keeps_colours_and_nothing_else_of_a_terminal() -> None:
    text = "\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07\x1b[8mhidden\x1b[0m "
    text += "\x1b[38;5;40mgreen\x1b[48;2;0;0;0m\x1b[?1049h\x07"
    line = parse_ansi(text, COLOURS.dim)[0]
    assert "".join(segment.text for segment in line) == "red hidden green\\x07"
    looks = {segment.text.strip(): segment.style for segment in line if segment.style is not None}
    assert looks["red"].color is not None and looks["red"].color.number == 1
    assert looks["green"].color is not None and looks["green"].color.number == 40
    assert all(not style.bgcolor and not style.conceal for style in looks.values())


def test_a_diff_is_read_with_its_numbers_and_words() -> None:
    changes = parse_diff(DIFF)[0]
    rows = [(row.sign, row.old, row.new, row.text) for hunk in changes.hunks for row in hunk.rows]
    assert rows[1:3] == [("-", 2, 0, "    return value + 1"), ("+", 0, 2, "    return value + 2")]
    assert rows[4] == ("-", 20, 0, "-- a comment")
    assert changes.hunks[1].skipped == 16
    old = changes.hunks[0].rows[1]
    assert [old.text[a:b] for a, b in old.words] == ["1"]


def test_a_diff_is_below_or_beside() -> None:
    unified = [line.text for line in paint_diff(DIFF, CANVAS, whole=True)]
    assert [line.rstrip() for line in unified[:3]] == [
        "    1   def f(value):",
        "    2 -     return value + 1",
        "    2 +     return value + 2",
    ]
    assert unified[4].strip() == "⋯ 16 lines"
    split = [line.text for line in paint_diff(DIFF, replace(CANVAS, width=130), whole=True)]
    assert split[1].count("return value") == 2 and "│" in split[1]
    forced = paint_diff(DIFF, replace(CANVAS, diff_style="split"), whole=True)
    assert forced[1].text.count("return value") == 2
    assert all(line.cell_length <= 80 for line in forced)
    kept = paint_diff(DIFF, replace(CANVAS, width=130, diff_style="unified"), whole=True)
    assert kept[1].text.count("return value") == 1


def test_a_long_diff_is_cut_until_somebody_unfolds_it() -> None:
    body = "".join(f"+line {n}\n" for n in range(100))
    view = f"--- /x/a.txt\n+++ /x/a.txt\n@@ -0,0 +1,100 @@\n{body}"
    block = call(name="WriteFile", view=view)
    assert not is_folded(block)
    assert len(lines(block)) == 3 + SHORT_DIFF and "70 more lines of changes" in lines(block)[-1]
    assert choose_fold(block) is False
    block.folded = False
    assert "line 99" in lines(block)[-1]


def test_thinking_counts_while_it_lasts() -> None:
    block = ReasoningBlock(key="t", ts=1_008.0, live=True)
    block.append("Hm.")
    assert lines(block)[1] == "▸ Thinking… 4 s"
    block.live, block.seconds = False, 12.4
    assert lines(block)[1] == "▸ Thought for 12 s"
    block.seconds = 0.4
    assert lines(block)[1] == "▸ Thought for less than a second"
    block.seconds = 12.4
    block.folded = False
    assert lines(block)[1:] == ["▾ Thought for 12 s", "  Hm."]


def test_an_interrupted_call_shows_the_end_of_what_it_had_printed() -> None:
    printed = "\n".join(f"line {number}" for number in range(1, 31))
    block = call("cancelled", duration_ms=4_000, result=f"{printed}\n\n[Interrupted: it did not finish.]")
    shown = lines(block)[2:]
    assert (shown[0], shown[1]) == ("  … 20 earlier lines", "  line 21")
    assert shown[-1] == "  [Interrupted: it did not finish.]"
    assert len(lines(call("cancelled", result="Not run."))) == 2, "a call that never began has nothing to show"


def test_a_turn_ends_quietly_or_says_what_to_do() -> None:
    assert lines(EndBlock(key="e", reason="end_turn", duration_ms=300)) == []
    footer = EndBlock(key="e", reason="end_turn", duration_ms=34_000, cost_usd=0.0312)
    assert lines(footer)[1:] == ["34 s · $0.0312"]
    stopped = EndBlock(key="e", reason="interrupted", duration_ms=2_000, error="The turn was interrupted.")
    assert lines(stopped)[1:] == ["– interrupted · 2.0 s"]
    failed = EndBlock(key="e", reason="error", error="The key was refused.", hint="Set ANTHROPIC_API_KEY.")
    assert lines(failed)[1:] == ["✗ The key was refused.", "  Set ANTHROPIC_API_KEY."]


def test_the_cards_beside_the_answer() -> None:
    agent = AgentBlock(key="agent-1", task="Look at it", mode="ask_mode", ts=1_000.0, doing="Grep todo", calls=2)
    assert lines(agent)[1:] == ["◑ agent-1 Look at it  working · 12 s · 2 calls", "  Grep todo"]
    agent.description, agent.denied, agent.doing = "find it", 1, ""
    assert lines(agent)[1:] == ["◑ agent-1 find it  working · 12 s · 2 calls · 1 denied"]
    agent.folded = False
    assert lines(agent)[2:] == ["  Look at it"]
    agent.folded, agent.task_id, agent.state = True, "adhoc-1", "idle"
    assert lines(agent)[1:] == ["• agent-1 find it  idle · 2 calls · 1 denied"], "nothing counts the time it waits"
    process = ProcessBlock(key="spawn-1", command="make", status="failed", code=2, output="boom", ts=1.0, ended=4.0)
    assert lines(process)[1:] == ["✗ spawn-1 make  failed with exit code 2 · 3.0 s", "  boom"]
    assert lines(NoticeBlock(key="n", text="Mind this.", level="warn"))[1:] == ["! Mind this."]
    summary = SummaryBlock(key="s", text="## Done\nAll.", tokens_before=9000, tokens_after=900)
    assert lines(summary)[1:] == ["▸ Conversation compacted: 9,000 → 900 tokens"]
    summary.folded = False
    assert lines(summary)[2:] == ["  Done", "  All."]


def test_a_prompt_is_shown_whole_unless_it_is_very_long() -> None:
    block = PromptBlock(key="p", text="a\nb", mode="plan_mode")
    assert lines(block)[1:] == ["› a", "  b", "  plan"]
    long = PromptBlock(key="p", text="line\n" * 60, mode="edit_mode")
    long.folded = False
    assert len(lines(long)) == 61


def test_ones_own_words_before_and_after_a_long_paste_stay_visible() -> None:
    pasted = "\n".join(f"log line {number}" for number in range(240))
    block = PromptBlock(key="p", text=f"Look at this:\n{pasted}\nWhy does it fail?\n", mode="edit_mode")
    shown = lines(block)[1:]
    assert (shown[0], shown[-1]) == ("› Look at this:", "  Why does it fail?")
    assert shown[5] == "  [… 232 more lines …]"
    assert len(shown) == 11
    for text, can in ((block.text, True), ("word " * 400, True), ("short", False)):
        assert can_fold(PromptBlock(key="p", text=text, mode="edit_mode")) is can


def test_a_picture_is_named_and_shown_when_it_is_there(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / "p.png"
    path.write_bytes(png(64, 32))
    gallery = ThumbnailCache()
    canvas = replace(CANVAS, thumbnails=gallery)
    block = call(images=(Image(str(path), "image/png", 64, 32),))
    assert lines(block, canvas)[-1] == "  [image: p.png, 64×32]"
    for key in list(gallery.missing):
        gallery.store(key, load_thumbnail(*key))
    assert "▀▀▀▀" in lines(block, canvas)[-1]
    assert load_thumbnail(str(tmp_path / "none.png"), 20) is None


def test_every_card_fits_any_width() -> None:
    blocks: list[TranscriptBlock] = [
        call("error", description="文字" * 60, result="x" * 300 + "\n文字" * 90, note="a note" * 20),
        call(view=DIFF),
        call("running", started=1_000.0, tail=["y" * 300, "文" * 200]),
        AgentBlock(key="agent-1", task="task " * 60, mode="ask_mode", doing="z" * 300),
        NoticeBlock(key="n", text="w" * 300),
        PromptBlock(key="p", text="文字" * 100, mode="edit_mode", images=(Image("/a/b.png", "image/png"),)),
        EndBlock(key="e", reason="error", error="e" * 200, hint="h" * 200),
    ]
    for width in (20, 38, 39, 60, 118, 158, 298):
        for block in blocks:
            for fold in (None, False, True):
                block.folded = fold
                lines(block, replace(CANVAS, width=width))
