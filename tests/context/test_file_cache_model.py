"""The file cache behaves like a simple reference model."""

from typing import Any, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odin.context.file_cache import FileCache, Fingerprint, hash_bytes
from odin.context.settings import CacheSettings

MAX_ENTRIES, MAX_BYTES, MAX_FILE, MAX_SEGMENTS = 4, 40, 20, 3

names = st.sampled_from([f"/{letter}" for letter in "abcdefg"])


class ModelFile:
    """One file of the model."""

    def __init__(self) -> None:
        self.whole: bytes | None = None
        self.seen_whole = False
        self.segments: list[tuple[int, int, bytes | None]] = []
        self.modified = False
        self.uses = 0
        self.last = 0

    @property
    def held(self) -> int:
        return len(self.whole or b"") + sum(len(content or b"") for _, _, content in self.segments)


class CacheModel:
    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.files: dict[str, ModelFile] = {}
        self.tick = 0

    def use(self, name: str) -> None:
        self.tick += 1
        self.files[name].uses += 1
        self.files[name].last = self.tick

    def find_victim(self, spare: str) -> str:
        def rank(name: str) -> Any:
            file = self.files[name]
            if self.policy == "lfu":
                return (file.uses, file.last)
            return (file.modified and self.policy == "hybrid", file.last)

        return min((name for name in self.files if name != spare), key=rank)

    def put(self, name: str, file: ModelFile) -> None:
        new = name not in self.files
        while (new and len(self.files) >= MAX_ENTRIES) or (
            sum(other.held for key, other in self.files.items() if key != name) + file.held > MAX_BYTES
        ):
            del self.files[self.find_victim(name)]
        self.files[name] = file
        self.use(name)


class CacheMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(["lru", "lfu", "hybrid"]))
    def begin(self, policy: Literal["lru", "lfu", "hybrid"]) -> None:
        self.model = CacheModel(policy)
        self.cache = FileCache(
            CacheSettings(
                max_entries=MAX_ENTRIES,
                max_bytes=MAX_BYTES,
                max_file_bytes=MAX_FILE,
                max_segments=MAX_SEGMENTS,
                eviction_policy=policy,
            )
        )
        self.version: dict[str, int] = {}

    def get_fingerprint(self, name: str) -> Any:
        data = f"{name} {self.version.get(name, 0)}".encode()
        return Fingerprint(len(data), 1000, hash_bytes(data), 1)

    def copy(self, name: str) -> ModelFile:
        """Return a copy of the model's file, or a new one."""
        old = self.model.files.get(name)
        new = ModelFile()
        if old is not None:
            new.uses, new.last, new.modified = old.uses, old.last, old.modified
            new.whole, new.seen_whole, new.segments = old.whole, old.seen_whole, list(old.segments)
        return new

    @rule(name=names, size=st.integers(0, 30))
    def read_whole(self, name: str, size: int) -> None:
        text = "x" * size
        self.cache.record_whole(name, self.get_fingerprint(name), text=text)
        file = self.copy(name)
        file.whole = text.encode() if size <= MAX_FILE else None
        file.seen_whole, file.segments = True, []
        self.model.put(name, file)

    @rule(name=names, place=st.integers(0, 9), size=st.integers(0, 25))
    def read_lines(self, name: str, place: int, size: int) -> None:
        first, last = place * 10 + 1, place * 10 + 5
        self.cache.record_lines(name, self.get_fingerprint(name), [(first, last)], texts=["y" * size])
        file = self.copy(name)
        if not file.seen_whole:
            content = b"y" * size if size <= MAX_FILE else None
            same = next((part for part in file.segments if part[0] == first), None)
            if same is not None and (same[2] is not None or content is None):
                content = same[2]
            file.segments = [part for part in file.segments if part[0] != first] + [(first, last, content)]
            while len(file.segments) > MAX_SEGMENTS or (file.held > MAX_FILE and len(file.segments) > 1):
                file.segments.pop(0)
        self.model.put(name, file)

    @rule(name=names, size=st.integers(0, 30))
    def write(self, name: str, size: int) -> None:
        self.version[name] = self.version.get(name, 0) + 1
        text = "z" * size
        self.cache.record_write(name, self.get_fingerprint(name), text=text)
        file = self.copy(name)
        file.whole = text.encode() if size <= MAX_FILE else None
        file.seen_whole, file.segments, file.modified = True, [], True
        self.model.put(name, file)

    @rule(name=names)
    def change_outside(self, name: str) -> None:
        """Another program changes the file: the next read resets the entry."""
        self.version[name] = self.version.get(name, 0) + 1
        self.cache.record_lines(name, self.get_fingerprint(name), [(1, 5)], texts=["n"])
        file = self.copy(name)
        file.whole, file.seen_whole = None, False
        file.segments = [(1, 5, b"n")]
        self.model.put(name, file)

    @rule(name=names)
    def forget(self, name: str) -> None:
        self.cache.forget(name)
        self.model.files.pop(name, None)

    @invariant()
    def check_agreement(self) -> None:
        if not hasattr(self, "model"):
            return
        known = {name: self.cache.find(name) for name in self.model.files}
        assert sorted(self.model.files) == [file.path for file in self.cache.list_files()]
        for name, file in self.model.files.items():
            entry = known[name]
            assert entry is not None
            assert (entry.content, entry.held_bytes, entry.modified) == (file.whole, file.held, file.modified)
            assert list(entry.segments) == [f"{first}-{last}" for first, last, _ in file.segments]
            assert entry.access_count == file.uses
        assert self.cache.held_bytes == sum(file.held for file in self.model.files.values()) <= MAX_BYTES
        assert len(self.cache) <= MAX_ENTRIES


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_the_cache_and_the_model_agree = CacheMachine.TestCase
