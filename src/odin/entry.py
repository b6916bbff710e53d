"""Entry point of the `odin` command. `--version` is answered before anything else is imported."""

import gc
import sys


def main() -> int:
    if len(sys.argv) == 2 and sys.argv[1] in ("--version", "-V", "-v"):
        from odin import __version__

        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.write(f"odin {__version__}\n")
        return 0
    gc.disable()  # imports only allocate; `run` enables it again
    try:
        from odin.commands import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
