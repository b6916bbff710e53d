"""The scripted model that replays a history: makes the tool calls of each commit and compares the files."""

import json
import os
import time
from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple, cast

from gitread import ABSENT, LINK, REGULAR, SUBMODULE, Change, Commit, Repository
from odin.testing import ScriptedCall, SeenRequest, Turn, reply, say
from odin.tools.read import is_plain_text
from phrasing import Call, Lines, Unsayable, created, deleted, modified
from worktree import Worktree

SESSION_COMMITS = 100
REPLY_CALLS = 40
REPLY_CHARS = 400_000
PAGE_LINES = 1900
PAGE_CHARS = 40_000
DEFAULT_WINDOW = 200_000
MOST_PARTS = 20
"""An edit that needs more parts of a file than this reads all of it, because Odin does not remember very many parts."""
LOOK_LINES = 3
"""Number of lines in a short read. For a binary file the expected result is an error."""


class Tally:
    """Counts of the calls made, the changes that calls cannot express, and the failures."""

    def __init__(self) -> None:
        self.commits = 0
        self.files = 0
        self.compared = 0
        self.anew = 0
        self.calls: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.refusals: list[str] = []
        self.differences: list[str] = []
        self.seconds = 0.0

    @property
    def good(self) -> bool:
        return not self.refusals and not self.differences

    def as_json(self) -> dict[str, Any]:
        return {
            "commits": self.commits,
            "files_changed": self.files,
            "files_compared": self.compared,
            "written_anew": self.anew,
            "calls": dict(self.calls),
            "skipped": dict(self.skipped),
            "refusals": self.refusals,
            "differences": self.differences,
            "seconds": round(self.seconds, 2),
            "commits_per_s": round(self.commits / self.seconds, 1) if self.seconds else 0,
        }


class Step(NamedTuple):
    """The calls that change one file, and those that read it first. `whole` reads are skipped if it is still known."""

    path: bytes
    calls: list[Call]
    reads: tuple[Call, ...] = ()
    whole: bool = False


class ReplayOptions(NamedTuple):
    """`whole_every` compares the whole tree every so many commits. A reply has at most `window` characters.

    `patches`: changes are said as patches where a patch can.
    """

    whole_every: int = 0
    seed: int = 0
    window: int = DEFAULT_WINDOW
    patches: bool = False


class Replay:
    """The scripted model. Before each reply it checks the results of the last one.

    It forgets what it has read when Odin has shortened the conversation, and then reads a file again before an edit.
    """

    def __init__(
        self, repository: Repository, commits: Iterator[Commit], tree: Worktree, options: ReplayOptions
    ) -> None:
        self.tally = Tally()
        self.done = False
        self.last: Commit | None = None
        self.failure: Exception | None = None
        self._repository = repository
        self._commits = commits
        self._tree = tree
        self._options = options
        self._commit: Commit | None = None
        self._expected: dict[bytes, tuple[str, str]] = {}
        self._deletions: deque[Step] = deque()
        self._steps: deque[Step] = deque()
        self._unsaid: list[Change] = []
        self._asked: dict[str, Call] = {}
        self._known: set[bytes] = set()
        self._meddled: set[bytes] = set()
        self._messages = 0
        self._session_commits = 0

    def start_from(self, commit: str) -> None:
        """Write the tree of a commit to the folder, without tool calls."""
        self._expected = self._repository.tree(commit)
        for path, (mode, blob) in self._expected.items():
            self._put(path, mode, blob)

    # --- replies ---

    def play(self, seen: SeenRequest) -> Turn:
        try:
            return self._next(seen)
        except Exception as error:  # let the session end normally; the caller raises this
            self.failure, self.done = error, True
            return say("The replay failed.")

    def new_session(self) -> None:
        self._known.clear()
        self._meddled.clear()
        self._messages = self._session_commits = 0

    def _next(self, seen: SeenRequest) -> Turn:
        if not seen.tool_names:
            return say("{}")
        self._check_results(seen)
        self._notice_compaction(seen)
        while True:
            if self._deletions:
                return self._speak(self._take_steps(self._deletions))
            self._put_unsaid()
            if self._steps:
                return self._speak(self._take_steps(self._steps))
            if self._commit is not None:
                self._compare(self._commit)
                self.last, self._commit = self._commit, None
            if self._session_commits >= SESSION_COMMITS:
                return say("That is enough for one session.")
            self._commit = next(self._commits, None)
            if self._commit is None:
                self.done = True
                return say("All commits are done.")
            self._begin(self._commit)

    def _notice_compaction(self, seen: SeenRequest) -> None:
        if len(seen.messages) < self._messages or "removed to save room" in str(seen.json):
            self._known.clear()
        self._messages = len(seen.messages)

    def _take_steps(self, steps: deque[Step]) -> list[Call]:
        """Return the calls of the next reply: at least one step, and no more than fit."""
        calls: list[Call] = []
        size = 0
        while steps:
            known = steps[0].whole and steps[0].path in self._known
            reads = () if known else steps[0].reads
            size += len(reads) * PAGE_CHARS + sum(_get_length(call) for call in steps[0].calls)
            if calls and (len(calls) + len(reads) + len(steps[0].calls) > REPLY_CALLS or size > self._options.window):
                break
            step = steps.popleft()
            calls += [*(reads or self._look_again(step.path)), *step.calls]
            if step.whole:
                self._known.add(step.path)
        return calls

    def _speak(self, calls: list[Call]) -> Turn:
        self._asked = {f"call_{len(self._asked)}_{time.monotonic_ns()}": call for call in calls}
        self.tally.calls.update(call.name for call in calls)
        return reply(
            calls=[ScriptedCall(call.name, call.args, name) for name, call in self._asked.items()], chunk=REPLY_CHARS
        )

    def _check_results(self, seen: SeenRequest) -> None:
        content = seen.messages[-1].get("content") if seen.messages else None
        for block in cast("list[dict[str, Any]]", content) if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                call = self._asked.get(block["tool_use_id"])
                glance = call is not None and call.args.get("limit") == LOOK_LINES
                if block.get("is_error") and call is not None and not glance and self._commit is not None:
                    said = json.dumps(call.args)[:600]
                    self.tally.refusals.append(f"{self._commit.name[:12]} {call.name} {said}: {block['content']}")

    # --- one commit ---

    def _begin(self, commit: Commit) -> None:
        self._session_commits += 1
        self.tally.commits += 1
        chance = Random(f"{self._options.seed}{commit.name}")
        gone: dict[bool, list[bytes]] = {False: [], True: []}
        for change in commit.changes:
            self.tally.files += 1
            try:
                if change.new_mode == ABSENT and change.old_mode != SUBMODULE:
                    self._path(change.path)
                    gone[self._options.patches and change.old_mode in REGULAR].append(change.path)
                else:
                    self._steps.append(self._phrase(change, chance))
            except Unsayable as reason:
                self.tally.skipped[str(reason)] += 1
                self._unsaid.append(change)
        for as_patch, paths in gone.items():
            for start in range(0, len(paths), REPLY_CALLS):
                self._delete(paths[start : start + REPLY_CALLS], as_patch)

    def _delete(self, paths: list[bytes], as_patch: bool) -> None:
        self._deletions.extend(Step(path, []) for path in paths if path in self._meddled)
        named = [self._path(path) for path in paths]
        call = Call("Delete", {"paths": named, "reason": "The commit removes it."})
        self._deletions.append(Step(b"", [deleted(named) if as_patch else call]))
        self._known.difference_update(paths)

    def _phrase(self, change: Change, chance: Random) -> Step:
        if SUBMODULE in (change.old_mode, change.new_mode):
            raise Unsayable("submodule")
        path = self._path(change.path)
        if LINK in (change.old_mode, change.new_mode):
            raise Unsayable("symbolic link")
        after = self._repository.blob(change.new_blob)
        if len(after) > 2 * self._options.window:
            raise Unsayable("larger than the context window")
        if change.old_mode == ABSENT:
            return Step(change.path, created(path, after, patches=self._options.patches).calls, whole=True)
        if change.old_blob == change.new_blob:
            raise Unsayable("mode only")
        before = self._repository.blob(change.old_blob)
        phrased = modified(path, before, after, chance, patches=self._options.patches)
        self.tally.anew += phrased.calls[0].name == "Delete"
        if phrased.reads is None:
            return Step(change.path, phrased.calls)
        whole = _is_small(before) and is_plain_text(path, before[:16])
        return Step(change.path, phrased.calls, tuple(self._reads(path, before, phrased.reads)), whole)

    def _look_again(self, path: bytes) -> list[Call]:
        """Read the files that this program changed itself, as a tool error would request."""
        if path not in self._meddled:
            return []
        self._meddled.discard(path)
        return [Call("Read", {"file_path": self._path(path), "limit": LOOK_LINES})]

    def _path(self, path: bytes) -> str:
        try:
            return f"{self._tree.root}/{path.decode('utf-8')}"
        except UnicodeDecodeError:
            raise Unsayable("name that is not UTF-8") from None

    def _reads(self, path: str, before: bytes, needed: list[Lines]) -> list[Call]:
        """Return the Read calls before an edit: all of a small file, parts of a large one."""
        if not is_plain_text(path, before[:16]):
            return [_raw_lines(path, first, last) for first, last in needed]
        if _is_small(before):
            return [Call("Read", {"file_path": path})]
        if len(needed) > MOST_PARTS:
            needed = [(1, before.count(b"\n") + 1)]
        calls = [
            Call("Read", {"file_path": path, "offset": start, "limit": end - start + 1})
            for first, last in needed
            for start, end in _pages(before, max(1, first - 1), last + 1 + self.tally.commits % 5)
        ]
        return list({json.dumps(call.args): call for call in calls}.values())

    # --- changes that tool calls cannot express ---

    def _put_unsaid(self) -> None:
        """Remove empty folders, as git does, and make the changes that tool calls cannot express."""
        for change in self._unsaid:
            if change.new_mode == ABSENT:
                self._put(change.path, ABSENT, "")
        for change in self._commit.changes if self._commit is not None else ():
            if change.new_mode == ABSENT:
                self._tree.remove_empty(change.path)
        for change in self._unsaid:
            self._put(change.path, change.new_mode, change.new_blob)
        self._unsaid.clear()

    def _put(self, path: bytes, mode: str, blob: str) -> None:
        self._known.discard(path)
        if self._session_commits and mode in REGULAR:
            self._meddled.add(path)
        self._tree.put(path, mode, b"" if mode in (ABSENT, SUBMODULE) else self._repository.blob(blob))

    # --- comparison ---

    def _compare(self, commit: Commit) -> None:
        for change in commit.changes:
            self._adopt(change)
            self._compare_one(commit, change.path)
        if self._options.whole_every and self.tally.commits % self._options.whole_every == 0:
            self.compare_tree(commit)

    def _adopt(self, change: Change) -> None:
        if change.new_mode == ABSENT:
            self._expected.pop(change.path, None)
            return
        self._expected[change.path] = (change.new_mode, change.new_blob)
        if change.new_mode in REGULAR and self._tree.set_executable(change.path, change.new_mode == "100755"):
            self.tally.skipped["mode"] += 1

    def _compare_one(self, commit: Commit, path: bytes) -> None:
        self.tally.compared += 1
        mode, blob = self._expected.get(path, (ABSENT, ""))
        if mode == SUBMODULE:
            return
        wanted = None if mode == ABSENT else self._repository.blob(blob)
        found = self._tree.present(path)
        if found != wanted:
            self.tally.differences.append(f"{commit.name[:12]} {os.fsdecode(path)}: {_first_difference(found, wanted)}")
            self._put(path, mode, blob)

    def compare_tree(self, commit: Commit) -> None:
        """Check that the folder has exactly the files of the commit."""
        self._expected = self._repository.tree(commit.name)
        for path in self._expected:
            self._compare_one(commit, path)
        for path in self._tree.paths():
            if path not in self._expected:
                self.tally.differences.append(f"{commit.name[:12]} {os.fsdecode(path)}: is not in the commit")
                self._tree.put(path, ABSENT, b"")


def _get_length(call: Call) -> int:
    return sum(len(str(value)) for value in call.args.values())


def _is_small(data: bytes) -> bool:
    """True if one Read shows the whole file."""
    lines = data.count(b"\n") + 1
    return lines <= PAGE_LINES and len(data) + 8 * lines <= PAGE_CHARS


def _raw_lines(path: str, first: int, last: int) -> Call:
    """Return a Grep call that shows raw lines, for files that Read shows as cells or pages."""
    count = last - first + 1
    return Call("Grep", {"pattern": "^", "path": path, "offset": first, "limit": count, "head_limit": count + 1})


def _pages(data: bytes, first: int, last: int) -> Iterator[Lines]:
    """Split the lines `first` to `last` into parts that Read shows completely."""
    lines = data.split(b"\n")
    last = min(last, len(lines) - (not lines[-1]))
    start, size = first, 0
    for number in range(first, last + 1):
        size += min(len(lines[number - 1]), 2000) + 60
        if size > PAGE_CHARS and number > start:
            yield start, number - 1
            start, size = number, 0
    if start <= last:
        yield start, last


def _first_difference(found: bytes | None, wanted: bytes | None) -> str:
    if found is None or wanted is None:
        return "is missing" if found is None else "should not exist"
    at = next((i for i, (x, y) in enumerate(zip(found, wanted, strict=False)) if x != y), min(len(found), len(wanted)))
    near = slice(max(0, at - 10), at + 20)
    return f"byte {at}: {found[near]!r} instead of {wanted[near]!r}"
