"""Cuts a text into messages that a platform takes."""

import re

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


def split_text(text: str, limit: int) -> list[str]:
    """Return parts of at most `limit` characters: cut between paragraphs, else between lines, else anywhere.

    A code block is not cut if it fits into one part. One that is longer is closed in each part and opened in the next.
    """
    parts: list[str] = []
    current = ""
    for block in _list_blocks(text.strip()):
        joined = f"{current}\n\n{block}" if current else block
        if len(joined) <= limit:
            current = joined
            continue
        if current:
            parts.append(current)
        *full, current = _cut_block(block, limit)
        parts += full
    return [part for part in (*parts, current) if part.strip()]


def _list_blocks(text: str) -> list[str]:
    """Return the paragraphs of a text; a code block, with blank lines in it, is one."""
    blocks: list[list[str]] = [[]]
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if not fence and found is not None:
            fence = found[1]
            blocks.append([line])
        elif fence:
            blocks[-1].append(line)
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
                blocks.append([])
        elif line.strip():
            blocks[-1].append(line)
        else:
            blocks.append([])
    return ["\n".join(block) for block in blocks if block]


def _cut_block(block: str, limit: int) -> list[str]:
    """Return a paragraph or code block in pieces that fit."""
    if len(block) <= limit:
        return [block]
    fence = _FENCE.match(block)
    lines, head, tail = block.split("\n"), "", ""
    if fence is not None:
        head, tail = f"{lines[0]}\n", f"\n{fence[1]}"
        lines = lines[1:-1] if lines[-1].strip().startswith(fence[1]) else lines[1:]
    room = max(1, limit - len(head) - len(tail))
    pieces = [line[at : at + room] for line in lines for at in range(0, max(len(line), 1), room)]
    cut: list[str] = []
    for piece in pieces:
        if cut and len(cut[-1]) + 1 + len(piece) <= room:
            cut[-1] += f"\n{piece}"
        else:
            cut.append(piece)
    return [f"{head}{part}{tail}" for part in cut]
