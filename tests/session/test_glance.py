"""The end of a conversation at a glance."""

from pathlib import Path

import msgspec

from odin.core.call_events import Replied
from odin.core.client import Exchange
from odin.core.event import AnyEvent, Envelope, PromptInjected, Redone, Rewound, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text
from odin.session.search import EXCHANGE_CHARS, MAX_EXCHANGES, PREVIEW_BYTES, preview_session


def line(event: AnyEvent, agent: str = "", ts: float = 1.0) -> bytes:
    return msgspec.json.encode(Envelope(1, ts, "s", event, agent)) + b"\n"


def said(text: str) -> Replied:
    return Replied(ReplyMessage((Text(text),)))


def log_of(folder: Path, *lines: bytes) -> Path:
    path = folder / "log"
    path.write_bytes(b'{"odin":"header"}\n' + b"".join(lines))
    return path


def test_the_last_prompts_with_the_last_words_of_their_answers(tmp_path: Path) -> None:
    path = log_of(
        tmp_path,
        line(TurnStarted("a", "First?", "edit_mode"), ts=5.0),
        line(said("Let me look.")),
        line(said("It is so.")),
        line(said("")),
        line(TurnStarted("b", "expanded", "edit_mode", display_text="/tidy")),
        line(said("of a sub-agent"), agent="sub-1"),
        line(PromptInjected("c", "Hurry", "edit_mode", "b")),
        line(said("Done.")),
        b'{"torn',
    )
    found = preview_session(path, "s")
    assert found.exchanges == (
        Exchange("First?", "It is so.", 5.0),
        Exchange("/tidy", "", 1.0),
        Exchange("Hurry", "Done.", 1.0),
    )
    assert not found.earlier


def test_what_was_rewound_is_not_shown_until_it_is_redone(tmp_path: Path) -> None:
    turns = [event for name in "abc" for event in (TurnStarted(name, f"{name}?", "edit_mode"), said(f"{name}!"))]
    back = Rewound("r", "b", files=True, chat=True)
    for after, left in (
        ([], ["a", "b", "c"]),
        ([back], ["a"]),
        ([back, TurnStarted("d", "d?", "edit_mode"), said("d!")], ["a", "d"]),
        ([back, Redone("r")], ["a", "b", "c"]),
        ([Rewound("r", "b", files=True, chat=False)], ["a", "b", "c"]),
        ([Rewound("r", "before the tail", files=False, chat=True)], []),
        ([TurnStarted("d", "no", "edit_mode"), TurnEnded("d", "error", error_kind="PromptBlocked")], ["a", "b", "c"]),
    ):
        found = preview_session(log_of(tmp_path, *map(line, [*turns, *after])), "s")
        assert [(item.prompt, item.answer) for item in found.exchanges] == [(f"{name}?", f"{name}!") for name in left]


def test_only_the_end_of_a_long_log_is_read_and_little_of_it_is_kept(tmp_path: Path) -> None:
    turns = [
        line(TurnStarted(str(n), f"{n} " + "x" * 20_000, "edit_mode")) for n in range(PREVIEW_BYTES // 20_000 + 20)
    ]
    found = preview_session(log_of(tmp_path, *turns), "s")
    assert len(found.exchanges) == MAX_EXCHANGES
    assert found.exchanges[-1].prompt.startswith(f"{len(turns) - 1} ")
    assert all(len(exchange.prompt) <= EXCHANGE_CHARS + 1 for exchange in found.exchanges)
    assert found.earlier


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert preview_session(tmp_path / "nothing", "s").exchanges == ()
