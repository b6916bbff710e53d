"""Exchanges two names in a folder again and again, until its input ends: symlink_swapper.py FOLDER ONE OTHER.

It plays a background process of a hostile model, which swaps a folder with a symlink while a tool works.
"""

import ctypes
import os
import select
import sys
import time
from random import Random

_AT_FDCWD = -100
_EXCHANGE = 2


def main() -> None:
    folder, one, other = (os.fsencode(text) for text in sys.argv[1:])
    os.chdir(folder)
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    if exchange(_AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE) != 0:
        sys.exit(f"renameat2: {os.strerror(ctypes.get_errno())}")
    sys.stdout.write("swapping\n")
    sys.stdout.flush()
    chance = Random(1)
    count = 0
    while not select.select([0], [], [], 0)[0]:
        for _ in range(20):
            count += exchange(_AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE) == 0
            time.sleep(chance.choice((0, 0, 0.00005, 0.0002, 0.001)))
    if count % 2 == 0:
        exchange(_AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE)


if __name__ == "__main__":
    main()
