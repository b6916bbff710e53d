"""The naming rules: modules are nouns, functions are verb phrases, class names are unique; and the limits of size."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.sources import PACKAGE, list_modules, parse
from tests.table import each

# ruff: noqa: SIM905  (word lists are easier to read as text)

ROOT = Path(__file__).parent.parent

VERBS = frozenset(
    """
abandon abort accept acquire act activate add adjust admit advance advise align allow analyze announce
answer append apply archive arm ask assemble assert assign attach audit authorize await back begin bind block
blur bound branch break bring build bump bundle cache calculate calibrate call cancel capture carry catch
change charge check choose claim clamp classify clean clear clip clone close coerce collapse collect
combine commit compact compare compile complete compose compress compute concatenate condense configure confine
confirm connect consume contain continue control convert copy correct count cover crash create crop cut debounce decide
declare decode decompress decorate dedent deduplicate defer define delay delegate delete deliver deny derive describe
deserialize detach detect dial diff disable discard disconnect discover dismiss dispatch display divide do
download drain draw drop dump edit elide embed emit emulate enable encode end enforce enlarge ensure enter
enumerate erase escape estimate evaluate evict examine exclude execute exit expand expect expire explain export
extend extract fail fall feed fetch fill filter find finish fire fit fix flatten flush focus fold follow force
forget fork format forward freeze garble gather generate get give go grant group grow guard guess gzip handle
hash hide highlight hold identify ignore import indent infer inform init initialize inject insert inspect
install interpret interrupt introduce invalidate invoke isolate join judge jump keep kill launch lay lead learn lease
leave lend let lift limit link list listen load locate lock log look lookup lower main make map mark mask match
measure merge migrate mirror mount move mute name narrow navigate negate normalize note notice notify number
observe offer omit open order outline overlay pace pack paint parse pass paste pause peek perform pick pin
place plan play point poll pop populate position prefer prefix preload prepare prepend present press preview print
probe process produce promote prompt protect prove prune publish pull pump push put query queue quote raise
rank read reap rebuild recall receive recognize record recover redact redo redraw reduce refer refine refold
refresh refuse register reject relay release reload remember remove rename render reopen reorder repaint repair repeat
replace replay reply report request require rerun reserve reset resize resolve respond restart restore restrict
resume retire retitle retrieve retry return reuse reveal reverse review revoke rewind rewrite roll rollback
rotate round route run sample sanitize save say scale scan schedule score scroll seal search see select send
separate serialize serve set settle shift shorten show shrink shut signal simulate skip sleep slice slim
snapshot sort spawn speculate spell spill splice split spread squash stage stall stamp start stash steer step
stop store stream strip style submit subscribe substitute subtract suggest sum summarize supersede supervise
suspend swap sweep switch sync take tally teach tell terminate test throttle tick tidy time toggle tokenize
touch trace track transfer translate traverse trickle trim truncate try tune turn type unbind undo unescape
unfold uninstall unlink unlock unmount unpack unquote unregister unsubscribe unwatch unwrap update upload use
validate verify visit wait wake walk warm warn wash watch widen wipe withdraw work wrap write yield zoom
""".split()
)
"""Words a function name may start with. Add a verb here when the code needs a new one."""

PREDICATES = frozenset(
    """
is are was has had can could should must may will would does did needs contains matches supports includes exists covers
allows accepts requires equals fits starts ends overlaps differs wants conflicts
""".split()
)
"""First words of functions that return a bool: `is_open`, `has_key`, `contains`."""

PREFIXES = frozenset("to from as with without on action watch".split())
"""`to_json`, `from_row`, `as_text`, `with_rule`, and the handlers that Textual calls by name."""

FUNCTION_EXCEPTIONS: dict[str, list[str]] = {
    "asyncio.Protocol calls these": ["connection_made", "connection_lost", "data_received", "eof_received"],
    "overrides of argparse, Textual and file objects": [
        "error", "panic", "fileno", "isatty", "_fatal_error", "_sigtstp_application", "_sigcont_application",
        "selection_updated",
    ],
    "public API of odin and odin.testing": [
        "new", "default_registry", "events", "rules", "messages", "result", "pings", "unfinished", "hiding",
        "fault", "env",
    ],
    "reads as a sentence where it is called": ["maybe_yield"],
}  # fmt: skip
"""Names that break the rule, by reason."""

NOUNS = frozenset("encoding listing onboarding recording ruling testing".split())
"""Nouns that look like gerunds: a `listing` is a list, `testing` follows `odin.testing`, the public module."""

NOT_NOUN = re.compile(r"(?:[a-z]{2,}ing|[a-z]{3,}ed)$")
IRREGULAR = frozenset("chosen known told said kept shown found made held left begun seen written taken given".split())

RETIRED_WORDS = {
    r"lesser models?": "small model",
    r"stand-ins?": "placeholder",
    r"breaths?": "pause, interval",
    r"shel(?:f|ves)": "folder, store",
    r"ruinous": "destructive",
    r"(?<![\"`])harmless(?![\"`])": "read-only, safe",
    r"untouchable": "protected",
    r"rulebooks?": "rules, policy",
    r"hookbooks?": "hooks",
    r"wakers?": "wake-up",
    r"autopilot": "loop mode",
    r"look-?alikes?": "similar paths",
    r"mended": "repaired",
    r"lanes?": "delivery",
    r"early calls?|begun early": "speculative call",
    r"(?:takes?|taken|taking|took) back": "undo, roll back, rewind, revoke",
    r"somebody|whoever|(?<!\")nobody(?!\")": "the user, another process",
    r"begun": "started",
    r"anew": "again",
    r"keep_env": "env_passthrough",
    r"lets? go of": "release",
    r"catalogues?": "catalog",
    r"work trees?": "worktree",
    r"colour(?:s|ed|ing)?(?!\?)": "color",
    r"behaviours?": "behavior",
    r"(?:summar|recogn|normal|organ|optim|initial|serial)is(?:e[ds]?|ing|ation)": "the American spelling, -ize",
}
"""Words that older versions used for their own concepts, and British spellings, with the words to use instead.

A `"nobody"` in quotes is the value of `AnswerPermission.by`, and `colour?` in quotes is an option of grep.
"""
ANY_RETIRED_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(RETIRED_WORDS)})(?![a-z])")


def find_functions(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions and methods, but not of properties and of functions inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not any(
                "property" in ast.unparse(item) or ".setter" in ast.unparse(item) for item in node.decorator_list
            ):
                yield node.name
        elif not isinstance(node, ast.expr):
            yield from find_functions(node)


def is_verb_phrase(name: str) -> bool:
    if name.startswith("__") and name.endswith("__"):
        return True
    words = name.strip("_").split("_")
    return words[0] in VERBS | PREDICATES | PREFIXES or "of" in words[1:]


def is_noun(module: str) -> bool:
    last = module.strip("_").split("_")[-1]
    return last in NOUNS or (last not in IRREGULAR and not NOT_NOUN.search(last))


def test_functions_are_verb_phrases():
    allowed = {name for names in FUNCTION_EXCEPTIONS.values() for name in names}
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in list_modules()
        for name in find_functions(parse(path))
        if name not in allowed and not is_verb_phrase(name)
    ]
    assert found == [], "a function is a verb phrase, `is_x` or `x_of`"


def test_modules_are_nouns():
    names = {path.stem if path.stem != "__init__" else path.parent.name: path for path in list_modules()}
    assert [str(path.relative_to(PACKAGE)) for name, path in names.items() if not is_noun(name)] == []


def test_public_class_names_are_unique():
    homes: dict[str, list[str]] = defaultdict(list)
    for path in list_modules():
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def list_texts() -> list[Path]:
    """Return the modules and the documentation."""
    pages = [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]
    return list_modules() + pages


def find_retired_words(text: str) -> Iterator[str]:
    """Yield the line, the retired word and its replacement."""
    lowered = text.encode().lower().decode()  # three times as fast as to ignore the case; only ASCII changes
    for match in ANY_RETIRED_WORD.finditer(lowered):
        word = match[0]
        instead = next(new for old, new in RETIRED_WORDS.items() if re.fullmatch(old, word))
        yield f"{text.count(chr(10), 0, match.start()) + 1}: {word!r}, write {instead}"


def test_retired_words_are_not_used():
    found = [
        f"{path.relative_to(ROOT)}:{hit}"
        for path in list_texts()
        for hit in find_retired_words(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_exception_is_used():
    names = {name for path in list_modules() for name in find_functions(parse(path))}
    allowed = {name for group in FUNCTION_EXCEPTIONS.values() for name in group}
    assert allowed - names == set()


@each("name", ["told", "lines", "text_shown", "_kept", "listing", "named_keys"])
def test_function_names_that_are_not_verb_phrases_are_found(name: str):
    assert not is_verb_phrase(name)


@each("name", ["load_rules", "_is_open", "name_of", "to_json", "__init__", "on_key", "has_room"])
def test_verb_phrases_are_allowed(name: str):
    assert is_verb_phrase(name)


@each("name", ["looking", "chosen", "rule_matching", "shared"])
def test_gerunds_and_participles_are_found(name: str):
    assert not is_noun(name)


@each("text", ["keep_env = 1", "_shelf", "a Lane", "Nobody asked", "it is taken back", "colours", "summarised"])
def test_retired_words_are_found(text: str):
    assert len(list(find_retired_words(text))) == 1


@each("text", ['by="nobody"', '"colour? regexp="', "a plane", "a workflow tree", "color", "recommended"])
def test_similar_words_are_allowed(text: str):
    assert list(find_retired_words(text)) == []
