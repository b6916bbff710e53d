"""Replies of a small model become file changes, or an error that is sent back to the model."""

import tomllib
from pathlib import Path
from typing import Any

from odin.core.message import ToolCall
from odin.providers.whole_files.project_state import ProjectState, apply_call
from odin.providers.whole_files.prompt_features import classify_prompt
from odin.providers.whole_files.reply_judgement import ReplyJudge, ReplyOutcome
from odin.providers.whole_files.turn_history import TurnFacts
from tests.table import each

CASES: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("small_model_replies.toml").read_text(encoding="utf-8")
)["cases"]
OFFERED = ("WriteFile", "EditTool", "ExecuteCommand", "Delete")


def judge(files: dict[str, str], prompt: str, reply: str, refused: dict[str, str] | None = None) -> ReplyOutcome:
    features = classify_prompt(prompt)
    sizes = {path: len(text.splitlines()) for path, text in files.items()}
    project = ProjectState(features.paths, files=dict(files), sizes=sizes)
    facts = TurnFacts(features.text, project, refused_texts=refused or {})
    return ReplyJudge(features, facts, OFFERED).judge_reply(reply)


def apply_reply(files: dict[str, str], prompt: str, reply: str) -> tuple[dict[str, str], str]:
    """Return the files that a reply changes, and the error that the model is told."""
    outcome = judge(files, prompt, reply)
    after: dict[str, str] = {}
    for name, args in outcome.calls:
        if name == "Delete":
            after.update(dict.fromkeys(args["paths"], ""))
        elif name == "ExecuteCommand":
            after["RUN"] = args["command"]
        else:
            path = args["file_path"]
            after[path] = apply_call(ToolCall("1", name, args), files.get(path)) or ""
    return after, outcome.error


@each("case", CASES)
def test_a_reply_becomes_files_or_an_error(case: dict[str, Any]) -> None:
    after, error = apply_reply(case.get("files", {}), case["prompt"], case["reply"])
    assert after == case.get("after", {})
    assert error == case.get("error", "")


def test_a_model_may_insist_on_what_it_leaves_out() -> None:
    files = {"a.csv": "n,v\na,1\nb,2\nc,3\nd,4\ne,5\n"}
    reply = "a.csv\n```\nn,v\ne,5\n```\n"
    first = judge(files, "Keep only the rows with v above 4 in a.csv.", reply)
    assert first.error == "a.csv would lose 4 lines, for example 'a,1'. Write the complete file."
    second = judge(files, "Keep only the rows with v above 4 in a.csv.", reply, dict(first.lossy_texts))
    assert [args["file_path"] for _, args in second.calls] == ["a.csv"]


@each(
    "text, expected",
    [
        ("a.py\n```\nx = 1\n```\n" * 2, True),
        ("b.py\n```\n" + "x = 'the same line again'\n" * 40, True),
        ("b.csv\n```\n" + "".join(f"{number},name\n" for number in range(40)), False),
    ],
)
def test_a_reply_that_repeats_itself_is_noticed(text: str, expected: bool) -> None:
    assert ReplyJudge(classify_prompt("Fix it."), TurnFacts(), OFFERED).is_repeating(text) is expected
