"""The byte code of the modules that Odin has loaded before, in one file: finding and reading 150 files takes longer.

The file lies in `__pycache__` and is as trustworthy as the byte code there. A module whose source has changed since is
imported as usual, and the file is written anew when the process ends.
"""
# pathlib is not loaded yet
# ruff: noqa: PTH100, PTH105, PTH108, PTH116, PTH120, PTH123

import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader, cache_from_source
from _imp import _fix_co_filename  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from contextlib import suppress
from types import CodeType

_ROOT = os.path.dirname(os.path.abspath(__file__))

_HEADER = MAGIC_NUMBER + b"\1\0\0\0"
"""The version of Python and that of this format, which changes with `Entry`."""

Entry = tuple[bool, int, int, int, int]
"""Whether it is a package, the time and size of its source, and where its byte code begins and ends after the index."""


class CodeCache:
    """Finds modules of Odin in the file."""

    def __init__(self) -> None:
        self._path = cache_from_source(f"{_ROOT}/modules.py")
        self._entries: dict[str, Entry] = {}
        self._file, self._base = -1, 0
        try:
            self._file = os.open(self._path, os.O_RDONLY)  # stays open: a newer one may replace it
            start = os.pread(self._file, 12, 0)
            if start.startswith(_HEADER):
                self._base = 12 + int.from_bytes(start[8:], "little")
                self._entries = marshal.loads(os.pread(self._file, self._base - 12, 12))
        except (OSError, ValueError, EOFError, TypeError):
            pass

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        entry = self._entries.get(name)
        if entry is None:
            return None
        is_package, changed, size, begin, end = entry
        source = f"{_ROOT}/{name[5:].replace('.', '/')}{'/__init__.py' if is_package else '.py'}"
        try:
            status = os.stat(source)
        except OSError:
            status = None
        if status is None or (status.st_mtime_ns, status.st_size) != (changed, size):
            del self._entries[name]
            return None
        loader = _CachedLoader(name, source, self._file, self._base + begin, end - begin)
        spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(source)]
        return spec

    def save(self) -> None:
        """Write the file if modules were loaded that are not in it. Faults do not matter: it is only a cache."""
        loaded = {name: module for name, module in sys.modules.items() if name.startswith("odin.")}
        missing = loaded.keys() - self._entries.keys()
        if not missing or sys.dont_write_bytecode:
            return
        codes: dict[str, bytes] = {}
        for name in missing:
            try:
                source = loaded[name].__file__ or ""
                status = os.stat(source)
                with open(cache_from_source(source), "rb") as file:
                    data = file.read()
            except (OSError, ValueError):
                continue
            numbers = (int(status.st_mtime), status.st_size)  # as in the byte code of an unchanged source
            if data[:16] == MAGIC_NUMBER + bytes(4) + b"".join((n & 0xFFFFFFFF).to_bytes(4, "little") for n in numbers):
                codes[name] = data[16:]
                self._entries[name] = (hasattr(loaded[name], "__path__"), status.st_mtime_ns, status.st_size, 0, 0)
        if not codes:
            return
        at = 0
        parts: list[bytes] = []
        for name, (is_package, changed, size, begin, end) in self._entries.items():
            part = codes.get(name) or os.pread(self._file, end - begin, self._base + begin)
            self._entries[name] = (is_package, changed, size, at, at := at + len(part))
            parts.append(part)
        index = marshal.dumps(self._entries)
        draft = f"{self._path}.{os.getpid()}"
        try:
            with open(draft, "xb") as file:
                file.writelines([_HEADER, len(index).to_bytes(4, "little"), index, *parts])
            os.replace(draft, self._path)
        except OSError:
            with suppress(OSError):
                os.unlink(draft)


class _CachedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, file: int, begin: int, size: int) -> None:
        super().__init__(name, path)
        self._place = file, size, begin

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            code = marshal.loads(os.pread(*self._place))
        except (OSError, ValueError, EOFError, TypeError):
            code = None
        if not isinstance(code, CodeType):
            return super().get_code(fullname)
        _fix_co_filename(code, self.path)  # the folder may have been moved
        return code
