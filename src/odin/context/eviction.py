"""The order in which the file cache evicts files. Every operation takes constant time."""

from collections import OrderedDict

from odin.context.settings import EvictionPolicy


class EvictionOrder:
    """Files by rank, lowest first, and within a rank the least recently used first.

    The rank is how often a file was used (`lfu`), whether this session changed it (`hybrid`), or always the same.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self._policy = policy
        self._ranks: dict[str, int] = {}
        # An OrderedDict finds its first key at once after many were removed from its start; a dict does not.
        self._paths: dict[int, OrderedDict[str, None]] = {}

    def use(self, path: str, modified: bool) -> None:
        """Record that a file was added, read or written."""
        uses = self._ranks.get(path, 0) + 1
        rank = uses if self._policy == "lfu" else int(modified and self._policy == "hybrid")
        self.drop(path)
        self._ranks[path] = rank
        self._paths.setdefault(rank, OrderedDict())[path] = None

    def drop(self, path: str) -> None:
        rank = self._ranks.pop(path, None)
        if rank is not None:
            del self._paths[rank][path]
            if not self._paths[rank]:
                del self._paths[rank]

    def pick_victim(self, spare: str) -> str | None:
        """Return the file to evict, never `spare`; None if there is no other."""
        return next((path for rank in sorted(self._paths) for path in self._paths[rank] if path != spare), None)
