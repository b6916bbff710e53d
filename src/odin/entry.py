"""Entry points of the `odin` command. `--version` is answered before anything else is imported."""

import atexit
import gc
import os
import sys
from _thread import RLock
from types import ModuleType

TYPE_CHECKING = False  # as in typing, which is not loaded for --version
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_OPTIONAL_MODULES = ("ssl", "typing_extensions")
"""asyncio and msgspec use these if they can be imported, which takes 10 ms each. `providers/tls.py` adds TLS later."""


def _keep_text(text: str) -> str:
    return text


def _choose_plural(singular: str, plural: str, count: int) -> str:
    return singular if count == 1 else plural


class _LibraryLogger:
    """The logger of a library, which runs `logging` with the first message that may be shown.

    A debug message is not shown unless a program has configured `logging`, and so has run it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        if name == "debug" and isinstance(sys.modules["logging"], _LazyModule):
            return _ignore_message
        import logging

        return getattr(logging.Logger.manager.getLogger(self._name), name)


def _ignore_message(*args: object, **options: object) -> None:
    return


def _get_logger(name: str | None = None) -> object:
    if name in ("asyncio", "concurrent.futures"):
        return _LibraryLogger(name)
    import logging

    return logging.Logger.manager.getLogger(name) if name else logging.root


_LAZY_MODULES: dict[str, dict[str, object]] = {
    "asyncio.sslproto": {},
    "gettext": {"gettext": _keep_text, "ngettext": _choose_plural},
    "inspect": {},
    "ipaddress": {},
    "locale": {},
    "logging": {"DEBUG": 10, "getLogger": _get_logger},
    "msgspec.inspect": {},
    "platform": {"system": lambda: os.uname().sysname},
    "textwrap": {},
    "tokenize": {},
}
"""Modules that our libraries import at the start but hardly use then. Each runs when another attribute is needed.

Without this the first request is sent 20 ms later (of 145): inspect 7 ms, logging 4.5, gettext with locale 4, tokenize
with textwrap 3, ipaddress 3, platform with msgspec.inspect 4. asyncio.sslproto must not run before ssl is there.
"""

EXIT_OUTPUT_FAILED = 74
"""Exit code if standard output could not be written, as that of `OutputFailed`."""


def start() -> None:
    """Run the command line, then end the process without tearing the interpreter down, which takes 15 ms.

    As at a normal exit, exit handlers run and the standard streams are flushed.
    """
    code = main()
    try:  # noqa: SIM105 (contextlib would be loaded for it)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass  # there is no other place to report it
    atexit._run_exitfuncs()
    os._exit(code)


def main() -> int:
    if len(sys.argv) == 2 and sys.argv[1] in ("--version", "-V", "-v"):
        return _write_version()
    gc.disable()  # imports only allocate: 4.5 ms; `run` enables it again
    try:
        from odin.code_cache import CodeCache

        cache = CodeCache()
        sys.meta_path.insert(0, cache)
        atexit.register(cache.save)
        _import_lazily()
        _import_libraries()
        from odin.commands import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def _write_version() -> int:
    from odin.version import __version__

    try:
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.write(f"odin {__version__}\n")
            sys.stdout.flush()
    except BrokenPipeError:
        return 0  # the reader has left, and there is nothing to report
    except OSError as error:
        sys.stderr.write(f"odin: Cannot write to standard output: {error.strerror}.\n")
        return EXIT_OUTPUT_FAILED
    return 0


def _import_libraries() -> None:
    """Import asyncio and msgspec without `_OPTIONAL_MODULES`, unless something has imported those already.

    Parts of them that run late become attributes of their packages, as after an import.
    """
    hidden = [name for name in _OPTIONAL_MODULES if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    try:
        import asyncio  # noqa: F401  # pyright: ignore[reportUnusedImport]

        import msgspec  # noqa: F401  # pyright: ignore[reportUnusedImport]
    finally:
        for name in hidden:
            del sys.modules[name]
    for name in _LAZY_MODULES:
        package, _, part = name.rpartition(".")
        if package and name in sys.modules:
            setattr(sys.modules[package], part, sys.modules[name])


class _LazyModule(ModuleType):
    """A module whose code runs when one of its attributes is first used, in whatever thread."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._lock = RLock()

    def __getattr__(self, name: str) -> object:
        spec = self.__spec__
        if name == "__path__" or spec is None or spec.loader is None:
            raise AttributeError(name)  # the import system asks for __path__; that is no use of the module
        with self._lock:
            if not spec.loader_state:
                spec.loader_state = True
                spec.loader.exec_module(self)
                self.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]
        return object.__getattribute__(self, name)


def _import_lazily() -> None:
    for name, attributes in _LAZY_MODULES.items():
        spec = None if name in sys.modules else _find_spec(name)
        if spec is not None and spec.loader is not None:
            module = _LazyModule(name)
            module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
            if spec.submodule_search_locations is not None:
                module.__path__ = spec.submodule_search_locations
            vars(module).update(attributes)
            sys.modules[name] = module


def _find_spec(name: str) -> "ModuleSpec | None":
    """Return the spec of a module, without importing its package."""
    path = None
    if "." in name:
        package = _find_spec(name.rpartition(".")[0])
        if package is None:
            return None
        path = package.submodule_search_locations
    return next((spec for finder in sys.meta_path if (spec := finder.find_spec(name, path)) is not None), None)
