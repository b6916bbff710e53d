"""The paths that a shell may substitute for a glob."""

from itertools import chain, islice

from odin.core.lazy_pattern import compile_lazily

MAX_MATCHES = 1000

_BRACKETS = compile_lazily(r"\[[^/]*\]")
_CLIMBING = compile_lazily(r"(?<![^/])\.(?:\.?\*|\?|\[[^/]*\]\*?)(?![^/])")
"""A part of a glob that some shells let match `..`."""


def expand_glob(pattern: str, folder: str) -> list[str]:
    """Return the paths that match, perhaps more than the shell would find, at most `MAX_MATCHES`."""
    import glob

    wide = _BRACKETS.sub("*", pattern)
    try:
        matches = glob.iglob(wide, root_dir=folder, include_hidden=True)  # noqa: PTH207 (needs root_dir)
        above = glob.iglob(_CLIMBING.sub("..", pattern), root_dir=folder) if _CLIMBING.search(pattern) else ()  # noqa: PTH207
        return list(islice(chain(matches, above), MAX_MATCHES))
    except (OSError, ValueError):
        return []
