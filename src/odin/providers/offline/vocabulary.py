"""The words of the trade: kinds of files, well-known names, commands, and what makes a word look like a path."""

import re

FILE_TYPES: dict[str, str] = {
    "python": "py pyi",
    "javascript": "js mjs cjs jsx",
    "js": "js mjs cjs jsx",
    "typescript": "ts tsx",
    "ts": "ts tsx",
    "markdown": "md",
    "rust": "rs",
    "go": "go",
    "golang": "go",
    "java": "java",
    "kotlin": "kt kts",
    "ruby": "rb",
    "php": "php",
    "c": "c h",
    "c++": "cpp hpp cc hh h",
    "cpp": "cpp hpp cc hh h",
    "c#": "cs",
    "csharp": "cs",
    "swift": "swift",
    "scala": "scala",
    "lua": "lua",
    "perl": "pl pm",
    "shell": "sh bash zsh",
    "bash": "sh bash",
    "yaml": "yaml yml",
    "json": "json",
    "toml": "toml",
    "xml": "xml",
    "html": "html htm",
    "css": "css scss",
    "sql": "sql",
    "text": "txt",
    "csv": "csv",
    "image": "png jpg jpeg gif svg webp",
}
"""What people call a kind of file, and the endings of such files."""

TEST_GLOBS = ("**/test_*", "**/*_test.*", "**/*.test.*", "**/*.spec.*", "**/*Test.*")
CONFIG_GLOBS = ("**/*config*", "**/*.toml", "**/*.ini", "**/*.cfg", "**/*.yaml", "**/*.yml")

_MORE_EXTENSIONS = (
    "rst lock cfg ini conf env log ex exs erl hs ml clj dart r jl vue svelte gradle proto tf ipynb patch diff bat "
    "ps1 mk "
    "adoc org tex bib sass less cmake jsonl tsv pdf zip gz"
)
_EXTENSIONS = frozenset([*" ".join(FILE_TYPES.values()).split(), *_MORE_EXTENSIONS.split()])
_KNOWN_NAMES = (
    "makefile dockerfile license readme changelog contributing gemfile rakefile procfile justfile authors "
    "codeowners notice"
)
_FILE_NAMES = frozenset(_KNOWN_NAMES.split())
_PROGRAMS = (
    "ls make npm npx yarn pnpm bun git python python3 pytest tox nox uv pip pip3 poetry hatch cargo rustc go docker "
    "podman "
    "kubectl terraform echo cat pwd whoami date uname env which wc head tail sort uniq grep rg find sed awk diff du "
    "df ps "
    "curl wget node deno ruby rake bundle java javac mvn gradle gradlew dotnet php composer perl lua bash sh zsh "
    "cmake ctest "
    "ninja gcc g++ clang ruff mypy pyright black isort flake8 eslint prettier tsc jest vitest mkdir rmdir rm mv cp "
    "touch "
    "chmod chown ln tar zip unzip gzip kill true false sleep test printf tree file stat basename dirname realpath "
    "hostname "
    "gh just task pre-commit coverage odin"
)
COMMANDS = frozenset(_PROGRAMS.split())
"""First words that make an unquoted request to run something a command."""


def is_path_like(word: str) -> bool:
    """Whether a bare word is more likely a file or folder than a word of English."""
    if not word or word in ("/", "and/or", "either/or") or re.search(r"\s|[()<>\"'|=;]", word):
        return False
    if "/" in word:
        return True
    if re.fullmatch(r"\.[A-Za-z][\w.-]*", word) or word.lower() in _FILE_NAMES:
        return True
    stem, dot, ending = word.rpartition(".")
    return bool(dot and stem and ending.lower() in _EXTENSIONS)


def is_file_like(path: str) -> bool:
    """Whether a path most likely names a file and not a folder."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if path.endswith("/") or name in (".", "..", ""):
        return False
    return name.lower() in _FILE_NAMES or bool(re.search(r"[^.]\.[A-Za-z]\w*$", name))


def extensions_of(word: str) -> tuple[str, ...]:
    """The file endings a kind of file has: "python" → py, pyi; ".md" and "*.md" → md."""
    word = word.lower()
    if word in FILE_TYPES:
        return tuple(FILE_TYPES[word].split())
    bare = re.fullmatch(r"\*?\.([a-z0-9]+)", word)
    if bare:
        return (bare[1],)
    return (word,) if word in _EXTENSIONS else ()


def to_singular(word: str) -> str:
    """TODOs → TODO: the plural of a marker written in capitals."""
    return (
        word[:-1] if re.fullmatch(r"[A-Z][A-Z_0-9]+'?s", word) and not word.endswith("'s") else word.removesuffix("'s")
    )
