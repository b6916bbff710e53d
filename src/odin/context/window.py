"""How much each model can hold: what is known of it, and what its server has said since."""

from odin.core.provider import ModelInfo


class ContextWindows:
    """The windows of one session's models. 0 means that nothing is known: then nothing is assumed."""

    def __init__(self) -> None:
        self._learned: dict[tuple[str, str], int] = {}

    def window_of(self, info: ModelInfo) -> int:
        learned = self._learned.get((info.provider, info.id), 0)
        return min(info.context, learned) if info.context and learned else info.context or learned

    def learn(self, info: ModelInfo, limit: int) -> bool:
        """The server refuses what is longer than this. False when that was known."""
        known = self.window_of(info)
        if limit <= 0 or (known and known <= limit):
            return False
        self._learned[(info.provider, info.id)] = limit
        return True
