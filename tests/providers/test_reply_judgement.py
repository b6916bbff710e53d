"""Replies of a small model become file changes, or an error that is sent back to the model."""

import tomllib
from pathlib import Path
from typing import Any

from odin.core.message import ToolCall
from odin.providers.whole_files.prompt_intent import read_prompt
from odin.providers.whole_files.reply_judgement import ReplyJudge, cut_assertions
from odin.providers.whole_files.turn_history import TurnFacts, apply_call
from tests.table import each

CASES: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("small_model_replies.toml").read_text(encoding="utf-8")
)["cases"]
OFFERED = ("WriteFile", "EditTool", "ExecuteCommand", "Delete")


def apply_reply(files: dict[str, str], prompt: str, reply: str) -> tuple[dict[str, str], str]:
    """Return the files that a reply changes, and the fault that the model is told."""
    facts = TurnFacts(files=dict(files), sizes={path: len(text.splitlines()) for path, text in files.items()})
    outcome = ReplyJudge(read_prompt(prompt), facts, OFFERED).judge_reply(reply)
    after: dict[str, str] = {}
    for name, args in outcome.calls:
        if name == "Delete":
            after.update(dict.fromkeys(args["paths"], ""))
        elif name == "ExecuteCommand":
            after["RUN"] = args["command"]
        else:
            path = args["file_path"]
            after[path] = apply_call(ToolCall("1", name, args), files.get(path)) or ""
    return after, outcome.fault


@each("case", CASES)
def test_a_reply_becomes_files_or_a_fault(case: dict[str, Any]) -> None:
    after, fault = apply_reply(case.get("files", {}), case["prompt"], case["reply"])
    assert after == case.get("after", {})
    assert fault == case.get("fault", "")


def _repeat_form(form: str, times: int) -> str:
    return "t.py\n```python\n" + "".join(form.format(n=n) for n in range(times))


@each(
    "form, times, kept",
    [
        ("assert f({n}) == {n}0\n", 8, 8),
        ("assert f({n}) == {n}0\n", 20, 3),
        ("    def test_{n}(self):\n        self.assertEqual(f({n}), '{n}')\n\n", 9, 3),
        ("{n},name\n", 40, 40),
    ],
)
def test_repetitive_assertions_are_cut(form: str, times: int, kept: int) -> None:
    cut = cut_assertions(_repeat_form(form, times))
    assert cut.rstrip("`\n") == _repeat_form(form, kept).rstrip("`\n")
