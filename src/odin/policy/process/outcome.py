"""How a process ended, in words."""

import signal


def describe_exit(code: int) -> str:
    """`exit code 3` or `killed by signal SIGTERM`."""
    return f"exit code {code}" if code >= 0 else f"killed by signal {signal_name_of(-code)}"


def signal_name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
