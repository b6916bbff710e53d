"""Where results go: a folder, or with `odin-code[fleet]` any store that fsspec knows, such as `s3://bucket/folder`."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from odin.config.files import write_atomically
from odin.core.errors import OdinError, UsageError
from odin.core.private_folders import make_private_folder


class ResultStore(Protocol):
    """Files by name, such as `TASK/patch.diff`. All methods block."""

    def check(self) -> None:
        """Raise OdinError if nothing can be written."""
        ...

    def write(self, name: str, data: bytes) -> None: ...

    def read(self, name: str) -> bytes:
        """Return a file. Raise FileNotFoundError."""
        ...

    def locate(self, name: str) -> str:
        """Return where a user finds a file."""
        ...


def open_store(url: str) -> ResultStore:
    if "://" not in url or url.startswith("file://"):
        return FolderStore(Path(url.removeprefix("file://")))
    try:
        import fsspec  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise UsageError(
            f"The store {url} needs fsspec.", "Install it: uv tool install 'odin-code[fleet]', or use a folder."
        ) from None
    try:
        return RemoteStore(url.rstrip("/"), fsspec)
    except (ValueError, ImportError) as error:
        raise UsageError(f"The store {url} cannot be used: {error}.") from error


class FolderStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self) -> None:
        self.write(".writable", b"")
        self._folder.joinpath(".writable").unlink()

    def write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        try:
            make_private_folder(path.parent)
            write_atomically(path, data)
        except OdinError as error:
            raise OdinError(f"Nothing can be stored. {error}", "Choose another --store.") from error

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def locate(self, name: str) -> str:
        return str(self._folder / name)


class RemoteStore:
    def __init__(self, url: str, fsspec: Any) -> None:
        self._url = url
        self._files, self._root = fsspec.core.url_to_fs(url)

    def check(self) -> None:
        self.write(".writable", b"")
        with suppress(Exception):  # who may write need not be allowed to remove
            self._files.rm_file(f"{self._root}/.writable")

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        try:
            try:
                self._files.pipe_file(path, data)
            except FileNotFoundError:  # object stores have no folders; a bucket that is missing is not made
                parts = name.split("/")[:-1]
                for depth in range(len(parts) + 1):
                    with suppress(FileExistsError):
                        self._files.mkdir("/".join((self._root, *parts[:depth])), create_parents=False)
                self._files.pipe_file(path, data)
        except Exception as error:  # every kind of store has errors of its own
            raise OdinError(f"Cannot write {self.locate(name)}: {error}.", "Choose another --store.") from error

    def read(self, name: str) -> bytes:
        try:
            return self._files.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            raise
        except Exception as error:  # as above
            raise OdinError(f"Cannot read {self.locate(name)}: {error}.", "Check the store.") from error

    def locate(self, name: str) -> str:
        return f"{self._url}/{name}"
