"""Token estimates: never too low for any kind of text, and cached for messages that were measured before."""

import base64
import json
import os

import pytest

from odin.compaction.measure import IMAGE_TOKENS, TokenEstimator, count_message_tokens, estimate_tokens
from odin.core.message import Image, Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult

PROSE = "The quick brown fox jumps over the lazy dog while nobody is looking at it. " * 50
CODE = "def port_of(config: Config) -> int:\n    return config.server.port or DEFAULT_PORT\n\n\n" * 50
CHINESE = "配置文件中的端口号必须是整数,否则服务器无法启动。" * 50
JAPANESE = "設定ファイルのポート番号は整数でなければなりません。" * 50
KOREAN = "설정 파일의 포트 번호는 정수여야 합니다. " * 50
BASE64 = base64.b64encode(os.urandom(3000)).decode()
MINIFIED = json.dumps([{"id": n, "a": [n, n + 1], "b": {"c": f"x{n}"}} for n in range(200)], separators=(",", ":"))
HEX = os.urandom(2000).hex()

REAL_COUNTS = {
    "prose": (PROSE, len(PROSE) / 4.7),
    "code": (CODE, len(CODE) / 4.0),
    "chinese": (CHINESE, len(CHINESE) * 1.3),
    "japanese": (JAPANESE, len(JAPANESE) * 1.2),
    "korean": (KOREAN, len(KOREAN) * 1.1),
    "base64": (BASE64, len(BASE64) * 0.6),
    "minified": (MINIFIED, len(MINIFIED) * 0.5),
    "hex": (HEX, len(HEX) * 0.6),
}
"""Texts, and their token counts with the least efficient current tokenizers."""


@pytest.mark.parametrize(("text", "real"), REAL_COUNTS.values(), ids=REAL_COUNTS.keys())
def test_estimate_is_at_least_the_real_count_and_at_most_two_and_a_half_times(text: str, real: float) -> None:
    assert real <= estimate_tokens(text) <= real * 2.5


def test_invalid_unicode_is_counted() -> None:
    assert estimate_tokens("broken \ud800 text") > 3


def test_images_and_arguments_are_counted() -> None:
    shown = ToolMessage((ToolResult("c", "x", images=(Image("/1.png", "image/png"),)),))
    assert count_message_tokens(shown) > IMAGE_TOKENS
    wrote = ReplyMessage((ToolCall("c", "WriteFile", {"content": PROSE}),))
    assert count_message_tokens(wrote) > estimate_tokens(PROSE)


def test_measured_messages_are_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Message] = []

    def count_and_record(message: Message) -> int:
        measured.append(message)
        return count_message_tokens(message)

    monkeypatch.setattr("odin.compaction.measure.count_message_tokens", count_and_record)
    measure = TokenEstimator()
    history: tuple[Message, ...] = tuple(PromptMessage(f"{number} {PROSE}") for number in range(100))
    total = measure.measure_messages(history)
    again = measure.measure_messages((*history, PromptMessage("one more")))
    assert len(measured) == 101
    assert again > total


def test_the_last_reply_corrects_the_estimate() -> None:
    measure = TokenEstimator()
    assert measure.estimate(1000) == 1000
    measure.calibrate(1000, 700)
    assert measure.estimate(1300) == 1000, "added text counts in full"
    assert 350 <= measure.estimate(500) <= 500, "a smaller request is scaled, with a margin"
    measure.calibrate(1000, 1200)
    assert measure.estimate(1100) == 1300


def test_images_beyond_the_sent_ones_are_not_counted() -> None:
    images = tuple(Image(f"/{number}.png", "image/png") for number in range(30))
    message = ToolMessage((ToolResult("c", "x", images=images),))
    assert (
        TokenEstimator().measure_messages((message,), max_images=20)
        == count_message_tokens(message) - 10 * IMAGE_TOKENS
    )
    assert TokenEstimator().measure_messages((message,), max_images=0) < IMAGE_TOKENS


def test_truncation_by_the_server_is_detected() -> None:
    measure = TokenEstimator()
    assert not measure.is_truncated(1_000, 100), "too few tokens to tell"
    assert measure.is_truncated(40_000, 4_096)
    assert not measure.is_truncated(40_000, 28_000)
    measure.calibrate(6_000, 4_096)
    assert measure.is_truncated(9_000, 4_096), "the request grew, but the server read no more"
    assert not measure.is_truncated(9_000, 6_000)
