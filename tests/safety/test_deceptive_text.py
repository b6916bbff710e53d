"""Invisible and misleading characters are escaped in answers on a terminal; ordinary text in any script is not."""

import json
import unicodedata
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, say
from odin.ui.clean_text import sanitize
from odin.ui.terminal import escape_control, escape_json
from tests.conftest import Run
from tests.table import each
from tests.ui.pseudo_terminal import open_terminal

DECEPTIVE = [
    *map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))),
    *map(chr, (0x200B, 0x2060, 0xFEFF, 0xAD, 0x200E, 0x200F, 0x61C, 0x34F, 0x115F, 0x3164, 0xFFA0, 0x180E)),
    *map(chr, (0x2028, 0x2029, 0x2061, 0x2064, 0x206A, 0x206F, 0xFFF9, 0x1D173, 0xE0001, 0xE0041, 0xE007F, 0xE01F0)),
]


@each("char", DECEPTIVE)
def test_a_deceptive_character_is_escaped(char: str) -> None:
    for text in (char, f"a{char}b", f"é{char}é", f"x\n{char}", f"漢{char}字"):
        for show in (escape_control, sanitize):
            assert char not in show(text), text
            assert ascii(char)[1:-1] in show(text)


@each(
    "text",
    [
        "a\u200cb",
        "a\u200db",
        "pass\u200dword",
        "a\ufe0f",
        "😀\ufe0f\ufe0f",
        "😀\U000e0100\U000e0101\U000e0102",
        "\ufe00",
        "\u200d",
        "🏴\U000e0041\U000e0042",
        "🏴\U000e0067\U000e0062 no end",
    ],
)
def test_misplaced_joiners_and_selectors_are_escaped(text: str) -> None:
    shown = escape_control(text)
    assert shown != text
    assert "\\" in shown


READABLE = [
    "plain text, “quotes” – and\u00a0a\u202fspace: 100\u00a0%\u3000x",
    "שלום עולם! אני כותב code בעברית.",
    "مرحبا بالعالم",
    "\u200fעברית (C++)\u200e",
    "می\u200cخواهم",
    "क्\u200dष",
    "👩\u200d👩\u200d👧\u200d👦 ❤️ ❤️\u200d🔥 1️⃣ #️⃣ 👍🏽 🏳️\u200d🌈 👩🏽\u200d🚀",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "葛\U000e0100 漢字 한국어 ไทย e\u0301 Ω",
    "⠀⠁⠂ braille",
    "tabs\tand\nlines\n",
]


@each("text", READABLE)
def test_ordinary_text_is_not_escaped(text: str) -> None:
    assert escape_control(text) == text


@each("text", [text for text in READABLE if "\u200dष" not in text and "\t" not in text])
def test_the_tui_shows_ordinary_text_unchanged(text: str) -> None:
    assert sanitize(text) == text


@each("text", [*DECEPTIVE, *READABLE, "\x9b31m", "\x7f", "\U000e0041" * 50])
def test_escaped_json_decodes_to_the_same_value(text: str) -> None:
    data = json.dumps({"text": text}, ensure_ascii=False).encode()
    safe = escape_json(data)
    assert json.loads(safe) == {"text": text}
    hidden = [char for char in safe.decode() if unicodedata.category(char) in ("Cc", "Cf")]
    assert hidden == []


_ANSWER = "Run \u202ehs.live\u202c or a\u200bb, x\ufeffy\u2066z\u2069 \U000e0041. שלום 👩\u200d🚀"
_SHOWN = "Run \\u202ehs.live\\u202c or a\\u200bb, x\\ufeffy\\u2066z\\u2069 \\U000e0041. שלום 👩\u200d🚀"


@pytest.mark.parametrize("how", [("-p", "Hi."), ("--plain",)], ids=["headless", "plain"])
def test_deceptive_characters_of_an_answer_are_escaped_on_a_terminal(workspace: Path, how: tuple[str, ...]) -> None:
    with (
        ScriptedServer([say(_ANSWER)]) as server,
        open_terminal(*how, cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        if how[0] == "--plain":
            terminal.see("edit> ")
            terminal.type("Hi.\n")
        terminal.wait_for_bytes(_SHOWN.encode())
        if how[0] == "--plain":
            terminal.type("/exit\n")
        terminal.wait_for_exit()
        assert "\u202e".encode() not in terminal.raw


def test_piped_output_contains_the_exact_answer(run_odin: Run) -> None:
    with ScriptedServer([say(_ANSWER), say(_ANSWER)]) as server:
        assert run_odin("-p", "Hi.", env=server.env("anthropic")).stdout == f"{_ANSWER}\n"
        result = run_odin("-p", "Hi.", "--output-format", "json", env=server.env("anthropic")).stdout
    assert _ANSWER in result
    assert json.loads(result)["result"] == _ANSWER
