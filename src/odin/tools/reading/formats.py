"""Files that Read does not give as their lines: images and PDFs, told by their first bytes, and notebooks."""

import asyncio
import os
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from odin.core.picture import detect_image_kind
from odin.core.tool import ToolOutput
from odin.policy.process.runner import ProcessRunner
from odin.tools.files.path import WHOLE_BYTES, read_whole

if TYPE_CHECKING:
    from odin.tools.reading.pdf import PdfReader

_PROBE_BYTES = 16


def is_plain_text(path: str, head: bytes) -> bool:
    """Whether a file of this name with these first bytes is text as far as Read is concerned."""
    return not (path.endswith(".ipynb") or head.startswith(b"%PDF-") or detect_image_kind(head))


class FormatReader:
    """`folder` is the session's, where images are kept; `runner` runs what could take for ever."""

    def __init__(self, folder: Path | None = None, runner: ProcessRunner | None = None) -> None:
        self._folder = folder
        self._runner = runner or ProcessRunner()
        self._pdf: PdfReader | None = None

    async def read(
        self, path: str, file: FileIO, info: os.stat_result, first: int, count: int, cwd: str
    ) -> ToolOutput | None:
        """What the model sees of such a file; None when it is to be read as text. The file is left at its start."""
        head = file.read(_PROBE_BYTES) or b""
        file.seek(0)
        if detect_image_kind(head):
            from odin.tools.reading.image import read_image

            return await read_image(path, file, info, self._folder)
        if head.startswith(b"%PDF-"):
            return await self._read_pdf(path, info, first, count, cwd)
        if path.endswith(".ipynb") and info.st_size <= WHOLE_BYTES:
            from odin.tools.reading.cells import read_notebook

            data = read_whole(file, info)
            file.seek(0)
            if data is None:
                return None
            return await asyncio.to_thread(read_notebook, path, data, first, count, self._folder)
        return None

    async def _read_pdf(self, path: str, info: os.stat_result, first: int, count: int, cwd: str) -> ToolOutput:
        from odin.tools.reading.pdf import PdfReader, format_pdf

        self._pdf = self._pdf or PdfReader(self._runner)
        return format_pdf(path, await self._pdf.read_text(path, info, cwd), first, count)
