"""The offline planner without tools: small-model jobs, outlines, word edits and test commands."""

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


def answer_of(request: Request) -> str:
    return "".join(piece.text for piece in stream_reply(request) if isinstance(piece, TextChunk))


# --- titles and summaries ---


def test_job_markers_match_those_of_the_core():
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
def test_title_is_the_prompt_without_courtesy(prompt: str, title: str):
    assert make_offline_title(prompt) == title


@given(st.text())
def test_a_title_is_one_short_line(text: str):
    title = make_offline_title(text)
    assert title
    assert len(title) <= 60
    assert len(title.splitlines()) == 1


def test_the_title_job_is_answered_by_its_marker():
    request = Request("m", (PromptMessage("please describe the parser"),), system=TITLE_JOB.system)
    assert answer_of(request) == "Describe the parser"


def test_summary_keeps_recurring_sentences_in_order():
    text = (
        "The parser reads tokens. Lunch was good. The parser turns tokens into trees. "
        "It rained. Trees of tokens are printed by the parser."
    )
    summary = make_offline_summary(text, 110)
    assert "The parser reads tokens." in summary
    assert "Lunch" not in summary
    assert summary.index("reads") < summary.index("turns")


@given(st.text(max_size=2000), st.integers(min_value=1, max_value=500))
def test_summary_fits_its_limit(text: str, limit: int):
    assert len(make_offline_summary(text, limit)) <= limit


def test_a_short_text_is_its_own_summary():
    assert make_offline_summary("One. Two.", 100) == "One. Two."


def test_summary_job_and_unknown_jobs_are_answered():
    text = "The cache is full. " * 200 + "Evict the oldest entry."
    for system in (SUMMARY_JOB.system, ("odin-job: something-new\nDo it.",)):
        said = answer_of(Request("m", (PromptMessage(text),), system=system))
        assert 0 < len(said) <= 1200
        assert "cache" in said


def test_schema_without_a_job_gets_a_minimal_answer():
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
    said = msgspec.json.decode(answer_of(Request("m", (PromptMessage("read the world"),), schema=schema)))
    assert said == {"title": "Read the world", "done": False, "kind": "a", "items": []}


# --- was enough of a file read for an edit? ---


def judge(content: str, *edits: PlannedEdit, partial: bool = False, total: int = 0) -> Sufficiency:
    return judge_edit(EditReview("/w/a.py", edits, content, partial, total_lines=total))


def test_text_found_once_in_the_whole_file_is_sufficient():
    seen = judge("a = 1\nb = 2\n", PlannedEdit("b = 2", "b = 3"))
    assert seen.is_sufficient
    assert "line 2" in seen.explanation


def test_text_missing_from_the_whole_file_is_not_sufficient():
    assert not judge("a\n", PlannedEdit("x", "y")).is_sufficient


def test_text_found_in_a_part_of_the_file_is_sufficient():
    content = "--- Lines 50-53 ---\na\noldFunc()\nb\nc\n--- Lines 90-91 ---\nx\ny\n"
    seen = judge(content, PlannedEdit("oldFunc()", "newFunc()"), partial=True)
    assert seen.is_sufficient
    assert "line 51" in seen.explanation


def test_text_found_in_a_single_known_line_is_sufficient():
    assert judge("--- Lines 7-7 ---\noldFunc()\n", PlannedEdit("old", "new"), partial=True, total=200).is_sufficient


def test_text_missing_from_the_known_parts_suggests_a_wider_range():
    seen = judge("Lines 1-1\nx\n", PlannedEdit("config.timeout", "y"), partial=True, total=180)
    assert not seen.is_sufficient
    (lines,) = seen.suggested_line_ranges
    assert (lines.start_line, lines.end_line) == (1, 180)


def test_ambiguous_text_is_sufficient_only_with_replace_all():
    assert "2 times" in judge("x\nx\n", PlannedEdit("x", "y")).explanation
    assert judge("x\nx\n", PlannedEdit("x", "y", replace_all=True)).is_sufficient
    assert not judge("x", PlannedEdit("", "y")).is_sufficient


def test_each_edit_is_judged_on_the_result_of_the_one_before():
    assert judge("a\n", PlannedEdit("a", "b"), PlannedEdit("b", "c")).is_sufficient
    assert not judge("a\nb\n", PlannedEdit("a", "b"), PlannedEdit("b", "c")).is_sufficient
    assert not judge("a\nb\n", PlannedEdit("a\n", ""), PlannedEdit("a", "c")).is_sufficient


def test_different_line_endings_match():
    assert judge("--- Lines 2-3 ---\na\r\nb\r\n", PlannedEdit("a\nb\n", "c"), partial=True).is_sufficient


def test_the_sufficiency_job_is_json_in_and_json_out():
    question = EditReview("/w/a.py", (PlannedEdit("b", "c"),), "a\nb\nc\n")
    request = Request("m", (PromptMessage(msgspec.json.encode(question).decode()),), system=SUFFICIENCY_JOB.system)
    said = msgspec.json.decode(answer_of(request), type=Sufficiency)
    assert said.is_sufficient


def test_edit_review_in_prose_is_understood():
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
def test_any_text_gets_a_verdict(text: str):
    request = Request("m", (PromptMessage(text),), system=SUFFICIENCY_JOB.system)
    assert isinstance(msgspec.json.decode(answer_of(request), type=Sufficiency), Sufficiency)


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
def test_outline_of_each_file_type(name: str, text: str, titles: list[str]):
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
def test_first_paragraph_of_a_file_is_extracted(name: str, text: str, opening: str):
    assert extract_first_paragraph(name, text) == opening


# --- renaming by exact edits ---

lines = st.lists(
    st.sampled_from(["foo", "foo bar", "foobar", "x foo", "", "y", "foo foo", "my_foo", "(foo)"]), max_size=14
)


@given(lines)
def test_word_edits_rename_only_whole_words(parts: list[str]):
    text = "\n".join(parts)
    after = text
    for old, new in build_word_edits(text, "foo", "baz"):
        assert after.count(old) == 1
        after = after.replace(old, new)
    assert after == re.sub(r"\bfoo\b", "baz", text)


# --- test commands ---


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
def test_test_command_of_a_project_is_found(names: set[str], texts: dict[str, str], command: str | None):
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
def test_tally_of_a_test_run_is_found(text: str, tally: str):
    assert tally_of(text) == tally
