"""What Odin looks at by itself: files that matter for a prompt, outputs of commands, and what a change has left out."""

import re
from collections.abc import Iterable
from typing import Any

from odin.core.path_names import quote_path
from odin.providers.whole_files.asked_call import AskedCall, find_call
from odin.providers.whole_files.program_source import may_be_pure
from odin.providers.whole_files.project_tests import find_doctest_command, find_test_command, is_test
from odin.providers.whole_files.prompt_intent import PromptReading
from odin.providers.whole_files.reply_judgement import Calls
from odin.providers.whole_files.task_context import build_lookup, choose_files, count_budget_lines
from odin.providers.whole_files.turn_history import EVERY_LINE, TurnFacts

MAX_LOOKUPS = 200
CODE_ENDINGS = (".py", ".js", ".mjs", ".cjs", ".ts", ".go", ".rs", ".java", ".c", ".cpp", ".rb", ".json", ".toml")
_MAX_UNCOUNTED = 8
_PROGRAMS = {
    "main.py": "python3 main.py",
    "index.js": "node index.js",
    "main.go": "go run .",
    "main.sh": "bash main.sh",
}
_RUNNERS = {"py": "python3", "js": "node", "sh": "bash"}
_PRINTS = re.compile(r"\bprint(?:s|ing)?\b", re.IGNORECASE)
_BASELINE_MS = 30_000
_MAX_BASELINE_LINES = 4_000
"""Lines of a project whose tests run before a change, too: those of a larger one may take minutes."""


class ProjectSurvey:
    """Chooses the calls that look. `facts` grows with their results; `context` is the model's context window."""

    def __init__(
        self, reading: PromptReading, facts: TurnFacts, context: int, *, can_edit: bool, can_run: bool
    ) -> None:
        self.reading = reading
        self.facts = facts
        self.can_edit = can_edit
        self.can_run = can_run
        self._context = context

    def look_around(self) -> Calls:
        """List the files, their sizes, and where the names of the prompt occur and are defined."""
        limit = self._context // 400 or 30
        lookup = build_lookup(self.facts.words, with_values=self.reading.is_question)
        return (
            ("LS", {"path": "."}),
            self._count_lines(),
            *(("Grep", {"pattern": term, "literal_text": True, "head_limit": limit}) for term in self.reading.terms),
            ("Grep", {"pattern": lookup, "head_limit": MAX_LOOKUPS}),
        )

    def _count_lines(self) -> tuple[str, dict[str, Any]]:
        return "Grep", {"pattern": EVERY_LINE, "output_mode": "count", "head_limit": self._context // 130 or 100}

    def gather(self) -> Calls:
        """Look closer at what the survey has found, read the files that matter, then run what the prompt is about."""
        return self._look_closer() or self.read(self._choose_unread()) or self._list_first_commands()

    def _look_closer(self) -> Calls:
        """List the folders of named files that no search has found; find the uses of names that are ordinary words."""
        facts = self.facts
        folders = dict.fromkeys(
            path.rpartition("/")[0] for path in self.reading.paths if not facts.project.resolve(path)
        )
        listed = [folder for folder in folders if folder and folder not in facts.listed and facts.has_folder(folder)]
        needs_uses = self.reading.locates or self.reading.counts
        words = [word for word in facts.lookup.definitions if needs_uses and word not in facts.hits]
        return (
            *(("LS", {"path": folder}) for folder in listed),
            *(("Grep", {"pattern": rf"\b{word}\b", "head_limit": MAX_LOOKUPS}) for word in words),
            *(("Grep", {"pattern": EVERY_LINE, "output_mode": "count", **where}) for where in self._list_uncounted()),
        )

    def _list_uncounted(self) -> list[dict[str, str]]:
        """Return where to count lines in a project with too many files to list: in those that the prompt leads to."""
        facts = self.facts
        if facts.complete:
            return []
        names = [path for path in self.reading.paths if "/" not in path and not facts.project.resolve(path)]
        hits = [path for paths in facts.find_hit_files().values() for path in paths if path not in facts.sizes]
        wanted = [{"glob": name} for name in names] + [{"path": path} for path in dict.fromkeys(hits)][:_MAX_UNCOUNTED]
        return [one for one in wanted if not facts.narrowed.intersection(one.values())]

    def _choose_unread(self) -> tuple[str, ...]:
        if self.facts.tried:
            return ()
        facts, budget = self.facts, count_budget_lines(self._context)
        return choose_files(self.reading, facts.project, facts.find_hit_files(), budget, facts.lookup)

    def read(self, paths: Iterable[str]) -> Calls:
        limit = {"limit": 2 * count_budget_lines(self._context)}
        return tuple(("Read", {"file_path": path, **({} if self._fits(path) else limit)}) for path in paths)

    def _fits(self, path: str) -> bool:
        return 0 < self.facts.sizes.get(path, 0) <= 2 * count_budget_lines(self._context)

    def look_again(self) -> Calls:
        """Survey the project again after a command, which may have changed it."""
        if not self.can_edit:
            return ()
        return (("LS", {"path": "."}), self._count_lines(), *self.read(self.facts.files))

    def _list_first_commands(self) -> Calls:
        """Return what runs before the model is asked: what the prompt is about, and tests that may fail already."""
        if not self.can_run or self.facts.refused:
            return ()
        needs_tests = self.reading.runs_tests or self._needs_baseline()
        asked = self.find_asked_call(self.facts)
        own = self.find_command() or (asked.command if asked else "")
        wanted = (own, *((self.find_tests(), self._find_doctests()) if needs_tests else ()))
        new = [one for one in dict.fromkeys(wanted) if one and one not in self.facts.commands]
        limit = {} if self.reading.runs_tests else {"timeout": _BASELINE_MS}
        return tuple(("ExecuteCommand", {"command": one, **({} if one == own else limit)}) for one in new)

    def _needs_baseline(self) -> bool:
        """True if code of a small project may be changed: its tests tell afterwards whether the change broke them."""
        named = [path for path in self.reading.paths if "." in path]
        is_code = not named or any(path.endswith(CODE_ENDINGS) for path in named)
        is_small = self.facts.complete and sum(self.facts.sizes.values()) <= _MAX_BASELINE_LINES
        return is_code and is_small and self.can_edit and not self.reading.asks_only

    def find_command(self) -> str:
        """Return the command that the prompt is about; for `the program` the only one that the project can mean."""
        if self.reading.command or not self.reading.runs_program:
            return self.reading.command
        paths = self.facts.sizes
        found = [command for path, command in _PROGRAMS.items() if path in paths]
        scripts = [path for path in paths if re.fullmatch(r"[\w-]+\.(?:py|js|sh)", path) and not is_test(path)]
        if not found and len(scripts) == 1:
            found = [f"{_RUNNERS[scripts[0].rpartition('.')[2]]} {quote_path(scripts[0])}"]
        return found[0] if len(found) == 1 else ""

    def _find_new_script(self) -> str:
        """Return the command that runs the script that the prompt wants and that now exists, unless it seems to act."""
        made = [path for path in self.facts.created if path in self.reading.paths and path.endswith((".py", ".js"))]
        if len(made) != 1 or not _PRINTS.search(self.reading.text) or is_test(made[0]):
            return ""
        takes_arguments = re.search(r"\bargument|\bargv\b|\bcommand line\b|\bflag|--\w", self.reading.text) is not None
        if takes_arguments or not may_be_pure(made[0], self.facts.files, is_script=True):
            return ""
        return f"{_RUNNERS[made[0].rpartition('.')[2]]} {quote_path(made[0])}"

    def find_asked_call(self, facts: TurnFacts) -> AskedCall | None:
        """Return the call whose result a question asks for."""
        asks = self.reading.is_question and self.can_run
        return find_call(self.reading.text, facts.lookup.definitions, facts.files) if asks else None

    def find_tests(self) -> str:
        return find_test_command(self.facts.sizes, self.facts.test_texts, self.facts.unavailable)

    def _find_doctests(self) -> str:
        """Return the check of the examples in the files that the prompt names or defines something in."""
        facts = self.facts
        named = [facts.project.resolve(path) for path in self.reading.paths]
        defining = [path for paths in facts.lookup.find_defining_files().values() for path in paths]
        return find_doctest_command({path: facts.files[path] for path in (*named, *defining) if path in facts.files})

    def list_checks(self) -> list[str]:
        """Return the commands that show whether a change works: the one that the prompt is about, and the tests."""
        if not self.can_run:
            return []
        tests = self.find_tests()
        own = self.reading.command if self.reading.checks_with_command else self._find_new_script()
        is_needed = own in self.facts.failed_commands or own in self.facts.unavailable or not tests
        wanted = dict.fromkeys((own if is_needed else "", tests, self._find_doctests()))
        return [command for command in wanted if command and command not in self.facts.refused]


# --- what a change has left out ---

_SET_VALUE = re.compile(
    r"\b(?:set|change|bump|update|raise|lower|increase|decrease|reduce)\b(?:[^.\n]|\.(?=\w)){0,120}?\bto\s+[`\"']?(\d+(?:[._]\d+)*)(?!\w)",
    re.IGNORECASE,
)
"""`set limit to 750`, `bump the version to 1.1.0`: the number is in the file afterwards."""
_EXTRACTED = re.compile(
    r"\b(?:extract|pull|factor|move|turn|make)\b(?:[^.\n]|\.(?=\w)){0,120}?\b(?:constant|variable)\s+(?:called\s+|named\s+)?[`\"']?([A-Za-z_]\w*)",
    re.IGNORECASE,
)
"""`extract 0.035 into a constant BASE_RATE`: the name is used afterwards."""
_MODULE = (
    r"`?(?:node:\w+|argparse|unittest|pytest|dataclass(?:es)?|asyncio|pathlib|logging|functools|itertools"
    r"|collections)`?"
)
_WITH_MODULES = re.compile(
    rf"\b(?:with|using|use|uses)\s+(?:the\s+)?({_MODULE}(?:(?:,|\s+and)\s+{_MODULE})*)", re.IGNORECASE
)
"""`with node:test and node:assert`: the changed files use them."""


def describe_missing_value(prompt: str, facts: TurnFacts) -> str:
    """Return which number of the prompt is in none of the files that were changed, or ""."""
    found = _SET_VALUE.search(prompt)
    texts = [facts.files.get(path, "").replace("_", "") for path in (*facts.changed, *facts.created)]
    if found is None or not texts or any(found[1].replace("_", "") in text for text in texts):
        return ""
    return f"{found[1]} is not in {', '.join(dict.fromkeys((*facts.changed, *facts.created)))}."


def describe_unused_name(prompt: str, facts: TurnFacts) -> str:
    """Return that a constant which the prompt wants extracted is defined but used nowhere, or ""."""
    found = _EXTRACTED.search(prompt)
    if found is None:
        return ""
    uses = [path for path, text in facts.files.items() for _ in re.finditer(rf"\b{found[1]}\b", text)]
    if len(uses) != 1 or uses[0] not in (*facts.changed, *facts.created):
        return ""
    return f"{found[1]} is defined, but nothing uses it. Write it where its value is used in {uses[0]}."


def describe_missing_module(prompt: str, facts: TurnFacts) -> str:
    """Return which modules the prompt wants to be used are in none of the files that were changed, or ""."""
    found = _WITH_MODULES.search(prompt)
    paths = [path for path in dict.fromkeys((*facts.changed, *facts.created)) if path in facts.files]
    if found is None or not paths:
        return ""
    text = "\n".join(facts.files[path] for path in paths)
    missing = [name for name in re.findall(_MODULE, found[1]) if name.strip("`") not in text]
    if "node:test" in missing:
        start = 'const test = require("node:test"); const assert = require("node:assert");'
        return f"{', '.join(paths)} must start with {start} It compares with assert.strictEqual(actual, expected)."
    return f"{' and '.join(missing)} must be used in {', '.join(paths)}." if missing else ""
