"""Generate a git repository with the unusual files and commits that real repositories contain.

    odd_history.py FOLDER [--commits N] [--seed N] [--source FOLDER]

CRLF, mixed and lone CR line ends, byte order marks, UTF-16, Latin-1, GBK and Shift-JIS, tabs and trailing spaces, form
feeds, missing final newlines, long lines, empty and binary files, links, modes, renames, files that become folders and
folders that become files, merges with two and three parents, commits without changes. `--source` starts with the text
files of a folder, for a history of realistic size.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

WORDS = "alpha beta gamma value result count index total name path file line text node list item self return".split()  # noqa: SIM905
ODD_WORDS = {
    "latin-1": "café größe naïve été Ångström niño".split(),  # noqa: SIM905
    "gbk": "配置 文件 返回 用户 数据 测试 结果 函数 说明 错误".split(),  # noqa: SIM905
    "cp932": "設定 ファイル こんにちは 表示する ソース 読み込み データ".split(),  # noqa: SIM905
    "utf-8": ["naïve", "漢字", "😀", "é", "👩\u200d👩\u200d👧", "grün\xa0x"],
    "utf-16-le": "grün 漢字 😀".split(),  # noqa: SIM905
    "utf-16-be": "weiß 文".split(),  # noqa: SIM905
}
NOTEBOOK = """{
 "cells": [
  {
   "cell_type": "code",
   "execution_count": null,
   "metadata": {},
   "outputs": [],
   "source": [
    "total = 1\\n",
    "print(total)"
   ]
  }
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}
"""
BOMS = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


class File(NamedTuple):
    text: str
    codec: str = "utf-8"
    bom: bytes = b""
    mode: str = "100644"

    @property
    def data(self) -> bytes:
        return self.bom + self.text.encode(self.codec, "surrogateescape" if self.codec == "utf-8" else "strict")


Tree = dict[bytes, File]


class Author:
    """Writes and changes files at random."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def words(self, codec: str) -> str:
        pick = self.chance
        known = [*WORDS, *ODD_WORDS[codec]] if pick.random() < 0.3 else WORDS
        body = pick.choice((" ", "  ", "_", ".")).join(pick.choice(known) for _ in range(pick.randint(0, 7)))
        return pick.choice(("", "", "\t", "    ", "\x0c")) + body + pick.choice(("", "", "", " ", "\t  "))

    def line(self, codec: str, end: str) -> str:
        if self.chance.random() < 0.01:
            return " ".join(self.words(codec) for _ in range(200)) + end
        return self.words(codec) + end

    def end(self, style: str) -> str:
        if style == "mixed":
            return self.chance.choice(("\n", "\r\n", "\n", "\r\n", "\r", "\r\r\n"))
        return style

    def text(self, codec: str, style: str, lines: int) -> str:
        text = "".join(self.line(codec, self.end(style)) for _ in range(lines))
        return text.rstrip("\r\n") if self.chance.random() < 0.3 else text

    def new_file(self) -> File:
        pick = self.chance
        codec = pick.choice(("utf-8", "utf-8", "utf-8", "latin-1", "gbk", "cp932", "utf-16-le", "utf-16-be"))
        style = pick.choice(("\n", "\n", "\r\n", "\r\n", "mixed", "\r"))
        bom = BOMS.get(codec, b"") if codec.startswith("utf-16") or pick.random() < 0.3 else b""
        text = self.text(codec, style, pick.choice((0, 1, 3, 20, 60, 150)))
        if codec in ("gbk", "cp932") and text:
            text = " ".join(ODD_WORDS[codec]) + self.end(style) + text
        return File(text, codec, bom)

    # --- changes of one file ---

    def change(self, file: File) -> File:
        kinds: list[Callable[[File], File]] = [self.lines, self.lines, self.lines, self.lines, self.word, self.part]
        kinds += [self.ends, self.final, self.mark, self.encoding, self.mode, self.rewrite]
        weights = (6, 6, 6, 6, 3, 4, 2, 2, 1, 1, 1, 1)
        return self.chance.choices(kinds, weights)[0](file)

    def lines(self, file: File) -> File:
        """Insert, replace, delete or repeat lines in a few places."""
        pick = self.chance
        lines = file.text.split("\n")
        lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        for _ in range(pick.choice((1, 1, 1, 2, 3, 6))):
            at = pick.randint(0, len(lines))
            near = lines[min(at, len(lines) - 1)] if lines else "\n"
            end = "\r\n" if near.endswith("\r\n") else "\n"
            fresh = [self.line(file.codec, end) for _ in range(pick.choice((0, 1, 1, 2, 5)))]
            if at and fresh and not lines[at - 1].endswith("\n"):
                lines[at - 1] += end
            lines[at : at + pick.choice((0, 1, 1, 3))] = fresh or lines[at : at + 1] * pick.choice((0, 2))
        return file._replace(text="".join(lines))

    def word(self, file: File) -> File:
        old, new = self.chance.sample(WORDS, 2)
        return file._replace(text=file.text.replace(old, f"{new}_2"))

    def part(self, file: File) -> File:
        at = self.chance.randint(0, len(file.text))
        return file._replace(
            text=file.text[:at] + self.chance.choice(WORDS) + file.text[at + self.chance.randint(0, 5) :]
        )

    def ends(self, file: File) -> File:
        if self.chance.random() < 0.5:
            plain = file.text.replace("\r\n", "\n")
            return file._replace(text=plain if "\r\n" in file.text else plain.replace("\n", "\r\n"))
        at = file.text.find("\n", self.chance.randint(0, len(file.text)))
        if at < 0:
            return file
        crlf = file.text[:at].endswith("\r")
        return file._replace(text=(file.text[: at - 1] if crlf else f"{file.text[:at]}\r") + file.text[at:])

    def final(self, file: File) -> File:
        return file._replace(text=file.text[:-1] if file.text.endswith("\n") else f"{file.text}\n")

    def mark(self, file: File) -> File:
        return file._replace(bom=b"" if file.bom else BOMS["utf-8"]) if file.codec == "utf-8" else file

    def encoding(self, file: File) -> File:
        return file._replace(codec="utf-8", bom=b"") if self.chance.random() < 0.5 else self.lines(file)

    def mode(self, file: File) -> File:
        return file._replace(mode="100755" if file.mode == "100644" else "100644")

    def rewrite(self, file: File) -> File:
        style = "\r\n" if "\r\n" in file.text else "\n"
        return file._replace(text=self.text(file.codec, style, self.chance.randint(1, 80)))


class Story:
    """Generates the trees of a history, commit by commit."""

    def __init__(self, seed: int, start: Tree) -> None:
        self._chance = Random(seed)
        self._author = Author(self._chance)
        self.tree = start
        self._number = 0

    def next(self) -> None:
        for _ in range(self._chance.choice((0, 1, 1, 1, 2, 2, 3, 8))):
            self._step()

    def _step(self) -> None:
        pick = self._chance
        texts = [path for path, file in self.tree.items() if file.mode != "120000" and "\0" not in file.text[:1]]
        kinds = ["change"] * 14 + ["new"] * 3 + ["delete", "rename", "rename", "binary", "link", "swap", "odd name"]
        kind = pick.choice(kinds)
        if kind == "new" or len(texts) < 4:
            self.tree[self._path()] = self._author.new_file()
        elif kind == "change":
            path = pick.choice(texts)
            self.tree[path] = self._author.change(self.tree[path])
        elif kind == "delete":
            del self.tree[pick.choice(list(self.tree))]
        elif kind == "rename":
            old = pick.choice(texts)
            file = self.tree.pop(old)
            self.tree[self._path()] = file if pick.random() < 0.5 else self._author.change(file)
        elif kind == "binary":
            data = bytes(pick.randbytes(pick.randint(10, 3000))) + b"\0"
            name = pick.choice(texts) if pick.random() < 0.3 else self._path()
            self.tree[name] = File(f"\0{data.decode('latin-1')}", "latin-1")
        elif kind == "link":
            name = pick.choice(texts) if pick.random() < 0.3 else self._path()
            self.tree[name] = File("some/where", mode="120000")
        elif kind == "swap":
            self._swap(pick.choice(list(self.tree)))
        elif pick.random() < 0.2:
            self.tree[self._path() + "-café".encode("latin-1")] = self._author.new_file()

    def _swap(self, path: bytes) -> None:
        """Replace a file by a folder with files, or a folder by a file."""
        folder = path.rpartition(b"/")[0]
        if folder and self._chance.random() < 0.5:
            for other in [name for name in self.tree if name.startswith(folder + b"/")]:
                del self.tree[other]
            self.tree[folder] = self._author.new_file()
            return
        file = self.tree.pop(path)
        self.tree[path + b"/inner.txt"] = file

    def _path(self) -> bytes:
        self._number += 1
        folder = self._chance.choice(("", "src/", "src/deep/er/", "docs with spaces/", "ünï/"))
        if any(f"{folder}/".encode().startswith(path + b"/") for path in self.tree):
            folder = ""
        return f"{folder}f{self._number}{self._chance.choice(('.py', '.txt', '.c', ' x.md', ''))}".encode()


def begin(source: Path | None) -> Tree:
    if source is None:
        large = "".join(f"{number}: {WORDS[number % 17]} {WORDS[number % 7]}\n" for number in range(2500))
        return {
            b"notes/analysis.ipynb": File(NOTEBOOK),
            b"notes/page.pdf": File("%PDF-1.4\nnot really\n" * 5),
            b"large/one.txt": File(large),
            b"large/two.txt": File(large.replace("\n", "\r\n").rstrip()),
        }
    tree: Tree = {}
    for path in sorted(source.rglob("*")):
        if path.suffix in (".py", ".pyi", ".js", ".md", ".txt", ".json", ".c", ".h", ".rst") and path.is_file():
            data = path.read_bytes()
            if b"\0" not in data and len(data) < 2_000_000:
                tree[str(path.relative_to(source)).encode()] = File(data.decode("utf-8", "surrogateescape"))
    return tree


def stream(story: Story, commits: int) -> "list[bytes]":
    """Return the history as a git fast-import stream."""
    out: list[bytes] = [b"feature done\n"]
    before: Tree = {}
    for number in range(1, commits + 1):
        if number > 1:
            story.next()
        parents = [b"from :%d\n" % (number - 1)] if number > 1 else []
        if number > 6 and number % 9 == 0:
            parents += [b"merge :%d\n" % (number - back) for back in ((3,) if number % 2 else (3, 5))]
        out.append(
            b"commit refs/heads/main\nmark :%d\ncommitter A <a@example.com> %d +0000\ndata 1\nx\n" % (number, number)
        )
        out += parents
        out += [b"D %s\n" % _quoted(path) for path in before if path not in story.tree]
        for path, file in story.tree.items():
            if before.get(path) != file:
                data = file.data
                out.append(b"M %s inline %s\ndata %d\n%s\n" % (file.mode.encode(), _quoted(path), len(data), data))
        before = dict(story.tree)
    out.append(b"done\n")
    return out


def _quoted(path: bytes) -> bytes:
    return b'"%s"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def build(folder: Path, commits: int = 120, seed: int = 1, source: Path | None = None) -> None:
    """Create a bare repository in `folder`. The same arguments give the same repository."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
    data = b"".join(stream(Story(seed, begin(source)), commits))
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=data, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a git repository full of oddities.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commits", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", type=Path)
    args = parser.parse_args()
    build(args.folder, args.commits, args.seed, args.source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
