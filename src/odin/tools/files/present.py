"""What a file holds before all of it is written anew."""

from pathlib import Path

from odin.context.files import FileCache, hash_bytes
from odin.tools.files.drift import describe_drift, make_stale_refusal
from odin.tools.files.path import Refusal, open_regular, read_whole


def read_current_bytes(files: FileCache, path: str, cwd: str, *, too_large: str) -> bytes | None:
    """The bytes that are there now, or None. Those that this agent has read must still be the same.

    `too_large` says what a file is too large for, and what to do instead.
    """
    if not Path(path).exists():
        return None
    file, info = open_regular(path, cwd)
    with file:
        data = read_whole(file, info)
    if data is None:
        raise Refusal(f"{path} is too large ({info.st_size} bytes) to {too_large}.")
    sha256 = hash_bytes(data)
    if files.compare(path, sha256) == "changed":
        said = f"{path} changed on disk since you read it. Nothing was written.{describe_drift(files, path, data)}"
        raise make_stale_refusal(files, path, sha256, f"{said} Read it again first.")
    return data
