"""The file cache by itself: what is known of a file, what is kept of it, and what is forgotten first."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.context.file_cache import FileCache, FileEntry, Fingerprint, count_lines, hash_bytes, take_fingerprint
from odin.context.settings import CacheSettings
from odin.core.event_values import CachedFile


def state(text: str, mtime_ns: int = 1) -> Fingerprint:
    data = text.encode()
    return Fingerprint(len(data), count_lines(data), hash_bytes(data), mtime_ns)


def lines(first: int, last: int) -> str:
    return "\n".join(str(n) for n in range(first, last + 1))


LINES = "".join(f"{n}\n" for n in range(1, 101))


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def small(**limits: Any) -> FileCache:
    return FileCache(CacheSettings(**limits), clock=Clock())


def known(cache: FileCache, path: str) -> FileEntry:
    entry = cache.find(path)
    assert entry is not None
    return entry


def paths(cache: FileCache) -> list[str]:
    return [file.path for file in cache.list_files()]


# --- what is known ---


def test_the_limits_are_those_of_the_specification() -> None:
    mb = 1024 * 1024
    assert CacheSettings() == CacheSettings(
        max_bytes=100 * mb,
        max_file_bytes=10 * mb,
        max_entries=500,
        max_segments=50,
        eviction_policy="hybrid",
        ttl_s=0,
        auto_refresh=True,
        validation="auto",
    )


def test_a_fingerprint_knows_size_lines_and_hash(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb")
    info = (tmp_path / "f").stat()
    times = info.st_mtime_ns, info.st_ctime_ns
    assert take_fingerprint(b"a\nb", info) == Fingerprint(3, 2, hash_bytes(b"a\nb"), *times, info.st_ino, head=b"a\nb")
    assert [count_lines(data) for data in (b"", b"a", b"a\n", b"\n\n", b"a\nb")] == [0, 1, 1, 2, 2]


def test_an_entry_has_everything_that_is_known_of_a_file() -> None:
    clock = Clock()
    cache = FileCache(clock=clock)
    cache.record_whole("/f", state("a\nb\n", 77), text="a\nb\n")
    clock.time = 1005.0
    cache.record_lines("/f", state("a\nb\n", 77), [(1, 1)], texts=["a"])
    entry = known(cache, "/f")
    assert (entry.path, entry.fingerprint.size, entry.fingerprint.lines, entry.fingerprint.mtime_ns) == ("/f", 4, 2, 77)
    assert (entry.fingerprint.sha256, entry.original_hash) == (hash_bytes(b"a\nb\n"), hash_bytes(b"a\nb\n"))
    assert (entry.cached_at, entry.last_accessed, entry.access_count) == (1000.0, 1005.0, 2)
    assert (entry.modified, entry.content, dict(entry.segments)) == (False, b"a\nb\n", {})


def test_standing(tmp_path: Path) -> None:
    cache, path = FileCache(), str(tmp_path / "a")
    assert cache.compare(path, hash_bytes(b"x")) == "unread"
    cache.record_whole(path, state("x"))
    assert cache.compare(path, hash_bytes(b"x")) == "current"
    assert cache.compare(path, hash_bytes(b"y")) == "changed"
    cache.forget(path)
    assert cache.compare(path, hash_bytes(b"x")) == "unread"


def test_a_link_and_its_target_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    os.symlink(tmp_path / "a", tmp_path / "link")
    cache = FileCache()
    cache.record_whole(str(tmp_path / "link"), state("x"))
    assert cache.compare(str(tmp_path / "a"), hash_bytes(b"x")) == "current"
    assert paths(cache) == [str((tmp_path / "a").resolve())]


def test_ranges_add_up() -> None:
    cache = FileCache()
    cache.record_lines("/f", state(LINES), [(10, 20)])
    cache.record_lines("/f", state(LINES), [(21, 30), (50, 60)])
    assert cache.list_unseen("/f") == [(1, 9), (31, 49), (61, 100)]
    assert cache.list_segments("/f") == ("10-20", "21-30", "50-60")
    assert known(cache, "/f").to_cached_file().truncated, "a part is not the whole"
    cache.record_lines("/f", state(LINES), [(1, 100)])
    assert not known(cache, "/f").to_cached_file().truncated
    assert cache.list_unseen("/f") == []


def test_other_bytes_start_from_nothing() -> None:
    cache = FileCache()
    cache.record_whole("/f", state(LINES), text=LINES)
    cache.record_lines("/f", state("new\n" + LINES), [(1, 1)], texts=["new"])
    assert cache.list_unseen("/f") == [(2, 101)]
    assert cache.held_bytes == 3
    assert known(cache, "/f").original_hash == hash_bytes(b"new\n" + LINES.encode())


def test_a_part_of_what_is_known_wholly_forgets_nothing() -> None:
    cache = FileCache()
    cache.record_whole("/f", state(LINES), text=LINES)
    cache.record_lines("/f", state(LINES), [(1, 2)], texts=["1\n2"], truncated=True)
    assert cache.list_unseen("/f") == []
    assert known(cache, "/f").content == LINES.encode()
    assert not known(cache, "/f").to_cached_file().truncated, "the lines were shown whole before"


def test_writing_makes_it_whole_and_modified_and_drops_the_segments() -> None:
    cache = FileCache()
    cache.record_lines("/f", state(LINES), [(1, 2)], texts=["1\n2"])
    cache.record_write("/f", state("x", 9), text="x")
    entry = known(cache, "/f")
    assert (entry.modified, entry.to_cached_file().truncated, entry.fingerprint.size, entry.content) == (
        True,
        False,
        1,
        b"x",
    )
    assert (entry.fingerprint.sha256, entry.fingerprint.mtime_ns) == (hash_bytes(b"x"), 9)
    assert entry.original_hash == hash_bytes(LINES.encode()), "what it was before this session changed it"
    assert cache.list_unseen("/f") == []
    assert cache.list_segments("/f") == ()
    assert cache.held_bytes == 1
    cache.record_whole("/f", state("changed by someone"))
    assert known(cache, "/f").modified, "it was modified in this session, whoever changed it since"


def test_only_news_is_told() -> None:
    cache = FileCache(clock=lambda: 7.0)
    start = cache.take_mark()
    cache.record_whole("/b", state("b"))
    cache.record_whole("/a", state("a"))
    assert [file.path for file in cache.list_changed_since(start)] == ["/b", "/a"]
    mark = cache.take_mark()
    cache.record_whole("/a", state("a"))
    assert cache.list_changed_since(mark) == ()
    cache.record_write("/b", state("bb"))
    assert cache.list_changed_since(mark) == (CachedFile("/b", 2, 7.0, True, False, hash_bytes(b"bb")),)


# --- after a resume ---


def test_what_was_seen_whole_is_known_again_after_a_resume_if_it_is_unchanged() -> None:
    cache = FileCache()
    cache.restore(
        [CachedFile("/a", 1, 5.0, sha256=hash_bytes(b"a")), CachedFile("/b", 1, 5.0, False, True, hash_bytes(b"b"))]
    )
    assert cache.compare("/a", hash_bytes(b"a")) == "current"
    assert cache.compare("/a", hash_bytes(b"other")) == "changed"
    assert cache.compare("/b", hash_bytes(b"b")) == "stale"


def test_what_is_restored_without_a_hash_must_be_read_again() -> None:
    cache = FileCache()
    cache.restore([CachedFile("/a", 1, 5.0, modified=True)])
    assert cache.compare("/a", hash_bytes(b"a")) == "stale"
    assert cache.get_cached_file("/a") is None
    assert cache.list_files() == (CachedFile("/a", 1, 5.0, True, False),)
    cache.record_whole("/a", state("a"))
    assert cache.compare("/a", hash_bytes(b"a")) == "current"


@pytest.mark.parametrize("auto_refresh", [True, False])
def test_what_is_restored_has_no_text_to_give(tmp_path: Path, auto_refresh: bool) -> None:
    path = tmp_path / "a"
    path.write_text("a")
    cache = FileCache(CacheSettings(auto_refresh=auto_refresh))
    cache.restore([CachedFile(str(path), 1, 5.0, sha256=hash_bytes(b"a"))])
    assert cache.recall(str(path), path.stat(), 1, 10) is None


# --- what is given without reading ---


def read(cache: FileCache, path: Path, first: int | None = None, last: int | None = None) -> None:
    """As the tools do: look at the file, read it, note what was seen."""
    info, data = path.stat(), path.read_bytes()
    seen = take_fingerprint(data, info)
    if first is None or last is None:
        cache.record_whole(str(path), seen, text=data.decode())
    else:
        cache.record_lines(
            str(path), seen, [(first, last)], texts=["\n".join(data.decode().split("\n")[first - 1 : last])]
        )


def recalled(cache: FileCache, path: Path, first: int, last: int) -> list[str] | None:
    found = cache.recall(str(path), path.stat(), first, last)
    return found.lines if found else None


class Later(Clock):
    """A clock that is ten seconds after the last change of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.time = path.stat().st_ctime + 10


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_text(LINES)
    return path


def numbers(first: int, last: int) -> list[str]:
    return [str(n) for n in range(first, last + 1)]


def test_a_range_inside_a_segment_is_given_and_one_outside_is_not(hundred: Path) -> None:
    cache = FileCache(clock=Later(hundred))
    read(cache, hundred, 10, 20)
    assert cache.list_segments(str(hundred)) == ("10-20",)
    assert recalled(cache, hundred, 14, 15) == ["14", "15"]
    assert recalled(cache, hundred, 9, 11) is None
    assert recalled(cache, hundred, 20, 21) is None


def test_neighbours_and_overlaps_give_what_they_cover_together(hundred: Path) -> None:
    cache = FileCache(clock=Later(hundred))
    for first, last in ((31, 40), (10, 20), (15, 25), (26, 30), (50, 60)):
        read(cache, hundred, first, last)
    assert recalled(cache, hundred, 10, 40) == numbers(10, 40)
    assert recalled(cache, hundred, 18, 27) == numbers(18, 27)
    assert recalled(cache, hundred, 38, 51) is None


def test_a_whole_file_gives_any_range_and_ends_where_it_ends(hundred: Path) -> None:
    cache = FileCache(clock=Later(hundred))
    read(cache, hundred)
    assert recalled(cache, hundred, 99, 2000) == ["99", "100"]
    assert recalled(cache, hundred, 200, 201) == []


def test_every_hit_counts_and_a_look_does_not(hundred: Path) -> None:
    clock = Later(hundred)
    cache = FileCache(clock=clock)
    read(cache, hundred)
    before = known(cache, str(hundred)).access_count
    clock.time += 5
    assert recalled(cache, hundred, 1, 1) == ["1"]
    cache.get_cached_file(str(hundred))
    cache.compare(str(hundred), "")
    entry = known(cache, str(hundred))
    assert (entry.access_count, entry.last_accessed) == (before + 1, clock.time)


@pytest.mark.parametrize("change", ["touched", "same size and time", "replaced", "mode"])
def test_a_file_that_changed_is_read_again(hundred: Path, change: str) -> None:
    cache = FileCache(clock=Later(hundred))
    read(cache, hundred)
    info = hundred.stat()
    if change == "touched":
        os.utime(hundred, (5, 5))
    elif change == "same size and time":
        hundred.write_text(LINES.replace("7", "8"))
        os.utime(hundred, ns=(info.st_atime_ns, info.st_mtime_ns))
    elif change == "replaced":
        other = hundred.with_name("other")
        other.write_text(LINES.replace("7", "8"))
        os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))
        other.rename(hundred)
    else:
        hundred.chmod(0o600)
    assert recalled(cache, hundred, 1, 2) is None


def test_a_file_read_right_after_a_change_is_not_trusted_until_it_is_read_again(hundred: Path) -> None:
    """Another change in the same tick of the clock would leave the same time stamps."""
    clock = Clock()
    clock.time = hundred.stat().st_ctime + 0.5
    cache = FileCache(clock=clock)
    read(cache, hundred, 1, 5)
    clock.time += 100
    assert recalled(cache, hundred, 1, 5) is None, "how long ago it was read says nothing"
    read(cache, hundred, 7, 8)
    assert recalled(cache, hundred, 1, 5) == numbers(1, 5), "it was read again and was the same"


def test_without_auto_refresh_the_cache_is_believed(hundred: Path) -> None:
    cache = FileCache(CacheSettings(auto_refresh=False), clock=Later(hundred))
    read(cache, hundred)
    hundred.write_text("other\n")
    assert recalled(cache, hundred, 1, 1) == ["1"]
    assert cache.compare(str(hundred), hash_bytes(b"other\n")) == "changed", "an edit looks all the same"


def test_after_its_time_a_file_must_be_read_again(hundred: Path) -> None:
    clock = Later(hundred)
    cache = FileCache(CacheSettings(ttl_s=60), clock=clock)
    read(cache, hundred, 1, 50)
    clock.time += 50
    read(cache, hundred, 60, 61)
    clock.time += 59
    assert recalled(cache, hundred, 1, 2) == ["1", "2"], "reading on renews it"
    clock.time += 2
    assert cache.list_files() == ()
    assert recalled(cache, hundred, 1, 2) is None
    assert cache.compare(str(hundred), hash_bytes(LINES.encode())) == "unread"
    assert (len(cache), cache.held_bytes) == (0, 0)


# --- what is kept ---


def test_text_is_kept_as_bytes_whatever_is_in_it() -> None:
    cache = FileCache()
    text = "grün\udce9 \U0001f600\nb"
    cache.record_whole("/f", state("?"), text=text)
    assert known(cache, "/f").list_parts()[0].lines == ["grün\udce9 \U0001f600"]
    assert cache.held_bytes == len(text.encode("utf-8", "surrogatepass"))


def test_a_file_over_the_limit_is_known_and_not_kept_whole() -> None:
    cache = small(max_file_bytes=10)
    cache.record_whole("/f", state("x" * 11), text="x" * 11)
    assert cache.held_bytes == 0
    assert cache.list_unseen("/f") == []
    assert cache.list_parts("/f") == []
    cache.record_write("/f", state("y" * 12), text="y" * 12)
    assert (cache.held_bytes, cache.compare("/f", hash_bytes(b"y" * 12))) == (0, "current")


def test_the_bytes_of_segments_count() -> None:
    cache = FileCache()
    cache.record_lines("/f", state(LINES), [(1, 3), (50, 51)], texts=["1\n2\n3", "50\n51"])
    assert cache.held_bytes == 10
    cache.record_lines("/f", state(LINES), [(1, 3)], texts=["1\n2\n3"])
    assert cache.held_bytes == 10, "the same lines are kept once"
    cache.record_lines("/f", state(LINES), [(1, 4)], texts=["1\n2\n3\n4"])
    assert cache.list_segments("/f") == ("50-51", "1-4"), "a wider range takes the place of one inside it"
    assert cache.held_bytes == 12
    cache.forget("/f")
    assert cache.held_bytes == 0


def test_the_fifty_first_segment_drops_the_oldest() -> None:
    cache = FileCache()
    for line in range(1, 101, 2):
        cache.record_lines("/f", state(LINES), [(line, line)], texts=[str(line)])
    cache.record_lines("/f", state(LINES), [(1, 1)], texts=["1"])
    assert len(cache.list_segments("/f")) == 50
    cache.record_lines("/f", state(LINES), [(100, 100)], texts=["100"])
    assert len(cache.list_segments("/f")) == 50
    assert cache.list_unseen("/f")[0] == (2, 4), "line 3 is the oldest"
    assert "1-1" in cache.list_segments("/f"), "it was read again after the others"
    assert cache.held_bytes == len(b"".join(str(n).encode() for n in [1, *range(5, 101, 2), 100]))


def test_segments_of_one_file_stay_within_its_limit() -> None:
    cache = small(max_file_bytes=10)
    for first in (1, 11, 21):
        cache.record_lines("/f", state(LINES), [(first, first + 1)], texts=["12345"])
    assert cache.list_segments("/f") == ("11-12", "21-22")
    cache.record_lines("/f", state(LINES), [(50, 60)], texts=["x" * 11])
    assert "50-60" in cache.list_segments("/f"), "seen, if not kept"
    assert cache.held_bytes == 10


# --- what is forgotten ---


def full(cache: FileCache, *names: str, size: int = 1) -> None:
    for name in names:
        cache.record_whole(f"/{name}", state(name), text="x" * size)


def test_lru_forgets_what_was_used_longest_ago() -> None:
    cache = small(max_entries=3, eviction_policy="lru")
    full(cache, "a", "b", "c", "a")
    cache.record_write("/b", state("bb"), text="bb")
    full(cache, "d")
    assert paths(cache) == ["/a", "/b", "/d"]
    full(cache, "e")
    assert paths(cache) == ["/b", "/d", "/e"], "also when it was changed"


def test_lfu_forgets_what_was_used_least() -> None:
    cache = small(max_entries=3, eviction_policy="lfu")
    full(cache, "a", "a", "a", "b", "b", "c", "c")
    full(cache, "d")
    assert paths(cache) == ["/a", "/c", "/d"], "of b and c, b was used longer ago"
    full(cache, "e")
    assert paths(cache) == ["/a", "/c", "/e"]
    cache.forget("/e")
    full(cache, "f", "f", "f", "g")
    assert paths(cache) == ["/a", "/f", "/g"]


def test_hybrid_forgets_changed_files_last() -> None:
    cache = small(max_entries=3)
    cache.record_write("/w", state("w"), text="w")
    full(cache, "a", "b", "c")
    assert paths(cache) == ["/b", "/c", "/w"]
    cache.record_write("/b", state("bb"), text="b")
    cache.record_write("/c", state("cc"), text="c")
    full(cache, "d")
    assert paths(cache) == ["/b", "/c", "/d"], "when nothing else is left, the oldest of them"


def test_room_is_made_before_and_until_it_fits() -> None:
    cache = small(max_bytes=10, eviction_policy="lru")
    full(cache, "a", "b", "c", size=3)
    full(cache, "d", size=8)
    assert (paths(cache), cache.held_bytes) == (["/d"], 8)
    cache.record_lines("/e", state(LINES), [(1, 2)], texts=["abc"])
    assert (paths(cache), cache.held_bytes) == (["/e"], 3), "parts count like whole files"
    cache.record_whole("/e", state(LINES), text="0123456789")
    assert (paths(cache), cache.held_bytes) == (["/e"], 10)
    full(cache, "f", size=11)
    assert cache.held_bytes <= 10


def test_what_is_forgotten_must_be_read_before_an_edit_and_is_no_news() -> None:
    cache = small(max_entries=1)
    full(cache, "a", "b")
    assert cache.compare("/a", hash_bytes(b"a")) == "unread"
    assert [file.path for file in cache.list_changed_since(0)] == ["/b"]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), max_size=12))
def test_unseen_is_exactly_what_no_range_covers(ranges: list[tuple[int, int]]) -> None:
    text = "".join(f"{n}\n" for n in range(1, 41))
    cache = FileCache()
    shown = [(first, min(40, first + length)) for first, length in ranges]
    cache.record_lines("/f", state(text), shown, texts=[lines(*span) for span in shown])
    covered = {line for first, last in shown for line in range(first, last + 1)}
    missing = {line for first, last in cache.list_unseen("/f") for line in range(first, last + 1)}
    assert missing == set(range(1, 41)) - covered
    kept = {part.first + at: line for part in cache.list_parts("/f") for at, line in enumerate(part.lines)}
    assert kept == {line: str(line) for line in covered}


def test_threads_may_share_it() -> None:
    cache = small(max_entries=20, max_bytes=500, eviction_policy="lfu")
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(300):
                name = f"/{(seed * 7 + step * 3) % 40}"
                cache.record_lines(name, state(LINES), [(step % 90 + 1, step % 90 + 5)], texts=["x" * 20])
                cache.record_write(f"{name}w", state(str(step)), text=str(step))
                cache.list_changed_since(cache.take_mark() - 5)
                cache.forget(f"/{step % 40}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(cache) == len(cache.list_files()) <= 20
    assert cache.held_bytes == sum(known(cache, path).held_bytes for path in paths(cache)) <= 500
