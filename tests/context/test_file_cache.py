"""The file cache: what it knows and keeps of a file, and which files it evicts first."""

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


def make_fingerprint(text: str, mtime_ns: int = 1) -> Fingerprint:
    data = text.encode()
    return Fingerprint(len(data), count_lines(data), hash_bytes(data), mtime_ns)


def join_numbers(first: int, last: int) -> str:
    return "\n".join(str(n) for n in range(first, last + 1))


LINES = "".join(f"{n}\n" for n in range(1, 101))


class Clock:
    """A clock that advances only when a test sets its time."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def make_cache(**limits: Any) -> FileCache:
    return FileCache(CacheSettings(**limits), clock=Clock())


def get_entry(cache: FileCache, path: str) -> FileEntry:
    entry = cache.find(path)
    assert entry is not None
    return entry


def list_paths(cache: FileCache) -> list[str]:
    return [file.path for file in cache.list_files()]


# --- entries ---


def test_default_limits_are_those_of_the_specification() -> None:
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


def test_fingerprint_has_size_lines_and_hash(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb")
    info = (tmp_path / "f").stat()
    times = info.st_mtime_ns, info.st_ctime_ns
    assert take_fingerprint(b"a\nb", info) == Fingerprint(3, 2, hash_bytes(b"a\nb"), *times, info.st_ino, head=b"a\nb")
    assert [count_lines(data) for data in (b"", b"a", b"a\n", b"\n\n", b"a\nb")] == [0, 1, 1, 2, 2]


def test_entry_has_all_facts_about_a_file() -> None:
    clock = Clock()
    cache = FileCache(clock=clock)
    cache.record_whole("/f", make_fingerprint("a\nb\n", 77), text="a\nb\n")
    clock.time = 1005.0
    cache.record_lines("/f", make_fingerprint("a\nb\n", 77), [(1, 1)], texts=["a"])
    entry = get_entry(cache, "/f")
    assert (entry.path, entry.fingerprint.size, entry.fingerprint.lines, entry.fingerprint.mtime_ns) == ("/f", 4, 2, 77)
    assert (entry.fingerprint.sha256, entry.original_hash) == (hash_bytes(b"a\nb\n"), hash_bytes(b"a\nb\n"))
    assert (entry.cached_at, entry.last_accessed, entry.access_count) == (1000.0, 1005.0, 2)
    assert (entry.modified, entry.content, dict(entry.segments)) == (False, b"a\nb\n", {})


def test_compare_returns_unread_current_or_changed(tmp_path: Path) -> None:
    cache, path = FileCache(), str(tmp_path / "a")
    assert cache.compare(path, hash_bytes(b"x")) == "unread"
    cache.record_whole(path, make_fingerprint("x"))
    assert cache.compare(path, hash_bytes(b"x")) == "current"
    assert cache.compare(path, hash_bytes(b"y")) == "changed"
    cache.forget(path)
    assert cache.compare(path, hash_bytes(b"x")) == "unread"


def test_a_link_and_its_target_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    os.symlink(tmp_path / "a", tmp_path / "link")
    cache = FileCache()
    cache.record_whole(str(tmp_path / "link"), make_fingerprint("x"))
    assert cache.compare(str(tmp_path / "a"), hash_bytes(b"x")) == "current"
    assert list_paths(cache) == [str((tmp_path / "a").resolve())]


def test_ranges_that_were_read_add_up() -> None:
    cache = FileCache()
    cache.record_lines("/f", make_fingerprint(LINES), [(10, 20)])
    cache.record_lines("/f", make_fingerprint(LINES), [(21, 30), (50, 60)])
    assert cache.list_unseen("/f") == [(1, 9), (31, 49), (61, 100)]
    assert cache.list_segments("/f") == ("10-20", "21-30", "50-60")
    assert get_entry(cache, "/f").to_cached_file().truncated, "a part is not the whole"
    cache.record_lines("/f", make_fingerprint(LINES), [(1, 100)])
    assert not get_entry(cache, "/f").to_cached_file().truncated
    assert cache.list_unseen("/f") == []


def test_other_content_resets_the_entry() -> None:
    cache = FileCache()
    cache.record_whole("/f", make_fingerprint(LINES), text=LINES)
    cache.record_lines("/f", make_fingerprint("new\n" + LINES), [(1, 1)], texts=["new"])
    assert cache.list_unseen("/f") == [(2, 101)]
    assert cache.held_bytes == 3
    assert get_entry(cache, "/f").original_hash == hash_bytes(b"new\n" + LINES.encode())


def test_reading_a_part_of_a_known_file_keeps_the_whole() -> None:
    cache = FileCache()
    cache.record_whole("/f", make_fingerprint(LINES), text=LINES)
    cache.record_lines("/f", make_fingerprint(LINES), [(1, 2)], texts=["1\n2"], truncated=True)
    assert cache.list_unseen("/f") == []
    assert get_entry(cache, "/f").content == LINES.encode()
    assert not get_entry(cache, "/f").to_cached_file().truncated, "the lines were shown whole before"


def test_write_makes_an_entry_whole_and_modified_and_drops_its_segments() -> None:
    cache = FileCache()
    cache.record_lines("/f", make_fingerprint(LINES), [(1, 2)], texts=["1\n2"])
    cache.record_write("/f", make_fingerprint("x", 9), text="x")
    entry = get_entry(cache, "/f")
    assert (entry.modified, entry.to_cached_file().truncated, entry.fingerprint.size, entry.content) == (
        True,
        False,
        1,
        b"x",
    )
    assert (entry.fingerprint.sha256, entry.fingerprint.mtime_ns) == (hash_bytes(b"x"), 9)
    assert entry.original_hash == hash_bytes(LINES.encode()), "the hash before this session changed the file"
    assert cache.list_unseen("/f") == []
    assert cache.list_segments("/f") == ()
    assert cache.held_bytes == 1
    cache.record_whole("/f", make_fingerprint("changed by someone"))
    assert get_entry(cache, "/f").modified, "this session modified it, even if another program changed it since"


def test_list_changed_since_returns_only_new_and_changed_entries() -> None:
    cache = FileCache(clock=lambda: 7.0)
    start = cache.take_mark()
    cache.record_whole("/b", make_fingerprint("b"))
    cache.record_whole("/a", make_fingerprint("a"))
    assert [file.path for file in cache.list_changed_since(start)] == ["/b", "/a"]
    mark = cache.take_mark()
    cache.record_whole("/a", make_fingerprint("a"))
    assert cache.list_changed_since(mark) == ()
    cache.record_write("/b", make_fingerprint("bb"))
    assert cache.list_changed_since(mark) == (CachedFile("/b", 2, 7.0, True, False, hash_bytes(b"bb")),)


# --- after a resume ---


def test_restored_file_is_current_if_it_was_seen_whole_and_is_unchanged() -> None:
    cache = FileCache()
    cache.restore(
        [CachedFile("/a", 1, 5.0, sha256=hash_bytes(b"a")), CachedFile("/b", 1, 5.0, False, True, hash_bytes(b"b"))]
    )
    assert cache.compare("/a", hash_bytes(b"a")) == "current"
    assert cache.compare("/a", hash_bytes(b"other")) == "changed"
    assert cache.compare("/b", hash_bytes(b"b")) == "stale"


def test_file_restored_without_a_hash_must_be_read_again() -> None:
    cache = FileCache()
    cache.restore([CachedFile("/a", 1, 5.0, modified=True)])
    assert cache.compare("/a", hash_bytes(b"a")) == "stale"
    assert cache.get_cached_file("/a") is None
    assert cache.list_files() == (CachedFile("/a", 1, 5.0, True, False),)
    cache.record_whole("/a", make_fingerprint("a"))
    assert cache.compare("/a", hash_bytes(b"a")) == "current"


@pytest.mark.parametrize("auto_refresh", [True, False])
def test_restored_file_has_no_text_to_recall(tmp_path: Path, auto_refresh: bool) -> None:
    path = tmp_path / "a"
    path.write_text("a")
    cache = FileCache(CacheSettings(auto_refresh=auto_refresh))
    cache.restore([CachedFile(str(path), 1, 5.0, sha256=hash_bytes(b"a"))])
    assert cache.recall(str(path), path.stat(), 1, 10) is None


# --- recall without reading ---


def read_into_cache(cache: FileCache, path: Path, first: int | None = None, last: int | None = None) -> None:
    """Read a file and record it in the cache, as the tools do."""
    info, data = path.stat(), path.read_bytes()
    seen = take_fingerprint(data, info)
    if first is None or last is None:
        cache.record_whole(str(path), seen, text=data.decode())
    else:
        cache.record_lines(
            str(path), seen, [(first, last)], texts=["\n".join(data.decode().split("\n")[first - 1 : last])]
        )


def recall_lines(cache: FileCache, path: Path, first: int, last: int) -> list[str] | None:
    found = cache.recall(str(path), path.stat(), first, last)
    return found.lines if found else None


class ClockAfterChange(Clock):
    """A clock that is ten seconds after the last change of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.time = path.stat().st_ctime + 10


@pytest.fixture
def hundred_lines(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_text(LINES)
    return path


def list_numbers(first: int, last: int) -> list[str]:
    return [str(n) for n in range(first, last + 1)]


def test_range_is_recalled_only_if_it_is_inside_a_segment(hundred_lines: Path) -> None:
    cache = FileCache(clock=ClockAfterChange(hundred_lines))
    read_into_cache(cache, hundred_lines, 10, 20)
    assert cache.list_segments(str(hundred_lines)) == ("10-20",)
    assert recall_lines(cache, hundred_lines, 14, 15) == ["14", "15"]
    assert recall_lines(cache, hundred_lines, 9, 11) is None
    assert recall_lines(cache, hundred_lines, 20, 21) is None


def test_adjacent_and_overlapping_segments_are_recalled_together(hundred_lines: Path) -> None:
    cache = FileCache(clock=ClockAfterChange(hundred_lines))
    for first, last in ((31, 40), (10, 20), (15, 25), (26, 30), (50, 60)):
        read_into_cache(cache, hundred_lines, first, last)
    assert recall_lines(cache, hundred_lines, 10, 40) == list_numbers(10, 40)
    assert recall_lines(cache, hundred_lines, 18, 27) == list_numbers(18, 27)
    assert recall_lines(cache, hundred_lines, 38, 51) is None


def test_any_range_of_a_whole_file_is_recalled_up_to_its_end(hundred_lines: Path) -> None:
    cache = FileCache(clock=ClockAfterChange(hundred_lines))
    read_into_cache(cache, hundred_lines)
    assert recall_lines(cache, hundred_lines, 99, 2000) == ["99", "100"]
    assert recall_lines(cache, hundred_lines, 200, 201) == []


def test_recall_counts_as_an_access_but_a_query_does_not(hundred_lines: Path) -> None:
    clock = ClockAfterChange(hundred_lines)
    cache = FileCache(clock=clock)
    read_into_cache(cache, hundred_lines)
    before = get_entry(cache, str(hundred_lines)).access_count
    clock.time += 5
    assert recall_lines(cache, hundred_lines, 1, 1) == ["1"]
    cache.get_cached_file(str(hundred_lines))
    cache.compare(str(hundred_lines), "")
    entry = get_entry(cache, str(hundred_lines))
    assert (entry.access_count, entry.last_accessed) == (before + 1, clock.time)


@pytest.mark.parametrize("change", ["touched", "same size and time", "replaced", "mode"])
def test_changed_file_is_not_recalled(hundred_lines: Path, change: str) -> None:
    cache = FileCache(clock=ClockAfterChange(hundred_lines))
    read_into_cache(cache, hundred_lines)
    info = hundred_lines.stat()
    if change == "touched":
        os.utime(hundred_lines, (5, 5))
    elif change == "same size and time":
        hundred_lines.write_text(LINES.replace("7", "8"))
        os.utime(hundred_lines, ns=(info.st_atime_ns, info.st_mtime_ns))
    elif change == "replaced":
        other = hundred_lines.with_name("other")
        other.write_text(LINES.replace("7", "8"))
        os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))
        other.rename(hundred_lines)
    else:
        hundred_lines.chmod(0o600)
    assert recall_lines(cache, hundred_lines, 1, 2) is None


def test_a_file_read_right_after_a_change_is_not_trusted_until_it_is_read_again(hundred_lines: Path) -> None:
    """Another change in the same tick of the clock would leave the same time stamps."""
    clock = Clock()
    clock.time = hundred_lines.stat().st_ctime + 0.5
    cache = FileCache(clock=clock)
    read_into_cache(cache, hundred_lines, 1, 5)
    clock.time += 100
    assert recall_lines(cache, hundred_lines, 1, 5) is None, "the time since it was read does not matter"
    read_into_cache(cache, hundred_lines, 7, 8)
    assert recall_lines(cache, hundred_lines, 1, 5) == list_numbers(1, 5), "the second read found the same content"


def test_without_auto_refresh_a_changed_file_is_still_recalled(hundred_lines: Path) -> None:
    cache = FileCache(CacheSettings(auto_refresh=False), clock=ClockAfterChange(hundred_lines))
    read_into_cache(cache, hundred_lines)
    hundred_lines.write_text("other\n")
    assert recall_lines(cache, hundred_lines, 1, 1) == ["1"]
    assert cache.compare(str(hundred_lines), hash_bytes(b"other\n")) == "changed", (
        "the comparison before an edit still notices the change"
    )


def test_entry_expires_after_its_time_to_live(hundred_lines: Path) -> None:
    clock = ClockAfterChange(hundred_lines)
    cache = FileCache(CacheSettings(ttl_s=60), clock=clock)
    read_into_cache(cache, hundred_lines, 1, 50)
    clock.time += 50
    read_into_cache(cache, hundred_lines, 60, 61)
    clock.time += 59
    assert recall_lines(cache, hundred_lines, 1, 2) == ["1", "2"], "a further read renews the entry"
    clock.time += 2
    assert cache.list_files() == ()
    assert recall_lines(cache, hundred_lines, 1, 2) is None
    assert cache.compare(str(hundred_lines), hash_bytes(LINES.encode())) == "unread"
    assert (len(cache), cache.held_bytes) == (0, 0)


# --- kept text ---


def test_any_text_is_kept_as_bytes() -> None:
    cache = FileCache()
    text = "grün\udce9 \U0001f600\nb"
    cache.record_whole("/f", make_fingerprint("?"), text=text)
    assert get_entry(cache, "/f").list_parts()[0].lines == ["grün\udce9 \U0001f600"]
    assert cache.held_bytes == len(text.encode("utf-8", "surrogatepass"))


def test_file_over_the_limit_is_known_but_its_text_is_not_kept() -> None:
    cache = make_cache(max_file_bytes=10)
    cache.record_whole("/f", make_fingerprint("x" * 11), text="x" * 11)
    assert cache.held_bytes == 0
    assert cache.list_unseen("/f") == []
    assert cache.list_parts("/f") == []
    cache.record_write("/f", make_fingerprint("y" * 12), text="y" * 12)
    assert (cache.held_bytes, cache.compare("/f", hash_bytes(b"y" * 12))) == (0, "current")


def test_bytes_of_segments_are_counted() -> None:
    cache = FileCache()
    cache.record_lines("/f", make_fingerprint(LINES), [(1, 3), (50, 51)], texts=["1\n2\n3", "50\n51"])
    assert cache.held_bytes == 10
    cache.record_lines("/f", make_fingerprint(LINES), [(1, 3)], texts=["1\n2\n3"])
    assert cache.held_bytes == 10, "the same lines are kept once"
    cache.record_lines("/f", make_fingerprint(LINES), [(1, 4)], texts=["1\n2\n3\n4"])
    assert cache.list_segments("/f") == ("50-51", "1-4"), "a wider range replaces one inside it"
    assert cache.held_bytes == 12
    cache.forget("/f")
    assert cache.held_bytes == 0


def test_the_fifty_first_segment_drops_the_oldest() -> None:
    cache = FileCache()
    for line in range(1, 101, 2):
        cache.record_lines("/f", make_fingerprint(LINES), [(line, line)], texts=[str(line)])
    cache.record_lines("/f", make_fingerprint(LINES), [(1, 1)], texts=["1"])
    assert len(cache.list_segments("/f")) == 50
    cache.record_lines("/f", make_fingerprint(LINES), [(100, 100)], texts=["100"])
    assert len(cache.list_segments("/f")) == 50
    assert cache.list_unseen("/f")[0] == (2, 4), "line 3 is the oldest"
    assert "1-1" in cache.list_segments("/f"), "it was read again after the others"
    assert cache.held_bytes == len(b"".join(str(n).encode() for n in [1, *range(5, 101, 2), 100]))


def test_segments_of_one_file_stay_within_its_limit() -> None:
    cache = make_cache(max_file_bytes=10)
    for first in (1, 11, 21):
        cache.record_lines("/f", make_fingerprint(LINES), [(first, first + 1)], texts=["12345"])
    assert cache.list_segments("/f") == ("11-12", "21-22")
    cache.record_lines("/f", make_fingerprint(LINES), [(50, 60)], texts=["x" * 11])
    assert "50-60" in cache.list_segments("/f"), "its lines were seen, but their text is not kept"
    assert cache.held_bytes == 10


# --- eviction ---


def fill(cache: FileCache, *names: str, size: int = 1) -> None:
    for name in names:
        cache.record_whole(f"/{name}", make_fingerprint(name), text="x" * size)


def test_lru_evicts_the_least_recently_used_file() -> None:
    cache = make_cache(max_entries=3, eviction_policy="lru")
    fill(cache, "a", "b", "c", "a")
    cache.record_write("/b", make_fingerprint("bb"), text="bb")
    fill(cache, "d")
    assert list_paths(cache) == ["/a", "/b", "/d"]
    fill(cache, "e")
    assert list_paths(cache) == ["/b", "/d", "/e"], "the oldest is /a now"


def test_lfu_evicts_the_least_frequently_used_file() -> None:
    cache = make_cache(max_entries=3, eviction_policy="lfu")
    fill(cache, "a", "a", "a", "b", "b", "c", "c")
    fill(cache, "d")
    assert list_paths(cache) == ["/a", "/c", "/d"], "of b and c, b was used longer ago"
    fill(cache, "e")
    assert list_paths(cache) == ["/a", "/c", "/e"]
    cache.forget("/e")
    fill(cache, "f", "f", "f", "g")
    assert list_paths(cache) == ["/a", "/f", "/g"]


def test_hybrid_evicts_modified_files_last() -> None:
    cache = make_cache(max_entries=3)
    cache.record_write("/w", make_fingerprint("w"), text="w")
    fill(cache, "a", "b", "c")
    assert list_paths(cache) == ["/b", "/c", "/w"]
    cache.record_write("/b", make_fingerprint("bb"), text="b")
    cache.record_write("/c", make_fingerprint("cc"), text="c")
    fill(cache, "d")
    assert list_paths(cache) == ["/b", "/c", "/d"], "if all files are modified, the oldest is evicted"


def test_files_are_evicted_until_the_new_one_fits() -> None:
    cache = make_cache(max_bytes=10, eviction_policy="lru")
    fill(cache, "a", "b", "c", size=3)
    fill(cache, "d", size=8)
    assert (list_paths(cache), cache.held_bytes) == (["/d"], 8)
    cache.record_lines("/e", make_fingerprint(LINES), [(1, 2)], texts=["abc"])
    assert (list_paths(cache), cache.held_bytes) == (["/e"], 3), "parts count like whole files"
    cache.record_whole("/e", make_fingerprint(LINES), text="0123456789")
    assert (list_paths(cache), cache.held_bytes) == (["/e"], 10)
    fill(cache, "f", size=11)
    assert cache.held_bytes <= 10


def test_evicted_file_is_unread_and_not_listed_as_changed() -> None:
    cache = make_cache(max_entries=1)
    fill(cache, "a", "b")
    assert cache.compare("/a", hash_bytes(b"a")) == "unread"
    assert [file.path for file in cache.list_changed_since(0)] == ["/b"]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10)), max_size=12))
def test_unseen_lines_are_exactly_those_that_no_range_covers(ranges: list[tuple[int, int]]) -> None:
    text = "".join(f"{n}\n" for n in range(1, 41))
    cache = FileCache()
    shown = [(first, min(40, first + length)) for first, length in ranges]
    cache.record_lines("/f", make_fingerprint(text), shown, texts=[join_numbers(*span) for span in shown])
    covered = {line for first, last in shown for line in range(first, last + 1)}
    missing = {line for first, last in cache.list_unseen("/f") for line in range(first, last + 1)}
    assert missing == set(range(1, 41)) - covered
    kept = {part.first + at: line for part in cache.list_parts("/f") for at, line in enumerate(part.lines)}
    assert kept == {line: str(line) for line in covered}


def test_threads_can_share_a_cache() -> None:
    cache = make_cache(max_entries=20, max_bytes=500, eviction_policy="lfu")
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(300):
                name = f"/{(seed * 7 + step * 3) % 40}"
                cache.record_lines(name, make_fingerprint(LINES), [(step % 90 + 1, step % 90 + 5)], texts=["x" * 20])
                cache.record_write(f"{name}w", make_fingerprint(str(step)), text=str(step))
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
    assert cache.held_bytes == sum(get_entry(cache, path).held_bytes for path in list_paths(cache)) <= 500
