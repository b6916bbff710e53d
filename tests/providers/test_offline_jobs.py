"""The parts of the offline planner that need no tools: the lesser model's jobs, outlines, rewriting, test commands."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.message import PromptMessage
from odin.core.provider import Request, TextChunk
from odin.core.small_jobs import SUFFICIENCY_JOB, SUMMARY_JOB, TITLE_JOB, EditReview, PlannedEdit, Sufficiency
from odin.providers.offline import (
    JOB_SUFFICIENCY,
    JOB_SUMMARY,
    JOB_TITLE,
    make_offline_summary,
    make_offline_title,
    stream_reply,
)
from odin.providers.offline.command_plans import find_test_command as command_for
from odin.providers.offline.command_plans import tally_of
from odin.providers.offline.edit_plans import build_word_edits
from odin.providers.offline.jobs import judge_edit, parse_edit_review
from odin.providers.offline.read_plans import extract_first_paragraph, outline_of


def answer(request: Request) -> str:
    return "".join(piece.text for piece in stream_reply(request) if isinstance(piece, TextChunk))


# --- titles and summaries ---


def test_the_markers_are_those_of_the_core():
    markers = [job.marker for job in (TITLE_JOB, SUMMARY_JOB, SUFFICIENCY_JOB)]
    assert markers == [JOB_TITLE, JOB_SUMMARY, JOB_SUFFICIENCY]


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("please search for TODO in src.", "Search for TODO in src"),
        ("Hi, can you fix the `login` bug?", "Fix the login bug"),
        ("\n\n  first line\nsecond line", "First line"),
        ("", "New session"),
        ("?!", "New session"),
    ],
)
def test_a_title_is_the_prompt_without_courtesy(prompt: str, title: str):
    assert make_offline_title(prompt) == title


@given(st.text())
def test_a_title_is_one_short_line(text: str):
    title = make_offline_title(text)
    assert title
    assert len(title) <= 60
    assert len(title.splitlines()) == 1


def test_the_title_job_is_answered_by_its_marker():
    request = Request("m", (PromptMessage("please describe the parser"),), system=TITLE_JOB.system)
    assert answer(request) == "Describe the parser"


def test_a_summary_keeps_what_recurs_and_its_order():
    text = (
        "The parser reads tokens. Lunch was good. The parser turns tokens into trees. "
        "It rained. Trees of tokens are printed by the parser."
    )
    summary = make_offline_summary(text, 110)
    assert "The parser reads tokens." in summary
    assert "Lunch" not in summary
    assert summary.index("reads") < summary.index("turns")


@given(st.text(max_size=2000), st.integers(min_value=1, max_value=500))
def test_a_summary_fits(text: str, limit: int):
    assert len(make_offline_summary(text, limit)) <= limit


def test_a_short_text_is_its_own_summary():
    assert make_offline_summary("One. Two.", 100) == "One. Two."


def test_the_summary_job_and_an_unknown_job_are_answered():
    text = "The cache is full. " * 200 + "Evict the oldest entry."
    for system in (SUMMARY_JOB.system, ("odin-job: something-new\nDo it.",)):
        said = answer(Request("m", (PromptMessage(text),), system=system))
        assert 0 < len(said) <= 1200
        assert "cache" in said


def test_a_schema_without_a_job_gets_the_plainest_answer_that_fits():
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "done": {"type": "boolean"},
            "kind": {"enum": ["a", "b"]},
            "items": {"type": "array"},
            "extra": {"type": "string"},
        },
        "required": ["title", "done", "kind", "items"],
    }
    said = msgspec.json.decode(answer(Request("m", (PromptMessage("read the world"),), schema=schema)))
    assert said == {"title": "Read the world", "done": False, "kind": "a", "items": []}


# --- is enough of the file known? ---


def verdict(content: str, *edits: PlannedEdit, partial: bool = False, total: int = 0) -> Sufficiency:
    return judge_edit(EditReview("/w/a.py", edits, content, partial, total_lines=total))


def test_text_seen_once_in_the_whole_file_is_enough():
    seen = verdict("a = 1\nb = 2\n", PlannedEdit("b = 2", "b = 3"))
    assert seen.is_sufficient
    assert "line 2" in seen.explanation


def test_text_that_a_whole_file_does_not_hold_is_not_enough():
    assert not verdict("a\n", PlannedEdit("x", "y")).is_sufficient


def test_text_seen_inside_a_part_is_enough():
    content = "--- Lines 50-53 ---\na\noldFunc()\nb\nc\n--- Lines 90-91 ---\nx\ny\n"
    seen = verdict(content, PlannedEdit("oldFunc()", "newFunc()"), partial=True)
    assert seen.is_sufficient
    assert "line 51" in seen.explanation


def test_a_single_line_is_enough_when_the_text_is_in_it():
    assert verdict("--- Lines 7-7 ---\noldFunc()\n", PlannedEdit("old", "new"), partial=True, total=200).is_sufficient


def test_text_that_was_not_seen_asks_for_a_wider_range():
    seen = verdict("Lines 1-1\nx\n", PlannedEdit("config.timeout", "y"), partial=True, total=180)
    assert not seen.is_sufficient
    (lines,) = seen.suggested_line_ranges
    assert (lines.start_line, lines.end_line) == (1, 180)


def test_ambiguous_text_is_not_enough_unless_all_of_it_is_meant():
    assert "2 times" in verdict("x\nx\n", PlannedEdit("x", "y")).explanation
    assert verdict("x\nx\n", PlannedEdit("x", "y", replace_all=True)).is_sufficient
    assert not verdict("x", PlannedEdit("", "y")).is_sufficient


def test_each_edit_is_judged_on_the_result_of_the_one_before():
    assert verdict("a\n", PlannedEdit("a", "b"), PlannedEdit("b", "c")).is_sufficient
    assert not verdict("a\nb\n", PlannedEdit("a", "b"), PlannedEdit("b", "c")).is_sufficient
    assert not verdict("a\nb\n", PlannedEdit("a\n", ""), PlannedEdit("a", "c")).is_sufficient


def test_line_endings_are_not_told_apart():
    assert verdict("--- Lines 2-3 ---\na\r\nb\r\n", PlannedEdit("a\nb\n", "c"), partial=True).is_sufficient


def test_the_sufficiency_job_is_json_in_and_json_out():
    question = EditReview("/w/a.py", (PlannedEdit("b", "c"),), "a\nb\nc\n")
    request = Request("m", (PromptMessage(msgspec.json.encode(question).decode()),), system=SUFFICIENCY_JOB.system)
    said = msgspec.json.decode(answer(request), type=Sufficiency)
    assert said.is_sufficient


def test_a_question_in_prose_is_understood():
    prompt = (
        "**File**: /w/service.go\n**Cache Type**: partial (segments: [50-60])\n**Requested Edit**:\n"
        '- Replace: "oldFunc()"\n- With: "newFunc()"\n\n**Cached Content**:\n\n'
        "--- Lines 50-53 ---\na\noldFunc()\nb\nc\n"
        "\n**Your Task**:\nAnalyze it."
    )
    question = parse_edit_review(prompt)
    assert (question.file_path, question.edits) == ("/w/service.go", (PlannedEdit("oldFunc()", "newFunc()"),))
    assert question.is_partial
    assert judge_edit(question).is_sufficient


@given(st.text(max_size=300))
def test_any_question_gets_a_verdict(text: str):
    request = Request("m", (PromptMessage(text),), system=SUFFICIENCY_JOB.system)
    assert isinstance(msgspec.json.decode(answer(request), type=Sufficiency), Sufficiency)


# --- outlines ---


@pytest.mark.parametrize(
    ("name", "text", "titles"),
    [
        (
            "a.py",
            "class A:\n    async def b(self): ...\n\ndef c(x): ...\n",
            ["class A", "async def b(self)", "def c(x)"],
        ),
        ("a.ts", "export class A {\n  run() {}\n}\nfunction g() {}\n", ["export class A", "function g()"]),
        ("b.ts", "export const f = (x) => x\n", ["export const f = (x) =>"]),
        ("a.go", "func (s *S) Run() error {\n}\ntype S struct {\n", ["func (s *S) Run() error", "type S struct"]),
        ("a.rs", "pub fn run(x: u8) -> u8 {\n}\nimpl A for B {\n", ["pub fn run(x: u8) -> u8", "impl A for B"]),
        ("a.md", "# One\ntext\n```\n# not a heading\n```\n## Two\n", ["One", "Two"]),
        ("Makefile", "X := 1\ntest: setup\n\ttrue\n", ["test"]),
        ("a.toml", "[project]\nname = 1\n[[tool.x]]\n", ["[project]", "[[tool.x]]"]),
        ("a.sh", "run() {\n}\nfunction stop {\n}\n", ["run()", "function stop"]),
        ("a.c", "int main(int argc, char **argv)\n{\n  if (x) {\n", ["int main(int argc, char **argv)"]),
    ],
)
def test_an_outline_by_kind_of_file(name: str, text: str, titles: list[str]):
    assert [mark.title for mark in outline_of(name, enumerate(text.splitlines(), 1))] == titles


@pytest.mark.parametrize(
    ("name", "text", "opening"),
    [
        ("README.md", "# Demo\n\n[![badge](x)](y)\n\nIt does\nthings.\n\nMore.", "It does things."),
        ("a.py", '#!/usr/bin/env python3\n"""What it is.\n\nMore."""\n', "What it is."),
        ("a.js", "/**\n * What it is.\n */\n", "What it is."),
        ("a.go", "// Package a is a.\n// It runs.\npackage a\n", "Package a is a. It runs."),
        ("a.json", "{}", ""),
    ],
)
def test_what_a_file_says_of_itself(name: str, text: str, opening: str):
    assert extract_first_paragraph(name, text) == opening


# --- renaming by exact edits ---

lines = st.lists(
    st.sampled_from(["foo", "foo bar", "foobar", "x foo", "", "y", "foo foo", "my_foo", "(foo)"]), max_size=14
)


@given(lines)
def test_edits_for_words_rename_words_and_nothing_else(parts: list[str]):
    text = "\n".join(parts)
    after = text
    for old, new in build_word_edits(text, "foo", "baz"):
        assert after.count(old) == 1
        after = after.replace(old, new)
    assert after == re.sub(r"\bfoo\b", "baz", text)


# --- tests of a project ---


@pytest.mark.parametrize(
    ("names", "texts", "command"),
    [
        ({"Makefile", "pyproject.toml"}, {"Makefile": "test: x\n"}, "make test"),
        ({"Makefile", "pyproject.toml"}, {"Makefile": "build:\n"}, "python3 -m pytest -q"),
        ({"pyproject.toml", ".venv/"}, {}, ".venv/bin/python -m pytest -q"),
        ({"package.json"}, {"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
        ({"package.json", "yarn.lock"}, {"package.json": '{"scripts": {"test": "jest"}}'}, "yarn test"),
        ({"package.json"}, {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\""}}'}, None),
        ({"package.json"}, {"package.json": "{broken"}, None),
        ({"Cargo.toml"}, {}, "cargo test"),
        ({"go.mod"}, {}, "go test ./..."),
        ({"justfile"}, {"justfile": "test:\n  true\n"}, "just test"),
        ({"README.md"}, {}, None),
    ],
)
def test_the_test_command_of_a_project(names: set[str], texts: dict[str, str], command: str | None):
    found = command_for(names, texts)
    assert (found.command if found else None) == command


@pytest.mark.parametrize(
    ("text", "tally"),
    [
        ("...\n== 3 passed, 1 skipped in 0.12s ==\n", "3 passed, 1 skipped in 0.12s"),
        ("Tests:       1 failed, 2 passed, 3 total\nTime: 1s\n", "Tests: 1 failed, 2 passed, 3 total"),
        ("test result: ok. 5 passed; 0 failed\n", "test result: ok. 5 passed; 0 failed"),
        ("Ran 3 tests in 0.01s\n\nOK\n", "Ran 3 tests in 0.01s"),
        ("ok  \texample.org/a\t0.01s\n", "ok example.org/a 0.01s"),
        ("nothing here", ""),
    ],
)
def test_the_tally_of_a_test_run(text: str, tally: str):
    assert tally_of(text) == tally
