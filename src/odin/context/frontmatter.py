"""The few lines of `key: value` that stand before a text written for the model: of a command, a skill, an agent type.

It is the part of YAML that people use there, read with patience: what is not understood is left out, and nothing of it
can fail. No library is needed for that, and none is loaded.
"""

_FENCE = "---"
MAX_FRONT_MATTER_LINES = 200
"""A fence that is not closed by then opened no front matter: it is a line of the text."""


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """What is said before the text, by keys in lower case, and the text. Without a closed fence all of it is text."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return {}, text.strip()
    end = next(
        (at for at, line in enumerate(lines[1:MAX_FRONT_MATTER_LINES], 1) if line.rstrip() in (_FENCE, "...")), None
    )
    if end is None:
        return {}, text.strip()
    return _parse_values(lines[1:end]), "\n".join(lines[end + 1 :]).strip()


def _parse_values(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    key = ""
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0].isspace() or line.lstrip().startswith("- "):
            if key:
                found[key] = f"{found[key]} {line.strip()}".strip()
            continue
        name, colon, value = line.partition(":")
        key = name.strip().casefold().replace("_", "-") if colon else ""
        if key:
            found[key] = _drop_block_marker(value.strip())
    return {name: _unquote_value(value) for name, value in found.items()}


def _drop_block_marker(value: str) -> str:
    """A sign that the value follows in the next lines is no part of it."""
    return "" if value in (">", "|", ">-", "|-", ">+", "|+") else value


def _unquote_value(value: str) -> str:
    """Without the quotation marks around it, or the remark behind it."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1].replace('\\"', '"') if value[0] == '"' else value[1:-1].replace("''", "'")
    return value.split(" #", 1)[0].rstrip()
