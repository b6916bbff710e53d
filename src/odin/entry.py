"""Entry points of the `odin` command. `--version` is answered before anything else is imported."""

import atexit
import gc
import os
import sys

_OPTIONAL_MODULES = ("ssl", "typing_extensions")
"""asyncio and msgspec use these if they can be imported, which takes long. `providers/tls.py` adds TLS when needed."""


def start() -> None:
    """Run the command line, then end the process without tearing the interpreter down, which takes 15 ms.

    As at a normal exit, exit handlers run and the standard streams are flushed; if that fails, Python reports it.
    """
    code = main()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # pyright: ignore[reportUnnecessaryComparison]
                stream.flush()
    except BrokenPipeError:
        os._exit(code)  # the reader has left, and there is nothing to report
    except (OSError, ValueError):
        sys.exit(code)
    atexit._run_exitfuncs()
    os._exit(code)


def main() -> int:
    if len(sys.argv) == 2 and sys.argv[1] in ("--version", "-V", "-v"):
        from odin import __version__

        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.write(f"odin {__version__}\n")
        return 0
    gc.disable()  # imports only allocate; `run` enables it again
    try:
        _import_libraries()
        from odin.commands import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


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
