"""Which file is forgotten first. Every step costs the same however many files there are."""

from collections import OrderedDict
from typing import Protocol

from odin.context.settings import EvictionPolicy


class Order(Protocol):
    """Files by how much they would be missed."""

    def use(self, path: str, modified: bool) -> None:
        """A file was added, read or written."""
        ...

    def drop(self, path: str) -> None: ...

    def victim(self, spare: str) -> str | None:
        """The file to forget, which is never `spare`; None when there is no other."""
        ...


def order_for(policy: EvictionPolicy) -> Order:
    if policy == "lru":
        return LeastRecent()
    return LeastFrequent() if policy == "lfu" else UnmodifiedFirst()


def _first(paths: "OrderedDict[str, None]", spare: str) -> str | None:
    return next((path for path in paths if path != spare), None)


class LeastRecent:
    def __init__(self) -> None:
        self._paths: OrderedDict[str, None] = OrderedDict()

    def use(self, path: str, modified: bool) -> None:
        self._paths[path] = None
        self._paths.move_to_end(path)

    def drop(self, path: str) -> None:
        self._paths.pop(path, None)

    def victim(self, spare: str) -> str | None:
        return _first(self._paths, spare)


class UnmodifiedFirst:
    """The least recently used file that this session did not change; a changed one when nothing else is left."""

    def __init__(self) -> None:
        self._same = LeastRecent()
        self._modified = LeastRecent()

    def use(self, path: str, modified: bool) -> None:
        home, other = (self._modified, self._same) if modified else (self._same, self._modified)
        other.drop(path)
        home.use(path, modified)

    def drop(self, path: str) -> None:
        self._same.drop(path)
        self._modified.drop(path)

    def victim(self, spare: str) -> str | None:
        return self._same.victim(spare) or self._modified.victim(spare)


class _Bucket:
    """The files that were used equally often, oldest use first, between those used less and those used more."""

    def __init__(self, uses: int) -> None:
        self.uses = uses
        self.paths: OrderedDict[str, None] = OrderedDict()
        self.less: _Bucket = self
        self.more: _Bucket = self

    def next_for(self, uses: int) -> "_Bucket":
        """The bucket after this one, made when the one that follows is for another number of uses."""
        if self.more.uses == uses:
            return self.more
        made = _Bucket(uses)
        made.less, made.more = self, self.more
        self.more.less = made
        self.more = made
        return made

    def leave(self) -> None:
        self.less.more, self.more.less = self.more, self.less


class LeastFrequent:
    """The file used least often; of several, the one whose last use is longest ago."""

    def __init__(self) -> None:
        self._ring = _Bucket(0)
        self._home: dict[str, _Bucket] = {}

    def use(self, path: str, modified: bool) -> None:
        old = self._home.get(path, self._ring)
        new = old.next_for(old.uses + 1)
        new.paths[path] = None
        self._home[path] = new
        if old is not self._ring:
            self._leave(old, path)

    def drop(self, path: str) -> None:
        home = self._home.pop(path, None)
        if home is not None:
            self._leave(home, path)

    def _leave(self, bucket: _Bucket, path: str) -> None:
        del bucket.paths[path]
        if not bucket.paths:
            bucket.leave()

    def victim(self, spare: str) -> str | None:
        bucket = self._ring.more
        while bucket is not self._ring:
            found = _first(bucket.paths, spare)
            if found is not None:
                return found
            bucket = bucket.more
        return None
