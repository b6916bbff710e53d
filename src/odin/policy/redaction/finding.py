"""Where secrets stand in a text, by everything that is known of them. Loaded when there is a first text to look at."""

from collections.abc import Iterable

from odin.policy.redaction.block import find_key_blocks
from odin.policy.redaction.place import find_by_context
from odin.policy.redaction.shape import SecretSpan, find_by_shape
from odin.policy.redaction.value import KnownValues


def find_secrets(text: str, values: KnownValues) -> list[SecretSpan]:
    return merge_spans([*values.find_spans(text), *find_key_blocks(text), *find_by_shape(text), *find_by_context(text)])


def redact_spans(text: str, spans: Iterable[SecretSpan]) -> str:
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += [text[at : span.start], f"[redacted: {span.name}]"]
        at = span.end
    return "".join([*pieces, text[at:]])


def merge_spans(spans: Iterable[SecretSpan]) -> list[SecretSpan]:
    """In order and without overlaps: what overlaps becomes one, called like its beginning."""
    kept: list[SecretSpan] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            last = kept[-1]
            kept[-1] = SecretSpan(last.start, max(last.end, span.end), last.name)
        else:
            kept.append(span)
    return kept
