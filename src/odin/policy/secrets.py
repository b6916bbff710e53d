"""Secrets are taken out of what tools return, before it reaches the log or the model."""

import re
from collections.abc import Iterable, Mapping

from odin.core.redaction import Redacted
from odin.policy.redaction.shape import Span, by_shape
from odin.policy.redaction.value import SHORTEST, KnownValues

_LOOKS = 5
"""How often a text is looked at while something is found: what stood beside a secret may be one by itself."""

_PLACEHOLDER = re.compile(r"\[redacted: ([^\]\n]{1,200})\]")


class Redactor:
    """Takes secrets out of texts, and knows what it has put in their place.

    `known` are secrets of Odin's own configuration by their names, beside those of the environment.
    """

    def __init__(self, environ: Mapping[str, str], known: Mapping[str, str] | None = None) -> None:
        self._values = KnownValues(environ, known or {})
        self._used: set[str] = set()

    def __call__(self, text: str) -> Redacted:
        found: dict[str, None] = {}
        for _ in range(_LOOKS):
            spans = self._spans(text)
            if not spans:
                break
            text = _without(text, spans)
            found.update((span.name, None) for span in spans)
        self._used.update(found)
        return Redacted(text, tuple(found))

    def _spans(self, text: str) -> list[Span]:
        if len(text) < SHORTEST:
            return []
        from odin.policy.redaction.block import by_block
        from odin.policy.redaction.place import by_place

        return _apart([*self._values.spans(text), *by_block(text), *by_shape(text), *by_place(text)])

    def recall(self, names: Iterable[str]) -> None:
        """Names that stood for secrets earlier in the session."""
        self._used.update(names)

    def placeholders(self, text: str) -> tuple[str, ...]:
        """What stands in a text for secrets that were taken out of what the model saw."""
        if not self._used or "[redacted: " not in text:
            return ()
        found = _PLACEHOLDER.finditer(text)
        return tuple(dict.fromkeys(match[0] for match in found if set(match[1].split(", ")) <= self._used))


def _without(text: str, spans: Iterable[Span]) -> str:
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += [text[at : span.start], f"[redacted: {span.name}]"]
        at = span.end
    return "".join([*pieces, text[at:]])


def _apart(spans: Iterable[Span]) -> list[Span]:
    """In order and without overlaps: what overlaps becomes one, called like its beginning."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            last = kept[-1]
            kept[-1] = Span(last.start, max(last.end, span.end), last.name)
        else:
            kept.append(span)
    return kept
