"""`preview_session`: the last prompts of a session and their answers."""

from pathlib import Path

import msgspec

from odin.core.call_events import Replied
from odin.core.client import Exchange
from odin.core.event import AnyEvent, Envelope, PromptInjected, Redone, Rewound, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text
from odin.session.search import EXCHANGE_CHARS, MAX_EXCHANGES, PREVIEW_BYTES, preview_session


def encode_line(event: AnyEvent, agent: str = "", ts: float = 1.0) -> bytes:
    return msgspec.json.encode(Envelope(1, ts, "s", event, agent)) + b"\n"


def make_reply(text: str) -> Replied:
    return Replied(ReplyMessage((Text(text),)))


def write_log(folder: Path, *lines: bytes) -> Path:
    path = folder / "log"
    path.write_bytes(b'{"odin":"header"}\n' + b"".join(lines))
    return path


def test_preview_pairs_prompts_with_the_last_text_of_their_answers(tmp_path: Path) -> None:
    path = write_log(
        tmp_path,
        encode_line(TurnStarted("a", "First?", "edit_mode"), ts=5.0),
        encode_line(make_reply("Let me look.")),
        encode_line(make_reply("It is so.")),
        encode_line(make_reply("")),
        encode_line(TurnStarted("b", "expanded", "edit_mode", display_text="/tidy")),
        encode_line(make_reply("of a sub-agent"), agent="sub-1"),
        encode_line(PromptInjected("c", "Hurry", "edit_mode", turn="b")),
        encode_line(make_reply("Done.")),
        b'{"torn',
    )
    found = preview_session(path, "s")
    assert found.exchanges == (
        Exchange("First?", "It is so.", 5.0),
        Exchange("/tidy", "", 1.0),
        Exchange("Hurry", "Done.", 1.0),
    )
    assert not found.earlier


def test_rewound_prompts_are_hidden_until_redone(tmp_path: Path) -> None:
    turns = [event for name in "abc" for event in (TurnStarted(name, f"{name}?", "edit_mode"), make_reply(f"{name}!"))]
    back = Rewound("r", "b", files=True, chat=True)
    for after, left in (
        ([], ["a", "b", "c"]),
        ([back], ["a"]),
        ([back, TurnStarted("d", "d?", "edit_mode"), make_reply("d!")], ["a", "d"]),
        ([back, Redone("r")], ["a", "b", "c"]),
        ([Rewound("r", "b", files=True, chat=False)], ["a", "b", "c"]),
        ([Rewound("r", "before the tail", files=False, chat=True)], []),
        ([Rewound("r", "before the tail", files=False, chat=True), Redone("r")], ["a", "b", "c"]),
        ([Redone("before the tail")], []),
        ([TurnStarted("d", "no", "edit_mode"), TurnEnded("d", "error", error_kind="PromptBlocked")], ["a", "b", "c"]),
    ):
        found = preview_session(write_log(tmp_path, *map(encode_line, [*turns, *after])), "s")
        assert [(item.prompt, item.answer) for item in found.exchanges] == [(f"{name}?", f"{name}!") for name in left]


def test_preview_of_a_long_log_reads_only_its_end_and_is_limited(tmp_path: Path) -> None:
    turns = [
        encode_line(TurnStarted(str(n), f"{n} " + "x" * 20_000, "edit_mode"))
        for n in range(PREVIEW_BYTES // 20_000 + 20)
    ]
    found = preview_session(write_log(tmp_path, *turns), "s")
    assert len(found.exchanges) == MAX_EXCHANGES
    assert found.exchanges[-1].prompt.startswith(f"{len(turns) - 1} ")
    assert all(len(exchange.prompt) <= EXCHANGE_CHARS + 1 for exchange in found.exchanges)
    assert found.earlier


def test_preview_of_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert preview_session(tmp_path / "nothing", "s").exchanges == ()
