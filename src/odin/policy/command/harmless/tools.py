"""What may be asked of compilers, interpreters and package managers: their version, and what is installed.

Asking for a version is not always harmless: some of them look for settings in the project first, and those may name
the program that then runs. Where such a file lies on the way up, the question is put to the user.
"""

from collections.abc import Callable, Sequence

from odin.policy.command.harmless.options import ParsedOptions, ReadOnlyCommand, has_only_names
from odin.policy.command.harmless.place import ReadScope
from odin.policy.command.shapes import split_names

_VERSIONED_TOOLS = split_names(
    "python python2 python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 pip pip3 uv pipx ruff "
    "mypy black node deno ruby gem perl php Rscript julia gcc g++ cc c++ clang clang++ ld make cmake ninja "
    "meson bash zsh fish git gh svn docker podman kubectl helm sqlite3 psql mysql redis-cli jq rg fd tree sed awk "
    "gawk grep find ls tar zip unzip openssl java javac kotlin swift ghc cabal stack zig nim ffmpeg "
    "convert tmux vim nvim emacs shellcheck curl wget ssh nginx lua R elixir scala bun redis-server mongod aws rsync "
    "docker-compose tsc eslint prettier"
)
_OTHER_VERSION: dict[str, Sequence[list[str]]] = {
    "node": (["-v"],),
    "ruby": (["-v"],),
    "perl": (["-v"],),
    "php": (["-v"],),
    "gcc": (["-dumpversion"], ["-dumpmachine"], ["-v"]),
    "java": (["-version"],),
    "javac": (["-version"],),
    "kotlin": (["-version"],),
    "scala": (["-version"],),
    "make": (["-v"],),
    "nginx": (["-v"],),
    "lua": (["-v"],),
    "tsc": (["-v"],),
    "eslint": (["-v"],),
    "ssh": (["-V"],),
    "openssl": (["version"],),
    "docker": (["-v"],),
    "git": (),
    "zig": (["version"],),
    "helm": (["version"],),
    "kubectl": (["version", "--client"],),
}
_CAPITAL_V_TOOLS = split_names(
    "python python2 python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 pip pip3 uv ruff mypy "
    "deno perl ghc cabal curl wget ssh rsync grep gawk rg fd jq shellcheck ld"
)
"""Programs for which -V is the version. To others it is anything: some shells then run what they read."""

_CONFIGURED_TOOLS: dict[str, tuple[Sequence[str], Sequence[list[str]]]] = {
    "cargo": (("rust-toolchain", "rust-toolchain.toml", ".cargo"), (["--version"], ["-V"], ["version"])),
    "rustc": (("rust-toolchain", "rust-toolchain.toml"), (["--version"], ["-V"], ["-vV"])),
    "rustup": (("rust-toolchain", "rust-toolchain.toml"), (["--version"], ["toolchain", "list"])),
    "go": (
        ("go.mod", "go.work"),
        (["version"], *(["env", name] for name in ("GOPATH", "GOROOT", "GOOS", "GOARCH", "GOVERSION", "GOMODCACHE"))),
    ),
    "npm": ((".npmrc",), (["--version"], ["-v"])),
    "dotnet": (("global.json",), (["--version"],)),
    "npx": ((".npmrc",), (["--version"], ["-v"])),
}
"""Programs that obey these files of the project, and what they may be asked without them."""


def _check_npm(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Lists of what is installed. `npm run` alone names the scripts; with a name it runs one."""
    verb = parsed.operands[:1]
    if verb in (["run"], ["root"], ["prefix"]):
        known = len(parsed.operands) == 1
    else:
        known = verb in (["ls"], ["list"], ["explain"], ["why"]) or parsed.operands[:2] == ["pkg", "get"]
    return known and not scope.has_config((".npmrc",))


def _check_pip(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return parsed.operands[:1] in (["list"], ["show"], ["freeze"], ["check"]) and has_only_names(parsed, scope)


_PIP = ReadOnlyCommand(
    _check_pip, "vqfl", "verbose quiet format= local user files not-required exclude-editable no-color"
)
_TOOL_LISTS: dict[str, ReadOnlyCommand] = {
    "npm": ReadOnlyCommand(_check_npm, "agl", "depth= all json long parseable global prod dev omit= include= link"),
    "pip": _PIP,
    "pip3": _PIP,
}


def find_tool_check(name: str) -> Callable[[Sequence[str], ReadScope], bool] | None:
    """The check for this program, or None when nothing about it is known."""
    if name not in _VERSIONED_TOOLS and name not in _CONFIGURED_TOOLS:
        return None

    def check(words: Sequence[str], scope: ReadScope) -> bool:
        if name in _TOOL_LISTS and _TOOL_LISTS[name].accepts(words, scope):
            return True
        given = list(words)
        if name in _CONFIGURED_TOOLS:
            files, asked = _CONFIGURED_TOOLS[name]
            return given in asked and not scope.has_config(files)
        if given == ["-V"]:
            return name in _CAPITAL_V_TOOLS
        return given == ["--version"] or given in _OTHER_VERSION.get(name, ())

    return check
