"""Dividing a long text into passages, and selecting those that match a question."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core.background_prompts import (
    MAX_PASSAGE_CHARS,
    Passage,
    extract_excerpt,
    extract_words,
    join_passages,
    rank_passages,
    select_fitting,
    split_passages,
)

TEXT = "# A\n\nfirst\n\n## B\n\nsecond\nline\n\n```py\nx = 1\n\ny = 2\n```\n\n| a |\n| - |\n\n## C\n\nlast"


def test_a_text_is_divided_by_blank_lines_and_headings_but_not_inside_a_fence():
    assert split_passages(TEXT) == [
        Passage("# A", "first"),
        Passage("## B", "second\nline"),
        Passage("## B", "```py\nx = 1\n\ny = 2\n```"),
        Passage("## B", "| a |\n| - |"),
        Passage("## C", "last"),
    ]


def test_long_passage_is_split():
    found = split_passages("x" * 5000 + "\n" + "y" * 10)
    assert [len(passage.text) for passage in found] == [MAX_PASSAGE_CHARS, MAX_PASSAGE_CHARS, 1000 + 1 + 10]
    assert "".join(passage.text for passage in found).replace("\n", "") == "x" * 5000 + "y" * 10


def test_words_match_in_any_inflection_and_identifiers_stay_whole():
    assert extract_words("The timeouts of retain_mut, configuring") == extract_words("timeout RETAIN_MUT configures")
    assert "mut" not in extract_words("retain_mut")
    assert "secret" not in extract_words("[a link](http://x.test/secret)")


def test_rare_words_and_headings_weigh_more_in_the_ranking():
    passages = split_passages("a server\n\nthe server port\n\na server\n\n## Ports\n\nsee below")
    assert rank_passages(passages, "server port") == [1, 3, 0, 2]
    assert rank_passages(passages, "nothing of this") == []


def test_omitted_passages_are_marked():
    passages = split_passages(TEXT)
    assert join_passages(passages, [1, 4]) == "[…]\n\n## B\n\nsecond\nline\n\n[…]\n\n## C\n\nlast"
    assert join_passages(passages, range(5)) == TEXT
    assert select_fitting(passages, [4, 0], 20) == [4]


texts = st.text(alphabet="ab #`\n_ü", max_size=400)


@settings(max_examples=150)
@given(texts, st.text(max_size=20), st.integers(40, 300))
def test_excerpt_stays_within_its_limit_and_short_texts_stay_whole(text: str, question: str, limit: int):
    found = extract_excerpt(text, question, limit)
    assert len(found) <= limit
    if len(text) <= limit:
        assert found == text
