"""The small-model job that decides whether enough of a file was read for an edit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.background_prompts import (
    EDIT_CONTEXT_PROMPT,
    EDIT_CONTEXT_SCHEMA,
    EditContextCheck,
    LineRange,
    add_line_headers,
    parse_edit_context_check,
)


def test_each_part_has_a_header_with_its_lines() -> None:
    assert add_line_headers([(50, ["x", "y"]), (90, ["z"])]) == "--- Lines 50-51 ---\nx\ny\n--- Lines 90-90 ---\nz\n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"is_sufficient": true, "explanation": "", "suggested_line_ranges": []}', EditContextCheck(True)),
        ('Sure:\n```json\n{"is_sufficient": false, "explanation": "no"}\n```', EditContextCheck(False, "no")),
        (
            '{"is_sufficient": false, "suggested_line_ranges": [{"start_line": "3", "end_line": 4, "reason": "x"}]}',
            EditContextCheck(False, "", (LineRange(3, 4, "x"),)),
        ),
        ('{"is_sufficient": "perhaps"}', None),
        ('{"sufficient": true}', None),
        ("yes", None),
        ("}{", None),
        ("", None),
    ],
)
def test_answer_is_parsed_from_a_model_reply(text: str, answer: EditContextCheck | None) -> None:
    assert parse_edit_context_check(text) == answer


@given(st.text(max_size=200))
def test_parsing_a_reply_never_raises(text: str) -> None:
    parse_edit_context_check(text)
    parse_edit_context_check(f'{{"is_sufficient": {text}}}')


def test_job_schema_matches_the_parsed_structs() -> None:
    assert EDIT_CONTEXT_PROMPT.schema is EDIT_CONTEXT_SCHEMA
    assert set(EDIT_CONTEXT_SCHEMA["properties"]) == set(EditContextCheck.__struct_fields__)
    item = EDIT_CONTEXT_SCHEMA["properties"]["suggested_line_ranges"]["items"]
    assert set(item["properties"]) == set(item["required"]) == set(LineRange.__struct_fields__)
