"""python -m odin.testing script.json [--port N] [--log FILE]: play a script in its own process."""

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from odin.testing.script import ScriptFile, read_script
from odin.testing.server import ScriptedServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m odin.testing", description=__doc__)
    parser.add_argument("script", help="a JSON file: a list of turns, or an object with turns and options; - is stdin")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on (default: a free one)")
    parser.add_argument("--log", help="a file that gets one JSON line for each request")
    parser.add_argument("--repeat", action="store_true", help="begin again when the script is used up")
    args = parser.parse_args()
    try:
        source = sys.stdin.buffer.read() if args.script == "-" else Path(args.script).read_bytes()
        plan = read_script(source)
    except OSError as error:
        return _refuse(f"The script {args.script} cannot be read: {error.strerror}.")
    except msgspec.DecodeError as error:
        return _refuse(f"The script {args.script} is not valid: {error}")
    return _serve(plan, args)


def _serve(plan: ScriptFile, args: Any) -> int:
    options = {name: getattr(plan, name) for name in ("models", "window", "local", "strict", "odd")}
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = ScriptedServer(plan.turns, repeat=plan.repeat or args.repeat, port=args.port, **options)
    try:
        server.start(args.log)
    except OSError as error:
        return _refuse(f"Port {args.port} cannot be used: {error.strerror}.")
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    signal.sigwait(signals)
    server.stop()
    return 0


def _refuse(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
