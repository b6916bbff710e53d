"""What somebody typed before the app had the terminal. Until then the terminal itself gathers lines."""

import os
import select
import termios

_MAX_BYTES = 100_000


def read_typeahead(fd: int) -> list[str]:
    """The whole lines that wait there; each was ended with Enter, which the app could not tell from Ctrl+J later.

    What was typed behind the last Enter stays where it is, and comes to the app as keys.
    """
    data = b""
    try:
        if not os.isatty(fd) or not termios.tcgetattr(fd)[3] & termios.ICANON:
            return []
        while len(data) < _MAX_BYTES and select.select([fd], [], [], 0)[0]:
            part = os.read(fd, 4096)
            if not part:
                break
            data += part
    except (OSError, termios.error):
        return []
    return data.decode("utf-8", "replace").splitlines()
