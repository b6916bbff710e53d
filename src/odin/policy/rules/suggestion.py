"""Rules to offer in an approval prompt, narrowest first.

A suggested rule is never broader than it looks: interpreters, wrappers and shells are not offered as prefix rules, and
a deletion is offered only with its exact path.
"""

from collections.abc import Iterator, Sequence

from odin.core.path_names import contains
from odin.core.registry import canonical_name_of
from odin.policy import paths
from odin.policy.call import PolicyCall
from odin.policy.commands.syntax import ShellWord, split_names
from odin.policy.rules.pattern import has_wildcard, host_of

_MAX_RULE_CHARS = 200

_NEVER_PREFIX = split_names(
    "sh bash dash zsh ksh fish csh tcsh su sudo doas env nice ionice nohup setsid command builtin exec eval time "
    "stdbuf timeout xargs parallel watch flock chroot unshare nsenter strace ltrace script busybox ssh scp sftp "
    "rsync nc ncat socat telnet curl wget python python2 python3 pypy pypy3 ipython node deno bun ruby perl php "
    "lua tclsh Rscript osascript awk gawk mawk sed find fd rm rmdir unlink shred mv cp dd ln tee install chmod "
    "chown chgrp truncate kill pkill killall source . alias trap systemctl service crontab at mkfs mount umount "
    "apt apt-get yum dnf brew pacman gdb lldb vim vi nano emacs ed ex less more man tmux screen open xdg-open"
)
"""Programs that run anything, or whose operands decide what is lost. Only the exact command is offered."""

_RUNNERS: dict[str, tuple[str, ...]] = {
    "npm": ("run", "run-script", "exec"),
    "pnpm": ("run", "exec", "dlx"),
    "yarn": ("run", "exec", "dlx"),
    "bun": ("run", "x"),
    "uv": ("run", "tool"),
    "poetry": ("run",),
    "pipenv": ("run",),
    "hatch": ("run",),
    "pdm": ("run",),
    "bundle": ("exec",),
    "docker": ("compose",),
    "cargo": ("run",),
    "dotnet": ("run",),
    "deno": ("task",),
    "composer": ("run", "run-script"),
    "rails": ("db",),
    "nix": ("run",),
}
"""Programs with commands that run something else by its name: that name belongs to the rule."""

_MODULES = split_names("pytest unittest mypy ruff black isort flake8 pylint build doctest compileall tox nox coverage")
_NEVER_SUGGESTED = {
    "docker": split_names("run exec"),
    "podman": split_names("run exec"),
    "kubectl": split_names("exec delete"),
    "git": split_names("filter-branch submodule bisect"),
}
_SINGLE_PURPOSE = split_names(
    "mkdir touch make pytest py.test tox nox mypy pyright basedpyright ruff black isort flake8 pylint tsc eslint "
    "prettier jest vitest mocha rspec rubocop phpunit gofmt golint golangci-lint rustfmt rustc gcc g++ clang "
    "cmake ninja ctest javac mvn gradle just rake shellcheck hadolint terraform-docs pre-commit"
)
"""Programs whose every call does the same kind of thing."""


def list_candidates(call: PolicyCall) -> Iterator[str]:
    """Yield rules that may allow the call, narrowest first. `Policy` checks that they do."""
    if call.subject.command:
        yield from _suggest_for_command(call)
    elif call.subject.url:
        host = host_of(call.subject.url)
        if host:
            yield f"{call.name}(domain:{host})"
    elif call.subject.paths:
        yield from _suggest_for_path(call)
    elif canonical_name_of(call.name) != "Delete":
        yield call.name


def _suggest_for_command(call: PolicyCall) -> Iterator[str]:
    tool = "Bash" if canonical_name_of(call.name) == "ExecuteCommand" else call.name
    text = call.subject.command.strip()
    if _is_presentable(text) and not has_wildcard(text):
        yield f"{tool}({text})"
    words = _find_deciding_words(call)
    prefix = _find_prefix([word.text for word in words]) if words and all(word.literal for word in words) else ()
    if prefix and all(_is_presentable(word) and " " not in word for word in prefix):
        yield f"{tool}({' '.join(prefix)}:*)"


def _find_deciding_words(call: PolicyCall) -> Sequence[ShellWord]:
    """Return the words of the only command that is not read-only, or nothing if there are several."""
    if call.analysis is None or not call.analysis.is_complete:
        return ()
    deciding = {simple.words for simple, folder in call.find_steps() if not call.is_step_read_only(simple, folder)}
    return next(iter(deciding)) if len(deciding) == 1 else ()


def _find_prefix(texts: Sequence[str]) -> Sequence[str]:
    """Return the leading words that describe the kind of command, or nothing if they would be too broad."""
    name = texts[0]
    if len(texts) > 2 and name in ("python", "python3") and texts[1] == "-m" and texts[2] in _MODULES:
        return texts[:3]
    if name in _NEVER_PREFIX or "/" in name or "=" in name:
        return ()
    if name in _SINGLE_PURPOSE:
        return texts[:1]
    if len(texts) < 2 or not _is_word(texts[1]) or texts[1] in _NEVER_SUGGESTED.get(name, ()):
        return ()
    if texts[1] not in _RUNNERS.get(name, ()):
        return texts[:2] if name not in ("npx", "bunx", "uvx", "pipx") or texts[1] not in _NEVER_PREFIX else ()
    if len(texts) < 3 or not _is_word(texts[2]) or texts[2] in _NEVER_PREFIX:
        return ()
    return texts[:3]


def _is_word(text: str) -> bool:
    """True for a name such as `test` or `build:prod`, not for an option, file or value."""
    return text[:1].isalpha() and all(char.isalnum() or char in "-_:" for char in text)


def _suggest_for_path(call: PolicyCall) -> list[str]:
    if len(call.subject.paths) != 1:
        return []
    path = paths.resolve_path(call.subject.paths[0], call.cwd)
    if path is None or not _is_presentable(path) or set(path) & set("*?()"):
        return []
    inside = contains(call.root, path) and path != call.root
    shown = f"./{path[len(call.root.rstrip('/')) + 1 :]}" if inside else path
    tool = {"read": "Read", "edit": "Edit"}.get(call.kind, call.name)
    if canonical_name_of(call.name) == "Delete":
        return [f"Delete({shown})"]
    exact = f"{tool}({shown.removeprefix('./') if shown.count('/') > 1 and inside else shown})"
    folder = (shown if paths.is_folder(path) else shown.rpartition("/")[0]).removeprefix("./")
    if folder in ("", ".") or (not inside and (call.kind != "read" or folder.count("/") < 2)):
        return [exact]
    return [exact, f"{tool}({folder}/**)"]


def _is_presentable(text: str) -> bool:
    return bool(text) and len(text) <= _MAX_RULE_CHARS and text.isprintable()
