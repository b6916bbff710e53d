"""The folders besides the project that a session works in: `--add-dir`, `/add-dir` and `additional_directories`.

A folder is written as its path, `PATH:ro` if it is read-only. It has the trust of the project that it belongs to, as if
Odin were started there; `--trust` covers those that are given in the same command. What a project's settings name must
lie beside the project, so that a repository cannot open the home folder or the system.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from odin.config.claude_files import list_texts, read_claude_files
from odin.config.files import ConfigProblem, read_config_file
from odin.config.paths import (
    CONFIG_NAME,
    expand_home,
    find_project_root,
    get_cache_dir,
    get_config_dir,
    get_home_dir,
    get_state_dir,
)
from odin.config.settings import LayerDeclaration
from odin.config.trust import evaluate_trust
from odin.core.errors import ConfigError, UsageError
from odin.core.path_names import contains, find_protected_name, is_secret_path
from odin.core.root import Root
from odin.core.text import join_some, to_valid_unicode

READ_ONLY = ":ro"

_KERNEL_FOLDERS = ("/dev", "/proc", "/run", "/sys")
_SYSTEM_FOLDERS = (
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/usr",
    "/System",
    "/Library",
)


def find_root(text: str, base: str, project: str, env: Mapping[str, str], *, trust: bool = False) -> Root:
    """Return the root that a text names, relative to `base`. `trust`: the user trusts it for this run.

    Raise UsageError if it cannot be one besides the `project`.
    """
    given = text.strip()
    written = given.removesuffix(READ_ONLY)
    if not written:
        raise UsageError("The folder has no name.", "Name an existing folder, PATH or PATH:ro.")
    path = os.path.realpath(Path(base, expand_home(written, env)))
    if not os.path.isdir(path):  # noqa: PTH112
        what = f"{written} is not a folder." if os.path.lexists(path) else f"Folder not found: {path}."
        raise UsageError(what, "Name an existing folder.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"{path} cannot be read.", "Name a folder that you may read.")
    access = "read" if given.endswith(READ_ONLY) else "write"
    if why := _explain_refusal(path, os.path.realpath(project), env, is_writable=access == "write"):
        raise UsageError(f"{path} cannot be added: {why}")
    return Root(path, access, trust or is_trusted(path, env))


def _explain_refusal(path: str, project: str, env: Mapping[str, str], *, is_writable: bool) -> str:
    """Return why a folder cannot be a root, as a clause and what to do, or ""."""
    home = os.path.realpath(get_home_dir(env))
    own = [os.path.realpath(folder) for folder in (get_config_dir(env), get_state_dir(env), get_cache_dir(env))]
    temporary = {os.path.realpath(folder) for folder in ("/tmp", "/var/tmp", env.get("TMPDIR", "")) if folder}
    if contains(project, path):
        return "it is already in the project."
    if contains(path, project):
        return "it contains the project. Start Odin there instead."
    if contains(path, home):
        return "it contains your home folder. Name a folder in it." if path != home else "it is your home folder."
    if any(contains(path, folder) or contains(folder, path) for folder in own):
        return "it contains Odin's own files, or is one of its folders."
    if any(contains(path, folder) for folder in temporary):
        return "it contains a folder for temporary files. Name a folder in it."
    if any(contains(folder, path) for folder in _KERNEL_FOLDERS):
        return "it is a folder of the system."
    if is_secret_path(path) or is_secret_path(f"{path}/"):
        return "it may hold secrets."
    if is_writable and any(contains(folder, path) for folder in _SYSTEM_FOLDERS):
        return f"it is a folder of the system. To read it, add {path}{READ_ONLY}."
    if is_writable and (name := find_protected_name(path.split("/")[-2:])):
        return f"programs or agents run or obey {name}. To read it, add {path}{READ_ONLY}."
    return ""


def is_trusted(path: str, env: Mapping[str, str]) -> bool:
    """True if the user trusts the project that a folder belongs to, with the content it has now."""
    top = os.path.realpath(find_project_root(path, env))
    try:
        texts = list_texts(read_claude_files(top, top, env)[1])
        return evaluate_trust(top, env, read_config_file(Path(top, CONFIG_NAME)), texts=texts).trusted
    except ConfigError:
        return False


def add_root(roots: Sequence[Root], new: Root) -> tuple[Root, ...]:
    """Return the roots with another one, or with the new access of one of them. Raise UsageError if two overlap."""
    for other in roots:
        if other.path != new.path and contains(other.path, new.path):
            raise UsageError(f"{new.path} cannot be added: it is already in {other.path}, which was added.")
        if other.path != new.path and contains(new.path, other.path):
            raise UsageError(f"{new.path} cannot be added: it contains {other.path}, which was added.")
    return (*(other for other in roots if other.path != new.path), new)


def restore_roots(
    roots: Sequence[Root], earlier: Iterable[Root], project: str, env: Mapping[str, str]
) -> tuple[tuple[Root, ...], list[str]]:
    """Return the roots with those that were added in an earlier run of the session, and warnings about the others.

    Whether the user trusts one is looked up again: a log cannot say so.
    """
    found, warnings = tuple(roots), list[str]()
    for root in earlier:
        if any(other.path == root.path for other in found):
            continue
        text = root.path if root.is_writable else f"{root.path}{READ_ONLY}"
        try:
            found = add_root(found, find_root(text, project, project, env))
        except UsageError as error:
            warnings.append(f"A folder that you added earlier is left out: {error}")
    return found, warnings


def collect_roots(
    project: str,
    cwd: str,
    env: Mapping[str, str],
    declared: Iterable[LayerDeclaration],
    given: Iterable[str],
    *,
    trust: bool,
) -> tuple[tuple[Root, ...], list[ConfigProblem]]:
    """Return the roots of the settings and of the command line, and what is wrong with those of the settings.

    Raise UsageError for one of the command line.
    """
    roots: tuple[Root, ...] = ()
    problems: list[ConfigProblem] = []
    for item in declared:
        for text in item.value:
            try:
                root = find_root(str(text), project, project, env)
                if item.layer == "project":
                    if any(other.path == root.path for other in roots):
                        continue  # the user's own settings decide
                    _check_place(root.path, os.path.realpath(project))
                roots = add_root(roots, root)
            except UsageError as error:
                shown = f"{to_valid_unicode(str(text))!r} is ignored: {error.describe()}"
                problems.append(ConfigProblem(shown, item.source, "additional_directories"))
    named: tuple[Root, ...] = ()
    for text in given:
        named = add_root(named, find_root(text, cwd, project, env, trust=trust))
    for root in named:
        roots = add_root(roots, root)
    problems += [ConfigProblem(text) for root in roots if (text := describe_untrusted(root))]
    return roots, problems


def describe_untrusted(root: Root) -> str:
    """Return what of an untrusted folder is left out, as a sentence; "" if there is nothing."""
    names = [] if root.trusted else list_own_files(root.path)
    if not names:
        return ""
    hint = f"Review it with `odin trust status {root.path}`, then trust it with `odin trust add {root.path}`."
    return f"{root.path} is not trusted, so these files of it count only to deny calls: {join_some(names, 5)}. {hint}"


_OWN_FILES = (
    *("ODIN.md", "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md", ".claude/rules"),
    *(CONFIG_NAME, ".claude/settings.json", ".claude/settings.local.json"),
)


def list_own_files(path: str) -> list[str]:
    """Return the instruction files and settings that a root has at its top, which count if it is trusted."""
    return [name for name in _OWN_FILES if os.path.lexists(f"{path}/{name}")]


def _check_place(path: str, project: str) -> None:
    """Raise UsageError unless a folder that a project names lies beside it, and in no hidden folder."""
    beside = os.path.dirname(project)  # noqa: PTH120
    inner = path[len(beside) :].strip("/").split("/")
    if beside == "/" or not contains(beside, path) or any(name.startswith(".") for name in inner):
        hint = "Add it yourself: --add-dir, or additional_directories in your own settings."
        raise UsageError(f"{path} does not lie beside the project, so its settings cannot add it.", hint)
