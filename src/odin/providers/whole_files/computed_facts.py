"""Computes what a prompt asks for and what files tell exactly: how many, how often, where, and what a call returns.

Small models count badly and copy well. Each fact is one short line next to the task.
"""

import ast
import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import cast

import msgspec
from msgspec import Struct

from odin.providers.whole_files.prompt_intent import PromptReading
from odin.providers.whole_files.turn_history import TurnFacts

_MAX_NAMES = 12
_MAX_PLACES = 5
_DEFINITION = re.compile(
    r"^(?:export\s+|default\s+|async\s+)*(?:function\*?|func)\s+(?P<function>[A-Za-z_$]\w*)\s*[(\[<]"
    r"|^(?:export\s+)?(?:const|let|var)\s+(?P<arrow>[A-Za-z_$]\w*)\s*=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*=>|\w+\s*=>)"
    r"|^func\s+\([^)]*\)\s*(?P<receiver>\w+)"
    r"|^(?:\t|  (?:  )?)(?:static\s+|async\s+|get\s+|set\s+)*"
    r"(?P<method>(?!(?:if|for|while|switch|catch|return)\b)[A-Za-z_$]\w*)\s*\([^)]*\)\s*\{"
    r"|^(?:export\s+|default\s+|abstract\s+)*(?:class|interface)\s+(?P<class>[A-Za-z_$]\w*)"
    r"|^type\s+(?P<struct>\w+)\s+(?:struct|interface)",
    re.MULTILINE,
)
"""Functions, methods and classes in JavaScript, TypeScript and Go."""
_TEST = re.compile(r"^\s*(?:test|it)\(\s*(['\"`])(?P<title>.+?)\1|^func (?P<go>Test\w+)", re.MULTILINE)


class Outline(Struct, frozen=True):
    """The names that a file defines. Methods are written as `Class.method` where that is known."""

    functions: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def outline_file(path: str, text: str) -> Outline:
    """Return what a file of code defines."""
    if path.endswith(".py"):
        try:
            return _outline_python(ast.parse(text))
        except (SyntaxError, ValueError):
            return Outline()
    functions: list[str] = []
    methods: list[str] = []
    classes: list[str] = []
    for match in _DEFINITION.finditer(text):
        kind, name = next((kind, name) for kind, name in match.groupdict().items() if name)
        target = {"receiver": methods, "method": methods, "class": classes, "struct": classes}.get(kind, functions)
        target.append(name)
    tests = [match["title"] or match["go"] for match in _TEST.finditer(text)]
    return Outline(tuple(functions), tuple(methods), tuple(classes), tuple(tests))


def _outline_python(tree: ast.Module) -> Outline:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    inside = {id(child): node.name for node in classes for child in node.body if isinstance(child, kinds)}
    found = sorted((node for node in ast.walk(tree) if isinstance(node, kinds)), key=lambda node: node.lineno)
    methods = [f"{inside[id(node)]}.{node.name}" for node in found if id(node) in inside]
    tests = [node.name for node in found if node.name.startswith("test")]
    functions = [node.name for node in found if id(node) not in inside]
    return Outline(tuple(functions), tuple(methods), tuple(node.name for node in classes), tuple(tests))


# --- where ---


def describe_places(reading: PromptReading, facts: TurnFacts) -> list[str]:
    """Return where the names of a prompt that asks for a place are defined."""
    if not reading.locates:
        return []
    lines: list[str] = []
    for word, places in facts.lookup.definitions.items():
        shown = [f"{path}, line {line}" for path, _, line in (place.rpartition(":") for place in places[:_MAX_PLACES])]
        lines.append(f"{word} is defined in {' and in '.join(shown)}.")
    return lines


# --- how many ---

_COUNTED = re.compile(
    r"\b(?:how many|number of|count(?:\s+all)?(?:\s+(?:the|how many))?)\s+((?:[\w-]+\s+){0,2}[\w-]+)(?=\W|$)",
    re.IGNORECASE,
)
_NOUNS: Mapping[str, str] = {
    "line": "lines",
    "word": "words",
    "character": "characters",
    "letter": "characters",
    "function": "functions",
    "method": "methods",
    "class": "classes",
    "test": "tests",
    "file": "files",
    "row": "rows",
    "record": "rows",
    "import": "imports",
}


_INSIDE = re.compile(r"\b(?:in|under|inside|within|of)\s+(?:the\s+)?([\w@+./-]*[\w/])", re.IGNORECASE)


def describe_counts(reading: PromptReading, facts: TurnFacts) -> list[str]:
    """Return the numbers that a prompt asks for, in the files that it means."""
    if not reading.counts:
        return []
    named = find_scope(reading, facts)
    scope = named or list(facts.sizes)
    texts = {path: facts.files[path] for path in scope if path in facts.files}
    terms = [term for term in reading.terms if term in facts.hits]
    nouns = [noun for noun in _find_nouns(reading.text) if not terms or noun not in ("files", "lines", "imports")]
    lines = [line for term in terms for line in _describe_occurrences(term, facts, named, texts)]
    if not named and not facts.complete:
        lines += [f"There are {facts.file_count} files."] if "files" in nouns else []
    else:
        lines += [line for noun in nouns for line in _describe_noun(noun, scope, texts, facts)]
    if not nouns and not terms:
        lines += [line for path, text in texts.items() for line in _describe_items(path, text)]
    return list(dict.fromkeys(lines))


def find_scope(reading: PromptReading, facts: TurnFacts) -> list[str]:
    """Return the files that a prompt names, itself or by their folder; none if it means the whole project."""
    project = facts.project
    named = [found for path in reading.paths if (found := project.resolve(path))]
    folders = [*reading.paths, *(match[1] for match in _INSIDE.finditer(reading.text))]
    named += [file for path in folders for file in project.list_under(path)]
    return list(dict.fromkeys(named))


def _find_nouns(text: str) -> list[str]:
    """Return what a prompt counts: the first known noun after each `how many`."""
    phrases = [match[1].casefold().split() for match in _COUNTED.finditer(text)]
    singular = re.compile(r"(?<=ss)es$|(?<!s)s$")
    found = [[_NOUNS[noun] for word in phrase if (noun := singular.sub("", word)) in _NOUNS] for phrase in phrases]
    return list(dict.fromkeys(nouns[0] for nouns in found if nouns))


def _describe_noun(noun: str, scope: list[str], texts: Mapping[str, str], facts: TurnFacts) -> list[str]:
    if noun == "files":
        return _describe_files(scope)
    if noun == "lines":
        return _sum_up("lines", {path: facts.sizes[path] for path in scope})
    if any(path not in texts for path in scope if path.endswith(_COUNTABLE)):
        return []  # a number that leaves out files is wrong
    if noun in ("functions", "methods", "classes", "tests"):
        return _describe_definitions(noun, texts)
    if noun == "rows":
        return [line for path, text in texts.items() for line in _describe_items(path, text)]
    count = _COUNTERS[noun]
    return _sum_up(noun, {path: count(text) for path, text in texts.items()})


_DEFINES = re.compile(r"\s*(?:async |export )*(?:def|function|func|class)\b")
_COUNTABLE = (".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".txt", ".md", ".csv", ".tsv")
_IMPORT = re.compile(r"\s*(?:import|from|#include|use|export\s.*\sfrom)\b|.*\brequire\(")
_COUNTERS: Mapping[str, Callable[[str], int]] = {
    "words": lambda text: len(text.split()),
    "characters": len,
    "imports": lambda text: sum(_IMPORT.match(line) is not None for line in text.splitlines()),
}


def _sum_up(noun: str, counts: Mapping[str, int]) -> list[str]:
    lines = [f"{path} has {_count(number, noun)}." for path, number in counts.items()]
    if len(lines) > 2 * _MAX_NAMES:
        lines = []
    return [*lines, f"Together {_count(sum(counts.values()), noun)}."] if len(counts) > 1 else lines


def _count(number: int, plural: str) -> str:
    singular = {"classes": "class"}.get(plural, plural.removesuffix("s"))
    return f"{number} {singular if number == 1 else plural}"


def _describe_files(scope: list[str]) -> list[str]:
    endings: dict[str, int] = {}
    for path in scope:
        name = path.rpartition("/")[2]
        ending = f".{name.rpartition('.')[2]}" if "." in name[1:] else "no ending"
        endings[ending] = endings.get(ending, 0) + 1
    by_ending = ", ".join(f"{number} with {ending}" for ending, number in sorted(endings.items()))
    return [f"There are {_count(len(scope), 'files')}: {by_ending}."]


def _describe_definitions(noun: str, texts: Mapping[str, str]) -> list[str]:
    outlines = {path: outline_file(path, text) for path, text in texts.items()}
    lines: list[str] = []
    total = 0
    for path, outline in outlines.items():
        names: tuple[str, ...] = getattr(outline, noun)
        total += len(names)
        if names:
            lines.append(f"{path} has {_count(len(names), noun)} ({_name(names)}){_describe_methods(noun, outline)}.")
    if not lines:
        return [f"There are no {noun} in {', '.join(texts)}."] if texts else []
    return [*lines, f"Together {_count(total, noun)}."] if len(lines) > 1 else lines


def _describe_methods(noun: str, outline: Outline) -> str:
    if noun == "functions" and outline.methods:
        return f" and {_count(len(outline.methods), 'methods')} ({_name(outline.methods)})"
    owners = [name.partition(".")[0] for name in outline.methods if "." in name] if noun == "methods" else []
    each = [f"{owner} {owners.count(owner)}" for owner in dict.fromkeys(owners)]
    return f": {', '.join(each)}" if len(each) > 1 else ""


def _name(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:_MAX_NAMES]) + (", …" if len(known) > _MAX_NAMES else "")


def _describe_items(path: str, text: str) -> list[str]:
    """Return how many items a data file has."""
    if path.endswith(".json"):
        return _describe_json(path, text)
    if path.endswith((".csv", ".tsv")):
        rows = _read_rows(path, text)
        return [f"{path} has {_count(max(0, len(rows) - 1), 'rows')} below the header ({_count(len(rows), 'lines')})."]
    if path.endswith((".txt", ".md", ".log")):
        filled = sum(bool(line.strip()) for line in text.splitlines())
        return [f"{path} has {_count(filled, 'lines')} that are not blank."]
    return []


def _describe_json(path: str, text: str) -> list[str]:
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    if not isinstance(value, dict):
        is_list = isinstance(value, list)
        return [f"{path} is a list of {_count(_size_of(cast('object', value)), 'items')}."] if is_list else []
    entries = cast("dict[str, object]", value)
    inner = [f"{key} has {_count(_size_of(one), 'items')}" for key, one in entries.items() if _size_of(one)]
    return [f"{path} has {_count(len(entries), 'keys')}" + (f"; {', '.join(inner[:_MAX_NAMES])}." if inner else ".")]


def _size_of(value: object) -> int:
    return len(cast("Sized", value)) if isinstance(value, list | dict) else 0


# --- numbers ---

_ASKS_NUMBERS = re.compile(
    r"\b(?:sum|total|average|mean|median|max\w*|min\w*|largest|smallest|highest|lowest|biggest|greatest)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def describe_numbers(reading: PromptReading, facts: TurnFacts) -> list[str]:
    """Return the sum and the extremes of the numbers in each data file that a question names."""
    if not reading.is_question or not _ASKS_NUMBERS.search(reading.text):
        return []
    named = [found for path in reading.paths if (found := facts.project.resolve(path))]
    texts = {path: facts.files[path] for path in named if path in facts.files}
    return [line for path, text in texts.items() for line in _describe_columns(path, text)]


def _describe_columns(path: str, text: str) -> list[str]:
    if path.endswith((".csv", ".tsv")):
        head, *rows = _read_rows(path, text) or [[]]
        columns = {name.strip(): [row[at].strip() for row in rows if at < len(row)] for at, name in enumerate(head)}
    elif path.endswith((".txt", ".dat", ".log")):
        columns = {"": text.split()}
    else:
        return []
    numbers = {name: [float(one) for one in column] for name, column in columns.items() if _is_numeric(column)}
    return [f"{path}{f', column {name}' if name else ''}: {_sum_numbers(column)}" for name, column in numbers.items()]


def _read_rows(path: str, text: str) -> list[list[str]]:
    separator = "\t" if path.endswith(".tsv") else ","
    return [row for row in csv.reader(io.StringIO(text), delimiter=separator) if any(row)]


def _is_numeric(column: list[str]) -> bool:
    return bool(column) and all(_NUMBER.fullmatch(one) for one in column)


def _sum_numbers(numbers: list[float]) -> str:
    total, mean = sum(numbers), sum(numbers) / len(numbers)
    shown = [f"{number:.10g}" for number in (total, mean, min(numbers), max(numbers))]
    return "{} numbers, sum {}, average {}, smallest {}, largest {}.".format(len(numbers), *shown)


def _describe_occurrences(term: str, facts: TurnFacts, named: list[str], texts: Mapping[str, str]) -> list[str]:
    """Return how often a word occurs: by the files if all of them were read, else by the lines that were found."""
    if facts.hit_counts.get(term, 0) > len(facts.hits[term]):  # too many to list them
        return [] if named else [f"{term} occurs in {_count(facts.hit_counts[term], 'lines')}."]
    word = re.compile(rf"(?<!\w){re.escape(term)}(?!\w)")
    found = [line for line in facts.list_hits(term) if not named or line.path in named]
    exact = dict.fromkeys(dict.fromkeys(line.path for line in found), 0)
    for line in found:
        exact[line.path] += len(word.findall(line.text))
    total = sum(exact.values())
    files = [path for path, number in exact.items() if number]
    lines = sum(bool(word.search(line.text)) for line in found)
    where = f" in {files[0]}" if len(files) == 1 else f" in {len(files)} files ({_name(files)})" if files else ""
    facts_found = [f"{term} occurs {_count(total, 'times')}{where}, in {_count(lines, 'lines')}."]
    loose = sum(len(re.findall(word.pattern, text, re.IGNORECASE)) for text in texts.values())
    if loose > total:
        facts_found.append(f"With any case, {term} occurs {_count(loose, 'times')}.")
    if re.search(r"\bcall(?:s|ed)?\b", facts.prompt):
        call = re.compile(rf"(?<!\w){re.escape(term)}\s*\(")
        uses = (
            line.text
            for line in found
            if not re.match(r"\s*(?:async |export )*(?:def|function|func|class)\b", line.text)
        )
        facts_found.append(f"{term} is called {_count(sum(len(call.findall(text)) for text in uses), 'times')}.")
    importing = dict.fromkeys(line.path for line in found if _IMPORT.match(line.text) and word.search(line.text))
    if importing and "import" in facts.prompt:
        facts_found.append(f"{term} is imported in {_count(len(importing), 'files')} ({_name(importing)}).")
    return facts_found
