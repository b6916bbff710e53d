"""Redacts secrets in tool output before it reaches the log or the model.

The patterns are in `secret_patterns`, which is loaded with the first text to redact.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from odin.core.lazy_pattern import compile_lazily
from odin.core.policy import MIN_SECRET_CHARS, RedactedText

if TYPE_CHECKING:
    from odin.policy.secret_patterns import KnownValues


_MAX_PASSES = 5
"""Passes over a text as long as secrets are found: redacting one can reveal another next to it."""

_PLACEHOLDER = compile_lazily(r"\[redacted: ([^\]\n]{1,200})\]")


class Redactor:
    """Replaces secrets with `[redacted: NAME]` and remembers the names it has used.

    `known` maps names to secrets from Odin's own configuration, in addition to those in the environment.
    """

    def __init__(self, environ: Mapping[str, str], known: Mapping[str, str] | None = None) -> None:
        self._environ = dict(environ)
        self._known = {*(known or {}).items()}
        self._used: set[str] = set()

    @cached_property
    def _values(self) -> "KnownValues":
        from odin.policy.secret_patterns import KnownValues

        return KnownValues(self._environ, self._known)

    def __call__(self, text: str) -> RedactedText:
        redacted = self._replace(text)
        self._used.update(redacted.secrets)
        return redacted

    def hide(self, text: str) -> str:
        """Return the text without its secrets, and do not remember their names."""
        return self._replace(text).text

    def hide_each(self, text: str, report: Callable[[str, str], object]) -> str:
        """Return the text without its secrets, and report the name and the value of each."""
        return self._replace(text, report).text

    def find_open_end(self, text: str) -> int:
        """Return where a secret may begin that goes on after the text; its length if none can."""
        from odin.policy.secret_patterns import find_open_end

        return find_open_end(text, self._values)

    def _replace(self, text: str, report: Callable[[str, str], object] | None = None) -> RedactedText:
        if len(text) < MIN_SECRET_CHARS:
            return RedactedText(text, ())
        from odin.policy.secret_patterns import find_secrets

        names: dict[str, None] = {}
        for _ in range(_MAX_PASSES):
            spans = find_secrets(text, self._values)
            if not spans:
                break
            pieces: list[str] = []
            at = 0
            for span in spans:
                pieces += [text[at : span.start], f"[redacted: {span.name}]"]
                at = span.end
                if report is not None:
                    report(span.name, text[span.start : span.end])
            text = "".join([*pieces, text[at:]])
            names.update((span.name, None) for span in spans)
        return RedactedText(text, tuple(names))

    def add_secrets(self, more: Mapping[str, str]) -> None:
        """Add secrets that were configured later, by name."""
        self._known = self._known | more.items()  # a new set: another thread may read the old one
        self.__dict__.pop("_values", None)

    def recall(self, names: Iterable[str]) -> None:
        """Restore names that were used in placeholders earlier in the session."""
        self._used.update(names)

    def recall_from(self, texts: Iterable[str]) -> None:
        """Restore the names used in redacted texts."""
        for text in texts:
            if "[redacted: " in text:
                self.recall(name for match in _PLACEHOLDER.finditer(text) for name in match[1].split(", "))

    def find_placeholders(self, text: str) -> tuple[str, ...]:
        """Return the placeholders in a text that this redactor has used."""
        if not self._used or "[redacted: " not in text:
            return ()
        matches = _PLACEHOLDER.finditer(text)
        return tuple(dict.fromkeys(match[0] for match in matches if set(match[1].split(", ")) <= self._used))
