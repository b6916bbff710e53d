"""Where secrets stand in a text, by everything that is known of them. Loaded when there is a first text to look at."""

from collections.abc import Iterable

from odin.policy.redaction.block import by_block
from odin.policy.redaction.place import by_place
from odin.policy.redaction.shape import Span, by_shape
from odin.policy.redaction.value import KnownValues


def secrets_in(text: str, values: KnownValues) -> list[Span]:
    return apart([*values.spans(text), *by_block(text), *by_shape(text), *by_place(text)])


def without(text: str, spans: Iterable[Span]) -> str:
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += [text[at : span.start], f"[redacted: {span.name}]"]
        at = span.end
    return "".join([*pieces, text[at:]])


def apart(spans: Iterable[Span]) -> list[Span]:
    """In order and without overlaps: what overlaps becomes one, called like its beginning."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            last = kept[-1]
            kept[-1] = Span(last.start, max(last.end, span.end), last.name)
        else:
            kept.append(span)
    return kept
