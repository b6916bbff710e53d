"""Ripgrep and the built-in search find the same lines in the same order, for ordinary queries and trees."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from odin.tools.fallback_search import scan_files
from odin.tools.files import Refusal
from odin.tools.ripgrep import SearchMode, SearchQuery, build_ripgrep_argv, find_ripgrep
from odin.tools.search import parse_counts, parse_lines, parse_paths
from tests.tools.toolbox import Toolbox

FOLDERS = ("", "", "a/", "src/", "src/gen/", "a/b/", ".hid/", "out/", "d-1/", "src/.hid/deep/")
NAMES = (
    "x.py",
    "y.ts",
    "z.tsx",
    "keep.log",
    "t.log",
    "n m.txt",
    ".env",
    "Makefile",
    "é.py",
    "w\nl.txt",
    "caf\udce9.sh",
)
LINES = ("foo", "foo bar", "  foo()", "bar", "Foo BAR", "x = 1", "", "naïve foo", "foo\tbar", "end", "begin")
RULES = (
    "*.log",
    "!keep.log",
    "out/",
    "/src",
    "gen",
    "src/*",
    "!src/y.ts",
    "**/b",
    "a/**",
    "*.py",
    "/x.py",
    "!.env",
    "!.hid",
    "*",
    "!*/",
    "# c",
    "src/**/x.py",
    "y.?s",
    "[xy].*",
    "*.{ts,tsx}",
    "n m.txt  ",
    "**/gen/**",
    "\\!x",
    "é*",
    "/a/b/",
)
PATTERNS = (
    "foo",
    "bar$",
    "^foo",
    r"\bfoo\b",
    "foo.bar",
    r"^\s*foo",
    "foo|bar",
    "(?i)FOO",
    r"x = \d",
    "^$",
    r"\S+ bar",
    "^.*$",
    r"end\s*$",
    "[^o]$",
    r"(foo) \1",
    "foo(?= bar)",
    "(?<=foo )bar",
    "x*",
    "é",
    "[[:upper:]]",
    r"\{",
    ".",
)
MULTILINE_PATTERNS = (
    r"foo\nbar",
    "begin.*end",
    "foo\n",
    "\nbar",
    "o$",
    "^b",
    r"foo\s+bar",
    r"\n\n",
    "foo[^x]*bar",
    ".+",
)
GLOBS = (
    "",
    "",
    "",
    "*.py",
    "*.{ts,tsx}",
    "!*.py",
    "src/**",
    "**/b/*.py",
    "!src/**",
    "/x.py",
    "a",
    "!a",
    "**/*.txt",
    ".hid/**",
    "*",
    "src/*.ts",
    "[xy].*",
    "*.log",
    "**",
    "n m.txt",
    "?.py",
    ".*",
    "!.*",
    "{a,src}/*.ts",
    "x.{py,}",
)

FOO = b"foo\n"


class Tree(Struct, frozen=True):
    files: dict[str, bytes]
    rules: dict[str, str]
    repositories: list[str]


def encode_lines(lines: list[str], closed: bool, form: str) -> bytes:
    text = "\n".join(lines) + ("\n" if closed else "")
    if form in ("utf-16-le", "utf-16-be"):
        return ("\ufeff" + text).encode(form)
    head = {"mark": b"\xef\xbb\xbf"}.get(form, b"")
    tail = {"binary": b"\0foo\n"}.get(form, b"")
    return head + text.encode() + tail


contents = st.builds(
    encode_lines,
    st.lists(st.sampled_from(LINES), max_size=8),
    st.booleans(),
    st.sampled_from(("utf-8", "utf-8", "utf-8", "utf-16-le", "utf-16-be", "mark", "binary")),
)
places = st.builds(str.__add__, st.sampled_from(FOLDERS), st.sampled_from(NAMES))
ignore_files = st.builds(str.__add__, st.sampled_from(FOLDERS), st.just(".gitignore"))
trees = st.builds(
    Tree,
    st.dictionaries(places, contents, min_size=2, max_size=12),
    st.dictionaries(ignore_files, st.lists(st.sampled_from(RULES), min_size=1, max_size=4).map("\n".join), max_size=3),
    st.sampled_from(([], [""])),
)


def make_queries(patterns: tuple[str, ...], multiline: bool) -> st.SearchStrategy[SearchQuery]:
    return st.builds(
        SearchQuery,
        pattern=st.sampled_from(patterns),
        path=st.sampled_from(("", "", "src", "x.py")),
        glob=st.sampled_from(GLOBS),
        type=st.sampled_from(("", "", "", "py", "ts", "txt")),
        ignore_case=st.booleans(),
        literal=st.sampled_from((False, False, False, True)),
        multiline=st.just(multiline),
        before=st.sampled_from((0, 0, 1, 2)),
        after=st.sampled_from((0, 0, 1, 3)),
    )


@contextmanager
def build_tree(tree: Tree) -> Generator[str]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        for path, content in {**tree.files, **{path: text.encode() for path, text in tree.rules.items()}}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        for folder in tree.repositories:
            (root / folder / ".git/info").mkdir(parents=True, exist_ok=True)
            (root / folder / ".git/info/exclude").write_text("t.log\n")
        (root / "loop").symlink_to(root)
        (root / "link.py").symlink_to("x.py")
        os.mkfifo(root / "pipe.py")
        yield str(root)


def parse_output(data: bytes, mode: SearchMode, query: SearchQuery) -> object:
    if mode == "counts":
        return parse_counts(data)
    if mode == "paths":
        return [found for found in parse_paths(data) if not is_binary(found[0])]
    return [(file.path, file.rows, file.matches, file.hits()) for file in parse_lines(data, query.context)]


def is_binary(path: str) -> bool:
    """True for a file with NUL bytes: whether ripgrep reports matches before the first depends on how it reads."""
    data = Path(path).read_bytes()
    return b"\0" in data and data[:2] not in (b"\xff\xfe", b"\xfe\xff")


def compare(tree: Tree, asked: SearchQuery, mode: SearchMode, in_order: bool) -> None:
    rg = find_ripgrep()
    assert rg is not None
    with build_tree(tree) as root:
        query = replace(asked, path=root)
        if asked.path and Path(root, asked.path).exists() and not is_binary_file(Path(root, asked.path)):
            query = replace(asked, path=f"{root}/{asked.path}")
        folder = query.path if Path(query.path).is_dir() else root
        done = subprocess.run(
            build_ripgrep_argv(rg, query, mode, in_order), cwd=folder, capture_output=True, check=False
        )
        own = b"".join(scan_files(query, mode))
        assert parse_output(own, mode, query) == parse_output(done.stdout, mode, query), (query, done.stderr)


def is_binary_file(path: Path) -> bool:
    return path.is_file() and is_binary(str(path))


@pytest.mark.slow
@settings(max_examples=80)
@given(
    trees,
    make_queries(PATTERNS, multiline=False),
    st.sampled_from(("lines", "lines", "counts", "paths")),
    st.booleans(),
)
@example(
    Tree({".env": FOO, ".hid/x.py": FOO}, {".gitignore": "!.env\n!.hid"}, []), SearchQuery("foo", ""), "lines", True
)
@example(Tree({"x.py": FOO}, {".ignore": "!x.py", ".gitignore": "*.py"}, []), SearchQuery("foo", ""), "lines", True)
@example(
    Tree({"src/x.py": FOO, "x.py": FOO}, {".gitignore": "*.py"}, ["", "src/"]), SearchQuery("foo", ""), "lines", True
)
@example(Tree({"t.log": FOO, "x.py": FOO}, {}, [""]), SearchQuery("foo", ""), "lines", True)
@example(Tree({"x.py": FOO, "t.log": FOO}, {}, []), SearchQuery("foo", "", glob="*.log", type="py"), "lines", True)
def test_line_searches_give_the_same_results(tree: Tree, query: SearchQuery, mode: SearchMode, in_order: bool) -> None:
    compare(tree, query, mode, in_order)


@pytest.mark.slow
@settings(max_examples=40)
@given(trees, make_queries(MULTILINE_PATTERNS, multiline=True), st.sampled_from(("lines", "paths")), st.booleans())
def test_multiline_searches_give_the_same_results(
    tree: Tree, query: SearchQuery, mode: SearchMode, in_order: bool
) -> None:
    compare(tree, query, mode, in_order)


INVALID = ("(", "[a", "*a", "a{2,1}", "(?P<n", "\\")
RIPGREP_ONLY = (
    r"\p{Lu}",
    r"foo\z",
    r"\Qf.o\E",
    "[a-z&&b]",
    "[[a-f]x]",
    r"\Kfoo",
    r"\<a",
    r"\b{start}a",
    "(?U)a",
    "[[:no:]]",
)


@pytest.mark.parametrize("pattern", INVALID + RIPGREP_ONLY)
def test_patterns_that_python_lacks_or_reads_differently_are_refused(workspace: Path, pattern: str) -> None:
    (workspace / "a.txt").write_text("foo\n")
    with pytest.raises(Refusal, match=r"regex parse error.*ripgrep was not found"):
        list(scan_files(SearchQuery(pattern=pattern, path=str(workspace)), "lines"))


GLOB_PATTERNS = ("**/*.py", "*", "**", "src/**/*.{ts,tsx}", "src/**", "*.log", ".hid/*", "?.py", "**/[xy].*")


@pytest.mark.slow
@settings(max_examples=40)
@given(trees, st.sampled_from(GLOB_PATTERNS))
@example(Tree({"src/y.ts": b"", ".x.py": b"", "src/.hid/deep/x.py": b""}, {".gitignore": "!.x.py"}, []), "**/*.py")
@example(Tree({"src/y.ts": b"", "y.ts": b""}, {".gitignore": "src/"}, []), "src/**/*.{ts,tsx}")
def test_globs_give_the_same_results(tree: Tree, pattern: str) -> None:
    async def glob_both_ways(root: str) -> list[str]:
        boxes = [Toolbox(Path(root), without_ripgrep=without) for without in (False, True)]
        found = [(await box.ok("Glob", pattern=pattern)).text for box in boxes]
        for box in boxes:
            await box.runner.close()
        return found

    with build_tree(tree) as root:
        for path in Path(root).rglob("*"):
            if path.is_file():
                os.utime(path, (1000, 1000 + len(path.name)), follow_symlinks=False)
        by_ripgrep, built_in = asyncio.run(glob_both_ways(root))
    assert built_in == by_ripgrep
    assert "/.x.py" not in by_ripgrep
