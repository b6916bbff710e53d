"""Completes what a small model wrote of a file: it often leaves out what does not change.

Nothing is lost that the task does not ask to lose. A text that lacks parts of the old file is merged with it, part by
part; where that is not possible, `find_loss` says what would be lost.
"""

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from odin.providers.whole_files.change_words import (
    is_about_comments,
    is_about_imports,
    is_about_middle,
    is_about_top,
    is_about_usage,
    is_adding,
    is_keeping_only,
    is_removing_parts,
    is_renaming,
    is_reshaping,
    is_rewriting,
    is_shortening,
    is_target,
)
from odin.providers.whole_files.file_change import drop_elisions, find_elision
from odin.providers.whole_files.file_outline import CODE, Part, join_outline, read_outline, strip_blank
from odin.providers.whole_files.part_merge import (
    PartMerge,
    append_items,
    find_bound_names,
    is_json,
    is_used,
    list_lost_keys,
    merge_objects,
    strip_comments,
)
from odin.providers.whole_files.rename import find_rename, replace_name

_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_ALIKE = 0.7
"""How alike two lines of text are if one is a version of the other."""
_REWRITTEN = re.compile(
    r"\b(?:rewrite|refactor|simplify|implement|convert|shorten)\s+(?:the\s+)?(?:function\s+|method\s+)?[`'\"]?([A-Za-z_]\w*)",
    re.IGNORECASE,
)
"""`rewrite the function total`: the task is about this function."""
_USAGE_COMMENT = re.compile(r"(?:#|//)\s*(?:example|usage|sample|demo|test(?:ing)? the|run the)\b", re.IGNORECASE)


def complete_file(path: str, new: str, old: str, prompt: str, elsewhere: Collection[str] = ()) -> str:
    """Return the whole new file. `new` is what the model wrote, all of it or the parts that change.

    `elsewhere` are the names that the same reply defines in other files.
    """
    if path.endswith(CODE):
        new = _drop_usage(path, textwrap.dedent(new) if new[:1].isspace() else new, old, prompt)
    if not old.strip() or is_rewriting(prompt, is_code=path.endswith(CODE)):
        return new
    if path.endswith(".json"):
        return _complete_json(new, old, prompt)
    change = _OutlineChange.compare(path, new, old, prompt, elsewhere)
    if change is not None:
        return change.complete()
    whole = new if find_elision(new, old) else drop_elisions(new, old)
    return _complete_text(path, whole, old, prompt)


def keep_others(path: str, new: str, old: str, prompt: str) -> str:
    """Return a program in which only the function changes that the prompt wants rewritten, and what depends on it.

    A small model that rewrites one function likes to rewrite its neighbours, too.
    """
    before = {part.name: part for part in (read_outline(path, old) or ()) if part.kind == "definition"}
    found = _REWRITTEN.findall(prompt) if path.endswith(CODE) else []
    named = {name for name in before if name in found}
    parts = (read_outline(path, new) or []) if named else []
    added = {part.name for part in parts if part.kind in ("definition", "variable")} - before.keys()
    others = [part for part in parts if part.name in before and part.name not in named]
    for part in others:
        text = "\n".join(part.list_lines())
        if not any(is_used(name, text) for name in named | added):
            kept = before[part.name].copy()
            part.lines, part.parts, part.tail = kept.lines, kept.parts, kept.tail
    return join_outline(parts) if others else new


def find_loss(path: str, new: str, old: str, prompt: str, elsewhere: Collection[str] = ()) -> str:
    """Return what a file would lose that the task does not ask to lose, as a sentence for the model; "" if nothing."""
    if not old.strip() or not new.strip() or is_rewriting(prompt, is_code=path.endswith(CODE)):
        return ""
    change = (
        None if path.endswith(".json") else _OutlineChange.compare(path, new, old, prompt, elsewhere, is_final=True)
    )
    names = _find_lost_keys(new, old, prompt) if path.endswith(".json") else change.list_kept() if change else []
    if names:
        return f"{path} would lose {_list_names(names)}. Write the complete file."
    if change and (method := change.find_loose_method()):
        return f"{method} is a method. Write the complete file with the class around it."
    if path.endswith(".json") or (
        path.endswith(CODE) and (is_reshaping(prompt) or (change and change.has_definitions))
    ):
        return ""
    return _find_lost_lines(path, new, old, prompt)


def is_continued(path: str, new: str, known: str) -> bool:
    """True if a second text for a file is more of it, or a better version, and not an example of its use."""
    lines = _list_lines(new)
    if set(lines) <= set(_list_lines(known)):
        return False
    if not path.endswith(CODE):
        return True
    if any(part.kind == "definition" for part in read_outline(path, new) or ()):
        return True
    return not any(part.kind == "definition" for part in read_outline(path, known) or ())


def _list_names(names: list[str]) -> str:
    shown = [name.partition("#")[0] for name in names[:4]]
    more = [f"{len(names) - 4} more"] if len(names) > 4 else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last


def _list_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _drop_usage(path: str, new: str, old: str, prompt: str) -> str:
    """Return code without an example of its use at the end: it would run on every import. The task may ask for it."""
    lines = new.splitlines()
    at = next((at for at, line in enumerate(lines) if _USAGE_COMMENT.match(line) and line not in old), 0)
    if not at or is_about_usage(prompt):
        return new
    before, after = (read_outline(path, "\n".join(part)) or [] for part in (lines[:at], lines[at:]))
    if not any(part.kind == "definition" for part in before) or any(part.kind == "definition" for part in after):
        return new
    return "\n".join(strip_blank(lines[:at])) + "\n"


# --- files with parts ---


class _OutlineChange(Struct):
    """The parts of an old and a new text, and which of the old ones the new text lacks."""

    path: str
    old: list[Part]
    new: list[Part]
    text: str
    """The new text."""
    prompt: str
    lost: list[str]
    added: list[str]
    share: float
    """The share of the old lines that the new text has."""
    is_partial: bool
    """The model says that it left something out, wrote a method without its class, or only what the file defines."""

    @classmethod
    def compare(
        cls, path: str, new: str, old: str, prompt: str, elsewhere: Collection[str], *, is_final: bool = False
    ) -> "_OutlineChange | None":
        """Return None for files without parts. `is_final`: the new text is the file, and no part of it."""
        old_parts = read_outline(path, old)
        text = new if is_final else drop_elisions(new, old)
        is_partial = text != new and bool(find_elision(new, old))
        new_parts = read_outline(path, text)
        if old_parts is None or new_parts is None:
            return None
        if path.endswith(CODE) and not is_final:
            has_placed = _place_methods(path, old_parts, new_parts, prompt)
            is_partial = is_partial or has_placed or _is_without_statements(old_parts, new_parts, text)
        old_names, new_names = list(_walk_names(old_parts)), list(_walk_names(new_parts))
        if not path.endswith(CODE) and not any(part.name for part in new_parts):
            return None
        have = {name for name, _ in new_names}
        lost = [
            name
            for name, part in old_names
            if name not in have and not _is_moved(name, part, have, elsewhere) and _is_needed(path, part, text)
        ]
        known = {name for name, _ in old_names}
        added = [name for name, part in new_names if name not in known and part.kind != "variable"]
        before, after = _list_lines(old), set(_list_lines(text))
        share = sum(line in after for line in before) / (len(before) or 1)
        return cls(path, old_parts, new_parts, text, prompt, lost, added, share, is_partial)

    @property
    def _is_adding(self) -> bool:
        return is_adding(self.prompt, is_code=self.path.endswith(CODE))

    @property
    def has_definitions(self) -> bool:
        return any(part.kind == "definition" for part in self.old)

    def find_loose_method(self) -> str:
        """Return a method that stands outside of a class and did not in the old file, or ""."""
        known = {part.name for part in self.old}
        found = [
            _find_method(self.path, part) for part in self.new if self.path.endswith(CODE) and part.name not in known
        ]
        return next((name for name in found if name and any(part.parts for part in self.old)), "")

    def complete(self) -> str:
        """Return the new text if it is the whole file, else the old file with the new parts."""
        if not self.path.endswith(CODE) and not self.is_partial and self._has_empty_sections():
            return self._merge()
        if not self.is_partial and not self.list_kept():
            self._restore_comments(self.old, self.new)
            return self._restore_imports()
        if self.path.endswith(CODE) and self.has_definitions and not self._has_known_parts():
            return self.text
        return self._merge()

    def _has_known_parts(self) -> bool:
        """True if the new text defines something, or gives a variable of the old file another value."""
        known = {part.name for part in self.old}
        return any(part.kind in ("definition", "trailer") or part.name in known for part in self.new if part.name)

    def _has_empty_sections(self) -> bool:
        """True if the new text repeats a heading without the text below it."""
        known = {part.name: part for part in self.old if part.kind == "entry"}
        return self.path.endswith((".md", ".mdx", ".markdown")) and any(
            part.name in known
            and len(_list_lines(join_outline([part]))) == 1 < len(_list_lines(join_outline([known[part.name]])))
            for part in self.new
        )

    def list_kept(self) -> list[str]:
        """Return the lost names that the task does not ask to lose."""
        gone = set(self._list_gone())
        kept = [name for name in self.lost if name not in gone]
        if not kept or self.is_partial or self._is_removal(kept) or self._is_renaming():
            return []
        return kept

    def _list_gone(self) -> Iterator[str]:
        """Yield the lost names that the task mentions and that nothing uses any more."""
        said = self.prompt.replace(self.path, " ").replace(self.path.rpartition("/")[2], " ")
        for name in self.lost:
            short = name.partition("#")[0].rpartition(".")[2]
            is_named = is_target(short, said, is_code=self.path.endswith(CODE))
            is_main = name == "if __name__" and re.search(r"\bguard\b|\bmain block\b|__name__", said) is not None
            if (is_named or is_main) and not re.search(rf"(?<![\w.]){re.escape(short)}\s*\(", self.text):
                yield name
                yield from (one for one in self.lost if one.startswith(f"{name}."))

    def _is_renaming(self) -> bool:
        """True if as many definitions are new as are lost in a text that is the same for the most part."""
        is_addition = self._is_adding and not is_renaming(self.prompt)
        return len(self.lost) == len(self.added) and self.share >= 0.5 and not is_addition

    def _is_removal(self, kept: list[str]) -> bool:
        """True if the task removes parts without naming them. Parts that are named and still there are the place."""
        if is_keeping_only(self.prompt) and not self.added:
            return True
        if self.share < 0.5 or not is_removing_parts(self.prompt):
            return False
        places = {name.rpartition(".")[2] for name, part in _walk_names(self.new) if part.kind == "definition"}
        return not places.intersection(re.findall(r"\w+", self.prompt))

    def _merge(self) -> str:
        gone = set(self._list_gone())
        text = join_outline(PartMerge(self.path, gone, is_adding=self._is_adding).merge(self.old, self.new))
        rename = find_rename(self.prompt)
        if rename and rename.old in {name.rpartition(".")[2] for name in gone}:
            text = replace_name(text, rename)
        return text

    def _restore_comments(self, old: list[Part], new: list[Part]) -> None:
        """Give the new parts the comments and decorators that were directly above the old ones, if they have none."""
        if not self.path.endswith(CODE) or is_about_comments(self.prompt):
            return
        known = {part.name: part for part in old if part.name}
        for part in new:
            if part.name in known:
                before = known[part.name]
                if before.start and not part.start and part.lines:
                    part.lines = [*before.lines[: before.start], *part.lines]
                    part.start = before.start
                self._restore_comments(before.parts, part.parts)
        self.text = join_outline(self.new)

    def _restore_imports(self) -> str:
        """Return the new text with the imports of the old one that it uses and lacks."""
        if not self.path.endswith(CODE) or is_about_imports(self.prompt):
            return self.text
        bound = {name for part in self.new if part.kind == "import" for name in find_bound_names(part)}
        defined = {part.name for part in self.new}
        lost = [
            part
            for part in self.old
            if part.kind == "import"
            and any(name not in bound | defined and is_used(name, self.text) for name in find_bound_names(part))
        ]
        if not lost:
            return self.text
        if self.new[0].kind in ("definition", "variable", "statement") and self.new[0].name != "package":
            return join_outline([*lost, *self.new])
        return join_outline(PartMerge(self.path).merge(self.new, lost))


def _is_moved(name: str, part: Part, have: Collection[str], elsewhere: Collection[str]) -> bool:
    """True if a definition is now in a class or another file, or the members of a class are now functions."""
    owner, _, short = name.rpartition(".")
    if part.kind != "definition" or owner in have:
        return False
    inner = {one.rpartition(".")[2] for one in have} | set(elsewhere)
    return short in inner or owner in inner or (bool(part.parts) and all(one.name in inner for one in part.parts))


_MADE_BY_DECORATOR = re.compile(r"@(?:dataclass|define|attrs?)\b|\((?:NamedTuple|BaseModel|Struct)\b")


def _is_needed(path: str, part: Part, text: str) -> bool:
    """True for all parts but those that something else makes superfluous."""
    if not path.endswith(CODE):
        return True
    if part.kind == "trailer" and "export" in part.name:
        return re.search(r"^export\b|\bexports\b", text, re.MULTILINE) is None
    if part.name == "if __name__":
        called = re.findall(r"(?<![\w.])([A-Za-z_]\w*)[.(]", "\n".join(part.lines[part.start + 1 :]))
        return not called or any(is_used(name, text) for name in called)
    if part.name == "__init__":
        return _MADE_BY_DECORATOR.search(text) is None
    return part.kind != "variable" or (is_used(part.name, text) and part.first.strip() not in _list_lines(text))


def _is_without_statements(old: list[Part], new: list[Part], text: str) -> bool:
    """True if a text has only definitions, and nothing of what the old file does with them."""
    loose = ("statement", "variable", "trailer")
    if not any(part.kind == "definition" for part in new) or any(part.kind in loose for part in new):
        return False
    done = {part.first.strip() for part in old if part.kind == "statement"}
    return bool(done) and not done & set(_list_lines(text))


def _walk_names(parts: Iterable[Part], owner: str = "") -> Iterator[tuple[str, Part]]:
    """Yield the names of parts and of the parts in them, these after the name of their owner and a dot."""
    for part in parts:
        if part.name:
            yield f"{owner}{part.name}", part
            yield from _walk_names(part.parts, f"{owner}{part.name}.")


_PYTHON_METHOD = re.compile(r"(?:async\s+)?def\s+(?P<name>\w+)\(\s*(?:self|cls)\b")
_BRACE_METHOD = re.compile(r"(?:async\s+|static\s+)*(?P<name>(?!if|for|while|switch|function)\w+)\([^()]*\)\s*\{")


def _find_method(path: str, part: Part) -> str:
    """Return the name of the method that stands outside of a class, or ""."""
    start = " ".join(line.strip() for line in part.lines[part.start : part.start + 2])
    found = (_PYTHON_METHOD if path.endswith(".py") else _BRACE_METHOD).match(start)
    return found["name"] if found and not part.parts else ""


def _place_methods(path: str, old: list[Part], new: list[Part], prompt: str) -> bool:
    """Put methods that a model wrote without their class into the class of the old file; True if there were any."""
    has_placed = False
    classes = [part for part in old if part.parts and part.kind == "definition" and not part.name.endswith(" group")]
    known = {_find_method(path, part) for part in old}
    for at, part in enumerate(new):
        name = _find_method(path, part)
        if not name or not classes or name in known:
            continue
        owners = [one for one in classes if any(member.name == name for member in one.parts)]
        owners = owners or [one for one in classes if len(classes) == 1 or one.name in prompt]
        owner = _find_closest(owners, name, part)
        if owner is not None:
            inner = owner.parts[0].first
            indent = inner[: len(inner) - len(inner.lstrip())]
            lines = [f"{indent}{line}" if line else line for line in part.lines]
            new[at] = Part(owner.name, "definition", [], [Part(name, "definition", lines, start=part.start)])
            has_placed = True
    return has_placed


def _find_closest(owners: list[Part], name: str, part: Part) -> Part | None:
    """Return the class whose method of this name has most lines of the new one; None if that is not clear."""
    lines = {line.strip() for line in part.lines}
    counts = [
        (sum(line.strip() in lines for member in owner.parts if member.name == name for line in member.lines), at)
        for at, owner in enumerate(owners)
    ]
    counts.sort(reverse=True)
    if not counts or (len(counts) > 1 and counts[0][0] == counts[1][0]):
        return None
    return owners[counts[0][1]]


# --- text and JSON ---


def _complete_text(path: str, new: str, old: str, prompt: str) -> str:
    """Return the whole text if the new one is only what comes at its end or start; else the new one."""
    before, after = _list_lines(old), _list_lines(new)
    if set(before) <= set(after):
        return new
    if not is_adding(prompt, is_code=False):
        return _replace_alike(new, old)
    is_prose = path.endswith((".md", ".markdown", ".mdx", ".rst"))
    gap = "\n\n" if is_prose and not (_ITEM.match(before[-1]) and _ITEM.match(after[0])) else "\n"
    overlap = next((size for size in range(min(len(before), len(after)), 0, -1) if before[-size:] == after[:size]), 0)
    if overlap and overlap < len(before) and overlap < len(after):
        rest = new.splitlines()
        for _ in range(overlap):
            while not rest.pop(0).strip():
                pass
        return old.rstrip("\n") + "\n" + "\n".join(rest) + "\n"
    if set(before) & set(after) or is_about_middle(prompt):
        return new
    if is_about_top(prompt):
        return new.rstrip("\n") + gap + old.lstrip("\n")
    return old.rstrip("\n") + gap + new


def _replace_alike(new: str, old: str) -> str:
    """Return the old text in which new lines replace those they are versions of; the new text if there are others."""
    from difflib import SequenceMatcher

    before, after = old.splitlines(), new.splitlines()
    if 2 * len(after) > len(before) or set(after) <= set(before):
        return new
    for line in filter(None, after):
        ratios = [SequenceMatcher(None, line, one).ratio() for one in before]
        best = max(ratios)
        if best < _ALIKE or ratios.count(best) > 1:
            return new
        before[ratios.index(best)] = line
    return "\n".join(before) + ("\n" if old.endswith("\n") else "")


def _find_lost_lines(path: str, new: str, old: str, prompt: str) -> str:
    """Return a sentence if lines of a file would be gone and fewer would be there instead."""
    before, after = _list_lines(old), _list_lines(new)
    lost = [line for line in before if line not in set(after)]
    kept = len(before) - len(lost)
    most = len(before) - 1 if is_shortening(prompt) else 0 if is_adding(prompt, is_code=False) else max(2, kept)
    fewer = len(before) - len(after)
    is_change = not path.endswith(CODE) and not is_shortening(prompt)
    if fewer <= 0 or (len(lost) <= most and not (is_change and fewer > 1 and len(lost) > 2)):
        return ""
    return f"{path} would lose {len(lost)} lines, for example {lost[0][:80]!r}. Write the complete file."


def _complete_json(new: str, old: str, prompt: str) -> str:
    """Return the old values with the new ones if the new text lacks some; the new text if it is whole or invalid."""
    if not is_json(new) and is_json(old):
        new = strip_comments(new)
    if not is_json(new) or not is_json(old):
        return new
    if _find_lost_keys(new, old, prompt):
        return merge_objects(new, old, is_adding=is_adding(prompt, is_code=False))
    return append_items(new, old) if is_adding(prompt, is_code=False) else new


def _find_lost_keys(new: str, old: str, prompt: str) -> list[str]:
    """Return the keys of an object that another one lacks, if the task does not ask for it."""
    lost = list_lost_keys(new, old)
    is_meant = all(is_target(key.rpartition(".")[2], prompt, is_code=False) for key in lost)
    return [] if is_meant or is_removing_parts(prompt) else lost
