"""Entry points of the `odin` command. `--version` is answered before anything else is imported."""

import atexit
import gc
import os
import sys
from _thread import RLock
from types import ModuleType

_OPTIONAL_MODULES = ("ssl", "typing_extensions")
"""asyncio and msgspec use these if they can be imported, which takes long. `providers/tls.py` adds TLS when needed."""


def _keep_text(text: str) -> str:
    return text


def _choose_plural(singular: str, plural: str, count: int) -> str:
    return singular if count == 1 else plural


_LAZY_MODULES: dict[str, dict[str, object]] = {
    "gettext": {"gettext": _keep_text, "ngettext": _choose_plural},
    "inspect": {},
    "ipaddress": {},
    "locale": {},
    "platform": {"system": lambda: os.uname().sysname},
    "textwrap": {},
    "tokenize": {},
}
"""Modules that our libraries import at the start but hardly use then. Each runs when another attribute is needed."""

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
    gc.disable()  # imports only allocate; `run` enables it again
    try:
        _import_lazily(_LAZY_MODULES)
        _import_libraries()
        from odin.commands import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def _write_version() -> int:
    from odin import __version__

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
    """Import asyncio and msgspec without `_OPTIONAL_MODULES`, unless something has imported those already."""
    hidden = [name for name in _OPTIONAL_MODULES if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    try:
        import asyncio  # noqa: F401  # pyright: ignore[reportUnusedImport]

        import msgspec  # noqa: F401  # pyright: ignore[reportUnusedImport]
    finally:
        for name in hidden:
            del sys.modules[name]


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


def _import_lazily(modules: dict[str, dict[str, object]]) -> None:
    for name, attributes in modules.items():
        if name in sys.modules:
            continue
        for finder in sys.meta_path:
            spec = finder.find_spec(name, None)
            if spec is not None and spec.loader is not None:
                module = _LazyModule(name)
                module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
                vars(module).update(attributes)
                sys.modules[name] = module
                break
