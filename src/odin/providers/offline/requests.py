"""The requests that the offline planner carries out: a table, and the parser of a prompt.

A request matches a pattern as a whole or not at all: nothing is inferred. In a pattern, `{name}` stands for one word or
one quoted text, `{name:quoted}` for a quoted text, `{name:file}` for a word that can only be a path, `{name:seen}` for
that or "it", and the rest is a regular expression without regard to case. Quoted text is set aside first, so that
nothing inside a quote is parsed.

The examples are the documentation: docs/offline.md and the answer to "What can you do?" are made of them, and the tests
run each of them.
"""

import re
from collections.abc import Callable
from functools import cache

from msgspec import Struct

from odin.providers.offline import plans
from odin.providers.offline.plan import Plan, PlanContext, RequestMatch


class KnownRequest(Struct, frozen=True):
    """What is asked for, how it may be phrased, and the plan that does it."""

    name: str
    examples: tuple[str, ...]
    patterns: tuple[str, ...]
    plan: Callable[[RequestMatch, PlanContext], Plan]


CONNECT = (
    "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, run `odin auth add`, or start a local server and see "
    "`odin models`"
)


def plan_help(match: RequestMatch, context: PlanContext) -> Plan:
    yield from ()
    listed = "\n".join(f"- {request.examples[0]}" for request in REQUESTS)
    return (
        f"No model is connected, so Odin carries out simple requests word for word. Examples:\n\n{listed}\n\n"
        f"For anything else connect a model: {CONNECT}."
    )


_HERE = "(everywhere|here|in (the|this) (project|repo|repository|folder|directory|code|codebase))"
_PLACE = rf"( (?P<everywhere>{_HERE})| (in|under) (the )?(file |folder )?{{path}}( file| folder| directory)?)?"
_SHOW = "(show|print|give)( me)?"
_FILE = "(the )?(file )?{path:file}"
_SEEN_FILE = "(the )?(file )?{path:seen}"
# Programs whose name is no English word, so that what follows is a command. Others go in quotes.
_PROGRAMS = (
    "cargo|cat|curl|docker|echo|git|grep|ls|mypy|node|npm|npx|pip|pnpm|pwd|pyright|pytest|python3?|ruff|tox|uv|wc|yarn"
)

REQUESTS = (
    KnownRequest(
        "search for a text",
        ("Search for TODO in src", "Search for 'def main'", "Search for TODO in *.py", "grep TODO"),
        (
            f"(search for|search|look for|grep) (the (text|word|string) )?{{term}}{_PLACE}",
            "(find|look for) {term:quoted} in {path}",
        ),
        plans.plan_search,
    ),
    KnownRequest(
        "search for a pattern",
        ("Search for the regex 'fo+' in src",),
        (f"(search for|find) the (regex|regexp|pattern|regular expression) {{term:quoted}}{_PLACE}",),
        plans.plan_pattern_search,
    ),
    KnownRequest(
        "find a definition",
        ("Where is parse_config defined?", "Find the definition of parse_config"),
        (
            f"where is (the (function|class|method) )?{{term}} (defined|declared){_PLACE}",
            f"(find|show( me)?) the definition of {{term}}{_PLACE}",
        ),
        plans.plan_definition_search,
    ),
    KnownRequest(
        "find files with a text",
        ("Which files mention TODO?", "Which files contain 'import os' in src?"),
        (f"(which|what) files (mention|contain|use) {{term}}{_PLACE}",),
        plans.plan_file_search,
    ),
    KnownRequest(
        "count lines with a text",
        ("Count the lines with TODO in src", "Count lines with 'import os'"),
        (f"count (the )?lines (with|containing) {{term}}{_PLACE}",),
        plans.plan_count,
    ),
    KnownRequest(
        "find files by name",
        ("Find files named *.py", "Find *.md in docs"),
        (
            r"(find|list|show)( all)?( the)? files? (named|called|matching) {name}( (in|under) {path})?",
            r"(find|locate) {name:file}( (in|under) {path})?",
        ),
        plans.plan_find,
    ),
    KnownRequest(
        "list a folder",
        ("List files", "List files in src", "ls src"),
        (
            rf"(list|show)( me)?( all)?( the)? files( {_HERE}| (in|of|under) (the )?{{path}}( folder| directory)?)?",
            r"(list|show)( me)? (the )?{path} (folder|directory)",
            r"(ls|list)( {path:file})?",
            r"ls {path}",
        ),
        plans.plan_list,
    ),
    KnownRequest(
        "read a file",
        ("Read README.md", "Show src/app.py", "Read it"),
        (f"(read|cat|open|{_SHOW}) {_SEEN_FILE}", "(read|cat) (the file )?{path}"),
        plans.plan_read,
    ),
    KnownRequest(
        "read some lines",
        ("Read lines 1-2 of src/app.py", "Show line 3 of README.md"),
        (rf"(read|{_SHOW}) lines? (?P<first>\d{{1,7}})(\s*(-|to)\s*(?P<last>\d{{1,7}}))? (of|in) {_SEEN_FILE}",),
        plans.plan_read,
    ),
    KnownRequest(
        "outline a file",
        ("Outline src/app.py", "Show the outline of README.md", "List the functions in src/app.py"),
        (
            rf"outline {_SEEN_FILE}",
            rf"{_SHOW} (the|an) outline of {_SEEN_FILE}",
            rf"(list|{_SHOW}) the (functions|classes|headings) (in|of) {_SEEN_FILE}",
        ),
        plans.plan_outline,
    ),
    KnownRequest(
        "replace a text",
        (
            "Replace TODO with FIXME in src/app.py",
            "Replace 'a b' with 'c' everywhere",
            "Search for FIXME in src, then replace it with TODO",
        ),
        (f"replace (all )?{{term}} (with|by) {{new}}{_PLACE}",),
        plans.plan_replace,
    ),
    KnownRequest(
        "create an empty file",
        ("Create an empty file notes.txt", "Create a file todo.txt", "touch empty.txt"),
        (r"(create|make|add) (a|an|the)( new)?( empty)? file( called| named)? {path}", r"touch {path:file}"),
        plans.plan_create,
    ),
    KnownRequest(
        "create a file with a text",
        ("Create a file hello.txt with 'hello'", "Write 'hello' to greeting.txt"),
        (
            r"(create|make|write) ((a|the)( new)? file( called| named)? )?{path} "
            r"(with|containing)( the)?( content| text)?:? {content:quoted}",
            r"(write|save) {content:quoted} (to|in|into|as) {path}",
        ),
        plans.plan_create,
    ),
    KnownRequest(
        "overwrite a file",
        ("Overwrite README.md with 'new'",),
        (rf"overwrite {_FILE} with:? {{content:quoted}}",),
        plans.plan_overwrite,
    ),
    KnownRequest(
        "add to a file",
        ("Append 'the end' to README.md", "Add the line 'x' to notes.txt"),
        (rf"(append|add) (the (line|text) )?{{content:quoted}} to (the end of )?{_FILE}",),
        plans.plan_append,
    ),
    KnownRequest(
        "delete a file",
        ("Delete old.txt", "Delete the file Makefile"),
        (r"(delete|remove) (the file )?{path:file}", r"(delete|remove) the file {path}"),
        plans.plan_delete,
    ),
    KnownRequest(
        "run a command",
        ("Run `echo hi`", "Run echo hi", "Run make build"),
        (
            r"(run|execute) (the command )?{command:quoted}",
            rf"(run|execute) (?P<typed>({_PROGRAMS})( (?!.*(, | (and|then|so|to tell) )).+)?|make( [\w-]+)?)",
        ),
        plans.plan_command,
    ),
    KnownRequest(
        "run the tests",
        ("Run the tests", "Run the tests in tests/test_app.py", "Do the tests pass?"),
        (r"run (all )?(the |my |our )?(unit )?tests( (in|of) {path:file})?", r"do (all )?the tests pass"),
        plans.plan_tests,
    ),
    KnownRequest(
        "see what changed in git",
        ("git status", "What changed?", "Show the changed files"),
        (r"git status", r"what (has )?changed( since the last commit)?", rf"{_SHOW} the changed files"),
        plans.plan_git_status,
    ),
    KnownRequest(
        "see the changes in git",
        ("git diff", "Show the diff of README.md", "What changed in README.md?"),
        (r"git diff", rf"{_SHOW} the diff( (of|in) {_FILE})?", rf"what (has )?changed in {_FILE}"),
        plans.plan_git_diff,
    ),
    KnownRequest(
        "see the commits",
        ("git log", "Show the last 5 commits", "Show the commits of README.md"),
        (
            r"git log",
            rf"{_SHOW} the (last |latest )?((?P<number>\d{{1,3}}) )?commits( (of|to) {_FILE})?",
            rf"{_SHOW} the git log",
        ),
        plans.plan_git_log,
    ),
    KnownRequest(
        "see the branch",
        ("Which branch am I on?", "Show the current branch"),
        (r"(which|what) branch (am i|are we|is this)( on)?", f"{_SHOW} the current branch"),
        plans.plan_git_branch,
    ),
    KnownRequest(
        "see who changed a file",
        ("Who changed README.md last?",),
        (rf"who (last )?changed {_FILE}( last)?",),
        plans.plan_git_author,
    ),
    KnownRequest(
        "describe the project",
        ("Describe this project", "What is this project?"),
        (
            r"(describe|summarize|explain) (this|the) (project|repo|repository)",
            r"what is this (project|repo|repository)",
        ),
        plans.plan_description,
    ),
    KnownRequest(
        "write ODIN.md",
        ("Create ODIN.md", "init"),
        (r"/?init(ialize)?( (this|the) project)?", r"(create|write|update)( the)? odin\.md"),
        plans.plan_init,
    ),
    KnownRequest(
        "undo a change",
        ("Undo that",),
        (r"(undo|revert)( (it|that|the last change))?",),
        plans.plan_undo,
    ),
    KnownRequest(
        "help",
        ("What can you do?", "help", "Hello"),
        (r"what can (you|i) (do|ask)", r"help", r"(hi|hello|hey)( there| odin)?"),
        plan_help,
    ),
)

_QUOTE = re.compile(
    r"```[\w.+-]*\n(?P<fence>.*?)```"
    r'|`(?P<code>[^`\n]+)`|"(?P<double>[^"\n]*)"|“(?P<curly>[^”\n]*)”'
    r"|(?<!\w)'(?P<single>(?:[^'\n]|(?<=\w)'(?=\w))*)'(?!\w)",
    re.DOTALL,
)
_QUOTED = "\ue000\\d+\ue001"
_THEN = re.compile(r"(?:\s*[,;.]\s*(?:and\s+)?|\s+(?:and\s+)?)then,?\s+", re.IGNORECASE)
_POLITE_START = re.compile(r"^(?:(?:please|now|can you|could you|would you|will you)[,:]?\s+)+", re.IGNORECASE)
_POLITE_END = re.compile(r"(?:,?\s+(?:please|for me|thanks|thank you))*(?<=[\w)\]}/*\ue001])[.!?]*$", re.IGNORECASE)
MAX_PROMPT = 20_000
"""A longer prompt is no simple request."""


def parse_prompt(prompt: str) -> list[tuple[KnownRequest, RequestMatch]]:
    """Return the requests of a prompt, which are joined by "then". [] if one of them is not in the table."""
    if len(prompt) > MAX_PROMPT:
        return []
    quoted: list[tuple[str, str]] = []

    def set_aside(found: "re.Match[str]") -> str:
        quoted.append((next(text for text in found.groups() if text is not None), found[0]))
        return f"\ue000{len(quoted) - 1}\ue001"

    text = _QUOTE.sub(set_aside, re.sub("[\ue000\ue001]", "", prompt))
    parsed = [_match_request(clause, tuple(quoted)) for clause in _THEN.split(text.strip())]
    return [request for request in parsed if request] if all(parsed) else []


def _match_request(clause: str, quoted: tuple[tuple[str, str], ...]) -> tuple[KnownRequest, RequestMatch] | None:
    text = _POLITE_END.sub("", _POLITE_START.sub("", clause.strip(), count=1), count=1)
    for request in REQUESTS:
        for pattern in request.patterns:
            found = compile_pattern(pattern).fullmatch(text)
            if found:
                fields = {name: value for name, value in found.groupdict().items() if value}
                return request, RequestMatch(fields, quoted)
    return None


_WORD = r"[^\s,;\ue000]"
_PATH = rf"{_QUOTED}|{_WORD}*[./*]{_WORD}*|(?:make|docker|just|gem|rake)file|readme|license"
_KINDS = {
    "": f"(?:{_QUOTED}|{_WORD}+)",
    ":quoted": _QUOTED,
    ":file": f"(?:{_PATH})",
    ":seen": f"(?:{_PATH}|it|(?:that|this) file)",
}


@cache
def compile_pattern(pattern: str) -> "re.Pattern[str]":
    filled = re.sub(r"\{(\w+)(:\w+)?\}", lambda field: f"(?P<{field[1]}>{_KINDS[field[2] or '']})", pattern)
    return re.compile(filled.replace(" ", r"\s+"), re.IGNORECASE)
