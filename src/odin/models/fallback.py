"""Switches to a fallback model while the chosen one cannot answer."""

import time
from collections.abc import Sequence

from odin.core.errors import OdinError, ProviderError, QuotaExhausted
from odin.core.event import ModelChanged, Warned
from odin.core.provider import ModelInfo, Provider
from odin.engine.recorder import Recorder
from odin.models.selection import ModelSelector

PREFERRED_RETRY_S = 300.0
"""How long the chosen model is left alone; the first prompt after that tries it again."""


class ModelFallback:
    """Goes through the user's fallback models. Every switch is recorded as an event."""

    def __init__(self, models: ModelSelector, refs: Sequence[str], recorder: Recorder) -> None:
        self._models = models
        self._refs = tuple(refs)
        self._recorder = recorder
        self._preferred: tuple[Provider, ModelInfo] | None = None
        self._tried: set[str] = set()
        self._substitute = ""
        self._retry_at = 0.0

    async def try_next(self, failed: str, error: ProviderError) -> bool:
        """Switch to another model than `failed` and return True, or return False. Called when retries have failed."""
        if not self._refs or not (error.retryable or isinstance(error, QuotaExhausted)):
            return False
        if self._models.ref != failed:
            return True
        if failed != self._substitute:
            self._preferred, self._tried = (self._models.provider, self._models.info), {failed}
        for ref in self._refs:
            if ref not in self._tried and await self._switch_to(ref):
                self._recorder.emit(ModelChanged(self._substitute, f"{failed} cannot answer: {error}"))
                return True
        return False

    def restore_preferred(self) -> None:
        """Return to the chosen model if enough time has passed. Call when a prompt starts."""
        if self._preferred is None or time.monotonic() < self._retry_at:
            return
        home, self._preferred = self._preferred, None
        if self._models.ref == self._substitute:
            self._models.use(*home)
            self._recorder.emit(ModelChanged(self._models.ref, "it is tried again."))

    async def _switch_to(self, ref: str) -> bool:
        self._tried.add(ref)
        before = self._models.ref
        try:
            self._substitute = await self._models.choose(ref)
        except OdinError as error:
            self._recorder.emit(Warned(f"The fallback model {ref} cannot be used: {error.describe()}"))
            return False
        self._tried.add(self._substitute)
        self._retry_at = time.monotonic() + PREFERRED_RETRY_S
        return self._substitute != before
