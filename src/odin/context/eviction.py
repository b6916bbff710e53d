"""Eviction orders of the file cache. Every operation takes constant time."""

from collections import OrderedDict
from typing import Protocol

from odin.context.settings import EvictionPolicy


class EvictionOrder(Protocol):
    """Files ordered by which to evict first."""

    def use(self, path: str, modified: bool) -> None:
        """Record that a file was added, read or written."""
        ...

    def drop(self, path: str) -> None: ...

    def pick_victim(self, spare: str) -> str | None:
        """Return the file to evict, never `spare`; None if there is no other."""
        ...


def make_order(policy: EvictionPolicy) -> EvictionOrder:
    if policy == "lru":
        return LeastRecent()
    return LeastFrequent() if policy == "lfu" else UnmodifiedFirst()


def _find_other_than(paths: "OrderedDict[str, None]", spare: str) -> str | None:
    return next((path for path in paths if path != spare), None)


class LeastRecent:
    def __init__(self) -> None:
        self._paths: OrderedDict[str, None] = OrderedDict()

    def use(self, path: str, modified: bool) -> None:
        self._paths[path] = None
        self._paths.move_to_end(path)

    def drop(self, path: str) -> None:
        self._paths.pop(path, None)

    def pick_victim(self, spare: str) -> str | None:
        return _find_other_than(self._paths, spare)


class UnmodifiedFirst:
    """Evicts the least recently used file that this session did not change, then changed ones."""

    def __init__(self) -> None:
        self._unmodified = LeastRecent()
        self._modified = LeastRecent()

    def use(self, path: str, modified: bool) -> None:
        home, other = (self._modified, self._unmodified) if modified else (self._unmodified, self._modified)
        other.drop(path)
        home.use(path, modified)

    def drop(self, path: str) -> None:
        self._unmodified.drop(path)
        self._modified.drop(path)

    def pick_victim(self, spare: str) -> str | None:
        return self._unmodified.pick_victim(spare) or self._modified.pick_victim(spare)


class _Bucket:
    """The files with the same number of uses, oldest use first, linked to the neighboring counts."""

    def __init__(self, uses: int) -> None:
        self.uses = uses
        self.paths: OrderedDict[str, None] = OrderedDict()
        self.less: _Bucket = self
        self.more: _Bucket = self

    def get_next(self, uses: int) -> "_Bucket":
        """Return the bucket for `uses`, inserting it after this one if needed."""
        if self.more.uses == uses:
            return self.more
        made = _Bucket(uses)
        made.less, made.more = self, self.more
        self.more.less = made
        self.more = made
        return made

    def unlink(self) -> None:
        self.less.more, self.more.less = self.more, self.less


class LeastFrequent:
    """Evicts the least frequently used file; of several, the least recently used."""

    def __init__(self) -> None:
        self._ring = _Bucket(0)
        self._bucket_of: dict[str, _Bucket] = {}

    def use(self, path: str, modified: bool) -> None:
        old = self._bucket_of.get(path, self._ring)
        new = old.get_next(old.uses + 1)
        new.paths[path] = None
        self._bucket_of[path] = new
        if old is not self._ring:
            self._remove_from(old, path)

    def drop(self, path: str) -> None:
        home = self._bucket_of.pop(path, None)
        if home is not None:
            self._remove_from(home, path)

    def _remove_from(self, bucket: _Bucket, path: str) -> None:
        del bucket.paths[path]
        if not bucket.paths:
            bucket.unlink()

    def pick_victim(self, spare: str) -> str | None:
        bucket = self._ring.more
        while bucket is not self._ring:
            found = _find_other_than(bucket.paths, spare)
            if found is not None:
                return found
            bucket = bucket.more
        return None
