import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from odin.context.files import FileCache, Fingerprint, count_lines, digest, fingerprint
from odin.core.event import CachedFile


def state(text: str) -> Fingerprint:
    return fingerprint(text.encode(), 1)


LINES = "".join(f"{n}\n" for n in range(1, 101))


def test_a_fingerprint_knows_size_lines_and_hash() -> None:
    assert fingerprint(b"a\nb", 5) == Fingerprint(3, 2, digest(b"a\nb"), 5)
    assert [count_lines(data) for data in (b"", b"a", b"a\n", b"\n\n", b"a\nb")] == [0, 1, 1, 2, 2]


def test_standing(tmp_path: Path) -> None:
    cache, path = FileCache(), str(tmp_path / "a")
    assert cache.standing(path, digest(b"x")) == "unread"
    cache.saw_all(path, state("x"))
    assert cache.standing(path, digest(b"x")) == "current"
    assert cache.standing(path, digest(b"y")) == "changed"
    cache.forget(path)
    assert cache.standing(path, digest(b"x")) == "unread"


def test_a_link_and_its_target_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    os.symlink(tmp_path / "a", tmp_path / "link")
    cache = FileCache()
    cache.saw_all(str(tmp_path / "link"), state("x"))
    assert cache.standing(str(tmp_path / "a"), digest(b"x")) == "current"
    assert [file.path for file in cache.listing()] == [str((tmp_path / "a").resolve())]


def test_ranges_add_up() -> None:
    cache = FileCache()
    cache.saw_lines("/f", state(LINES), [(10, 20)])
    cache.saw_lines("/f", state(LINES), [(21, 30), (50, 60)])
    assert cache.unseen("/f") == [(1, 9), (31, 49), (61, 100)]
    assert cache.segments("/f") == ("10-20", "21-30", "50-60")
    known = cache.get("/f")
    assert known is not None
    assert known.truncated, "a part is not the whole"
    cache.saw_lines("/f", state(LINES), [(1, 100)])
    whole = cache.get("/f")
    assert whole is not None
    assert not whole.truncated
    assert cache.unseen("/f") == []


def test_other_bytes_start_from_nothing() -> None:
    cache = FileCache()
    cache.saw_all("/f", state(LINES))
    cache.saw_lines("/f", state("new\n" + LINES), [(1, 1)])
    assert cache.unseen("/f") == [(2, 101)]


def test_a_part_of_what_is_known_wholly_forgets_nothing() -> None:
    cache = FileCache()
    cache.saw_all("/f", state(LINES))
    cache.saw_lines("/f", state(LINES), [(1, 2)])
    assert cache.unseen("/f") == []


def test_writing_makes_it_known_and_modified() -> None:
    cache = FileCache()
    cache.saw_lines("/f", state(LINES), [(1, 2)])
    cache.wrote("/f", state("x"))
    known = cache.get("/f")
    assert known is not None
    assert (known.modified, known.truncated, known.size) == (True, False, 1)
    assert cache.unseen("/f") == []
    assert cache.segments("/f") == ()
    cache.saw_all("/f", state("changed by someone"))
    again = cache.get("/f")
    assert again is not None
    assert again.modified, "it was modified in this session, whoever changed it since"


def test_too_many_files_forget_the_one_used_longest_ago() -> None:
    cache = FileCache(max_entries=2)
    cache.saw_all("/a", state("a"))
    cache.saw_all("/b", state("b"))
    cache.saw_all("/a", state("a"))
    cache.saw_all("/c", state("c"))
    assert [file.path for file in cache.listing()] == ["/a", "/c"]


def test_too_many_ranges_forget_the_oldest() -> None:
    cache = FileCache(max_segments=2)
    for line in (1, 3, 5):
        cache.saw_lines("/f", state(LINES), [(line, line)])
    assert cache.segments("/f") == ("3-3", "5-5")


def test_only_news_is_told() -> None:
    cache = FileCache(clock=lambda: 7.0)
    start = cache.mark()
    cache.saw_all("/b", state("b"))
    cache.saw_all("/a", state("a"))
    assert [file.path for file in cache.changed_since(start)] == ["/b", "/a"]
    mark = cache.mark()
    cache.saw_all("/a", state("a"))
    assert cache.changed_since(mark) == ()
    cache.wrote("/b", state("bb"))
    assert cache.changed_since(mark) == (CachedFile("/b", 2, 7.0, True, False, digest(b"bb")),)


def test_what_was_seen_whole_is_known_again_after_a_resume_if_it_is_unchanged() -> None:
    cache = FileCache()
    cache.restore([CachedFile("/a", 1, 5.0, sha256=digest(b"a")), CachedFile("/b", 1, 5.0, False, True, digest(b"b"))])
    assert cache.standing("/a", digest(b"a")) == "current"
    assert cache.standing("/a", digest(b"other")) == "changed"
    assert cache.standing("/b", digest(b"b")) == "stale"


def test_what_is_restored_without_a_hash_must_be_read_again() -> None:
    cache = FileCache()
    cache.restore([CachedFile("/a", 1, 5.0, modified=True)])
    assert cache.standing("/a", digest(b"a")) == "stale"
    assert cache.get("/a") is None
    assert cache.listing() == (CachedFile("/a", 1, 5.0, True, False),)
    cache.saw_all("/a", state("a"))
    assert cache.standing("/a", digest(b"a")) == "current"


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), max_size=12))
def test_unseen_is_exactly_what_no_range_covers(ranges: list[tuple[int, int]]) -> None:
    seen = state("x\n" * 40)
    cache = FileCache()
    shown = [(first, min(40, first + length)) for first, length in ranges]
    cache.saw_lines("/f", seen, shown)
    covered = {line for first, last in shown for line in range(first, last + 1)}
    missing = {line for first, last in cache.unseen("/f") for line in range(first, last + 1)}
    assert missing == set(range(1, 41)) - covered
