"""The small-model job that decides whether enough of a file was read for an edit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.small_jobs import (
    SUFFICIENCY_JOB,
    SUFFICIENCY_SCHEMA,
    LineRange,
    Sufficiency,
    add_line_headers,
    parse_sufficiency,
    split_line_headers,
)

parts = st.lists(
    st.tuples(
        st.integers(1, 900),
        st.lists(st.sampled_from(["a", "", "--- Lines 1-2 ---", "Lines 7-9", "b\r", "}"]), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=5,
)


@given(parts)
def test_parts_survive_adding_and_splitting_line_headers(given: list[tuple[int, list[str]]]) -> None:
    """Even if a line of the text looks like a header."""
    expected = [(first, "".join(f"{line}\n" for line in lines)) for first, lines in given]
    assert split_line_headers(add_line_headers(given)) == expected


def test_content_without_a_header_is_one_part() -> None:
    assert split_line_headers("a\nb") == [(1, "a\nb")]
    assert add_line_headers([(50, ["x", "y"])]) == "--- Lines 50-51 ---\nx\ny\n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"is_sufficient": true, "explanation": "", "suggested_line_ranges": []}', Sufficiency(True)),
        ('Sure:\n```json\n{"is_sufficient": false, "explanation": "no"}\n```', Sufficiency(False, "no")),
        (
            '{"is_sufficient": false, "suggested_line_ranges": [{"start_line": "3", "end_line": 4, "reason": "x"}]}',
            Sufficiency(False, "", (LineRange(3, 4, "x"),)),
        ),
        ('{"is_sufficient": "perhaps"}', None),
        ('{"sufficient": true}', None),
        ("yes", None),
        ("}{", None),
        ("", None),
    ],
)
def test_answer_is_parsed_from_a_model_reply(text: str, answer: Sufficiency | None) -> None:
    assert parse_sufficiency(text) == answer


@given(st.text(max_size=200))
def test_parsing_a_reply_never_raises(text: str) -> None:
    parse_sufficiency(text)
    parse_sufficiency(f'{{"is_sufficient": {text}}}')


def test_job_schema_matches_the_parsed_structs() -> None:
    assert SUFFICIENCY_JOB.schema is SUFFICIENCY_SCHEMA
    assert set(SUFFICIENCY_SCHEMA["properties"]) == set(Sufficiency.__struct_fields__)
    item = SUFFICIENCY_SCHEMA["properties"]["suggested_line_ranges"]["items"]
    assert set(item["properties"]) == set(item["required"]) == set(LineRange.__struct_fields__)
