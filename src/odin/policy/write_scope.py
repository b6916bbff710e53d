"""Makes the write scope of an agent from what a model or a user wrote, and checks that it lies in the project.

    scope = parse_write_scope(root, files=["README.md"], path_prefixes=["src/api"], modules=["app.users"])
    if scope.conflicts_with(other): ...

`AgentRuntime(composition, name, scope=scope)` then enforces it for one agent.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odin.core.errors import UsageError
from odin.core.path_names import contains
from odin.core.write_scope import WriteScope
from odin.policy.paths import resolve_path

if TYPE_CHECKING:
    from odin.policy.policy_call import PolicyCall

_PATTERN_ENDS = ("/**/*", "/**", "/*")
_WILDCARDS = frozenset("*?[]{}")
_MODULE_FOLDERS = ("", "src/", "lib/")
_NAME_THEM = "Name files and folders of the project, relative to its root."


def parse_write_scope(
    root: str,
    *,
    files: Iterable[str] = (),
    path_prefixes: Iterable[str] = (),
    modules: Iterable[str] = (),
    read_only: bool = False,
) -> WriteScope:
    """Return the scope with names relative to the project. Raise UsageError if a name is invalid or lies outside.

    A prefix is a file or a folder with everything below it. A module is a path or a dotted name such as `app.users`.
    """
    names = [_get_relative_name(text, root) for text in files]
    folders = [text for text in names if os.path.isdir(os.path.join(root, text))]  # noqa: PTH112, PTH118
    prefixes = [
        *folders,
        *(_get_relative_name(text, root) for text in path_prefixes),
        *(_find_module(m, root) for m in modules),
    ]
    kept = tuple(dict.fromkeys(name for name in names if name not in folders))
    if read_only and (kept or prefixes):
        raise UsageError("A write scope is either read-only or names what may be changed, not both.")
    return WriteScope(kept, tuple(dict.fromkeys(prefixes)), read_only)


def _get_relative_name(text: str, root: str) -> str:
    """Return a path relative to the project, with links resolved."""
    given = text.strip()
    for end in _PATTERN_ENDS:
        given = given.removesuffix(end)
    if not given or "\0" in given:
        raise UsageError("A name in the write scope is empty or contains a NUL byte.", _NAME_THEM)
    if _WILDCARDS & set(given):
        raise UsageError(f"The write scope {text!r} contains a pattern.", "Name the folder instead.")
    base = os.path.realpath(root)
    path = None if given.startswith("~") else resolve_path(given, base)
    if path is None or not contains(base, path):
        raise UsageError(f"The write scope {text!r} is outside the project {base}.", _NAME_THEM)
    return os.path.relpath(path, base)


def _find_module(text: str, root: str) -> str:
    """Return the file or folder of a module."""
    given = text.strip()
    if "/" in given or os.path.lexists(os.path.join(root, given)):  # noqa: PTH118
        return _get_relative_name(given, root)
    path = given.replace("::", "/").replace(".", "/")
    for folder in _MODULE_FOLDERS:
        for end in ("", ".py"):
            if path and os.path.exists(os.path.join(root, f"{folder}{path}{end}")):  # noqa: PTH110, PTH118
                return _get_relative_name(f"{folder}{path}{end}", root)
    raise UsageError(f"There is no module {text!r} in the project.", "Name its files or folders in path_prefixes.")


def find_outside_redirect(call: "PolicyCall", scope: WriteScope) -> str:
    """Return the first project file outside the scope to which a command redirects output, or "".

    The sandbox blocks other writes outside the scope.
    """
    script = call.analysis.script if call.analysis is not None else None
    for simple in script.commands if script is not None else ():
        folder = None if simple.folder is None else resolve_path(simple.folder, call.cwd)
        for item in simple.redirects if folder is not None else ():
            path = resolve_path(item.target.text, folder or "/")
            if (
                not item.op.startswith("<")
                and item.target.literal
                and path is not None
                and call.scope.find_root(path)
                and not scope.allows(path, call.root)
            ):
                return item.target.text
    return ""
