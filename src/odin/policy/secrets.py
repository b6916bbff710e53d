"""How secrets are recognised in a text: by their shape, by what they are assigned to, and by their known values.

Secrets are taken out of what tools return, before it reaches the log or the model.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from odin.core.policy import MIN_SECRET_CHARS, RedactedText

if TYPE_CHECKING:
    from odin.policy.secret_patterns import KnownValues


_MAX_PASSES = 5
"""How often a text is looked at while something is found: what stood beside a secret may be one by itself."""

_PLACEHOLDER = re.compile(r"\[redacted: ([^\]\n]{1,200})\]")


class Redactor:
    """Takes secrets out of texts, and knows what it has put in their place.

    `known` are secrets of Odin's own configuration by their names, beside those of the environment.
    """

    def __init__(self, environ: Mapping[str, str], known: Mapping[str, str] | None = None) -> None:
        self._environ = dict(environ)
        self._known = dict(known or {})
        self._used: set[str] = set()

    @cached_property
    def _values(self) -> "KnownValues":
        from odin.policy.secret_patterns import KnownValues

        return KnownValues(self._environ, self._known)

    def __call__(self, text: str) -> RedactedText:
        if len(text) < MIN_SECRET_CHARS:
            return RedactedText(text, ())
        from odin.policy.secret_patterns import find_secrets, redact_spans

        found: dict[str, None] = {}
        for _ in range(_MAX_PASSES):
            spans = find_secrets(text, self._values)
            if not spans:
                break
            text = redact_spans(text, spans)
            found.update((span.name, None) for span in spans)
        self._used.update(found)
        return RedactedText(text, tuple(found))

    def add_secrets(self, more: Mapping[str, str]) -> None:
        """Secrets that were given to Odin since, by their names."""
        self._known |= more
        self.__dict__.pop("_values", None)

    def recall(self, names: Iterable[str]) -> None:
        """Names that stood for secrets earlier in the session."""
        self._used.update(names)

    def recall_from(self, texts: Iterable[str]) -> None:
        """The same from texts out of which they were taken."""
        for text in texts:
            if "[redacted: " in text:
                self.recall(name for match in _PLACEHOLDER.finditer(text) for name in match[1].split(", "))

    def find_placeholders(self, text: str) -> tuple[str, ...]:
        """What stands in a text for secrets that were taken out of what the model saw."""
        if not self._used or "[redacted: " not in text:
            return ()
        found = _PLACEHOLDER.finditer(text)
        return tuple(dict.fromkeys(match[0] for match in found if set(match[1].split(", ")) <= self._used))
