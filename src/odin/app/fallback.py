"""Another model answers while the chosen one cannot."""

import time
from collections.abc import Sequence

from odin.app.models import Models
from odin.core.errors import OdinError, ProviderError, QuotaExhausted
from odin.core.event import ModelChanged, Warned
from odin.core.provider import ModelInfo, Provider
from odin.engine.recorder import Recorder

BACK_AFTER_S = 300.0
"""So long the chosen model is left in peace; the first prompt after that asks it again."""


class Fallback:
    """Goes through the models that the user named for when the chosen one fails. Nothing is changed in silence."""

    def __init__(self, models: Models, refs: Sequence[str], recorder: Recorder) -> None:
        self._models = models
        self._refs = tuple(refs)
        self._recorder = recorder
        self._home: tuple[Provider, ModelInfo] | None = None
        self._tried: set[str] = set()
        self._stands_in = ""
        self._until = 0.0

    async def next(self, failed: str, error: ProviderError) -> bool:
        """Whether another model than `failed` can be asked now. Retrying has not helped."""
        if not self._refs or not (error.retryable or isinstance(error, QuotaExhausted)):
            return False
        if self._models.ref != failed:
            return True
        if failed != self._stands_in:
            self._home, self._tried = (self._models.provider, self._models.info), {failed}
        for ref in self._refs:
            if ref not in self._tried and await self._choose(ref):
                self._recorder.emit(ModelChanged(self._stands_in, f"{failed} cannot answer: {error}"))
                return True
        return False

    def go_home(self) -> None:
        """The chosen model may have recovered: to be called when a prompt begins."""
        if self._home is None or time.monotonic() < self._until:
            return
        home, self._home = self._home, None
        if self._models.ref == self._stands_in:
            self._models.use(*home)
            self._recorder.emit(ModelChanged(self._models.ref, "it is tried again."))

    async def _choose(self, ref: str) -> bool:
        self._tried.add(ref)
        before = self._models.ref
        try:
            self._stands_in = await self._models.choose(ref)
        except OdinError as error:
            self._recorder.emit(Warned(f"The fallback model {ref} cannot be used: {error.sentence()}"))
            return False
        self._tried.add(self._stands_in)
        self._until = time.monotonic() + BACK_AFTER_S
        return self._stands_in != before
