"""Fuzzy path search: results, their order, odd trees, and that the event loop is not blocked."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from odin.config.paths import make_environment
from odin.core.event_values import CachedFile
from odin.sandbox.runner import ProcessRunner
from odin.testing import say
from odin.tools import file_finder
from odin.tools.file_finder import FileFinder, PathIndex, PathIndexer, PathSearch, Superseded, fold_case
from tests.engine.conftest import Start, start
from tests.waiting import TimeLimit, until

__all__ = ["start"]

MakeFinder = Callable[..., FileFinder]


@pytest.fixture
async def make_finder(tmp_path: Path) -> AsyncIterator[MakeFinder]:
    """make_finder(names, recent=…) returns a finder in a folder with these files, all of the same age."""
    made: list[FileFinder] = []

    def finder(
        *names: str,
        recent: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> FileFinder:
        root = tmp_path / "tree"
        root.mkdir(exist_ok=True)
        for name in names:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
            os.utime(path, (1_000_000_000, 1_000_000_000))
        known = [CachedFile(f"{root}/{name}", 0, float(place)) for place, name in enumerate(recent)]
        env = env or {"HOME": "/nowhere"}
        runner = ProcessRunner(make_environment(env, "/"))
        found = FileFinder(PathIndexer(str(root), runner, env, clock), recent=lambda: known)
        made.append(found)
        return found

    yield finder
    for one in made:
        await one.close()
        await one.paths.close()


async def find_after_walk(finder: FileFinder, words: str, limit: int = 20) -> tuple[str, ...]:
    """Return the result after the whole tree was walked."""
    await finder(words)
    await until(lambda: not finder.paths.is_walking)
    return await finder(words, limit)


class TestOrder:
    async def test_better_matches_come_first(self, make_finder: MakeFinder) -> None:
        finder = make_finder(
            "deep/down/agent",  # the name
            "src/agent.py",  # its beginning
            "src/the_agent.py",  # a part of it
            "agents/inner/x.py",  # a part of the path
            "a/gxe/n/t.py",  # only the letters
            "zebra.txt",
        )
        found = await find_after_walk(finder, "agent")
        assert found == (
            "deep/down/agent",
            "agents/",
            "src/agent.py",
            "src/the_agent.py",
            "agents/inner/",
            "agents/inner/x.py",
            "a/gxe/n/t.py",
        )

    async def test_generated_files_come_last(self, make_finder: MakeFinder) -> None:
        generated = [f"src/__pycache__/cart{number}.cpython-311.pyc" for number in range(70)]
        finder = make_finder(*generated, "src/cart.py", "tests/test_cart.py", "node_modules/cart/index.js")
        found = await find_after_walk(finder, "cart")
        assert found[:2] == ("src/cart.py", "tests/test_cart.py")
        assert len(found) == 20

    async def test_shorter_paths_come_first_and_case_is_ignored(self, make_finder: MakeFinder) -> None:
        finder = make_finder("lib/README.md", "README.md", "a/b/c/readme.txt")
        assert await find_after_walk(finder, "ReadMe") == ("README.md", "lib/README.md", "a/b/c/readme.txt")

    async def test_files_of_the_session_and_changed_files_come_first(
        self, make_finder: MakeFinder, tmp_path: Path
    ) -> None:
        finder = make_finder("a/test.py", "bb/test.py", "ccc/test.py", recent=("ccc/test.py",))
        os.utime(tmp_path / "tree" / "bb" / "test.py")
        assert await find_after_walk(finder, "test") == ("ccc/test.py", "bb/test.py", "a/test.py")

    async def test_path_fragments_and_letter_sequences_match(self, make_finder: MakeFinder) -> None:
        finder = make_finder("src/odin/ui/tui/composer.py", "src/odin/core/op.py", "tests/ui/test_composer.py")
        assert (await find_after_walk(finder, "tui/comp"))[0] == "src/odin/ui/tui/composer.py"
        assert (await finder("sodcoop"))[0] == "src/odin/core/op.py"
        assert (await finder("src op.py"))[0] == "src/odin/core/op.py"
        assert await finder("nothing at all") == ()

    async def test_folders_are_found_with_a_slash(self, make_finder: MakeFinder) -> None:
        finder = make_finder("src/deep/inner/a.py")
        assert (await find_after_walk(finder, "inner"))[0] == "src/deep/inner/"
        assert (await finder("deep/"))[0] == "src/deep/"

    async def test_an_empty_query_lists_recent_files_then_the_top_folder(self, make_finder: MakeFinder) -> None:
        finder = make_finder("b.txt", ".hidden", "src/a.py", "docs/x.md", recent=("gone.py", "docs/x.md", "src/a.py"))
        assert await find_after_walk(finder, "") == ("src/a.py", "docs/x.md", "docs/", "src/", "b.txt", ".hidden")
        assert await finder("", 2) == ("src/a.py", "docs/x.md")

    @pytest.mark.slow
    async def test_a_refined_query_finds_the_same_as_a_fresh_search(self, make_finder: MakeFinder) -> None:
        finder = make_finder(*(f"pkg{number}/some_module_{number}.py" for number in range(300)))
        await find_after_walk(finder, "smd")
        for words in ("smd", "smd1", "smd12", "smd123", "smd12", "s", "some_module_123"):
            fresh = make_finder()
            assert await finder(words) == await find_after_walk(fresh, words), words


class TestOddTrees:
    async def test_symlinks_pipes_and_unreadable_folders_are_tolerated(
        self, make_finder: MakeFinder, tmp_path: Path
    ) -> None:
        finder = make_finder("a.py", "closed/b.py")
        root = tmp_path / "tree"
        (root / "loop").symlink_to(root, target_is_directory=True)
        (root / "out").symlink_to("/", target_is_directory=True)
        os.mkfifo(root / "fifo")
        (root / "closed").chmod(0)
        try:
            found = await find_after_walk(finder, "py")
        finally:
            (root / "closed").chmod(0o755)
        assert "a.py" in found
        assert not any(path.startswith(("loop/", "out/")) for path in found)

    async def test_gitignored_files_are_left_out(self, make_finder: MakeFinder, tmp_path: Path) -> None:
        finder = make_finder("a.py", "node_modules/x/a.py", ".github/a.yml", ".git/config")
        (tmp_path / "tree" / ".gitignore").write_text("node_modules/\n")
        assert await find_after_walk(finder, "a") == ("a.py", ".github/a.yml")
        assert await finder("config") == ()

    async def test_other_scripts_match_and_invalid_names_are_left_out(
        self, make_finder: MakeFinder, tmp_path: Path
    ) -> None:
        finder = make_finder("größe.txt", "GRÖSSE.md", "İstanbul.txt", "two words.txt")
        root = os.fsencode(tmp_path / "tree")
        for name in (b"bad-\xff.txt", b"line\nfeed.txt"):
            os.close(os.open(root + b"/" + name, os.O_CREAT | os.O_WRONLY))
        assert await find_after_walk(finder, "grö") == ("GRÖSSE.md", "größe.txt")
        assert await finder("stanbul") == ("İstanbul.txt",)
        assert await finder("two wo") == ("two words.txt",)
        assert await finder("bad") == ()
        assert await finder("feed") == ()
        for odd in ("a\nb", "a\0b", "[*+?", "\\", "x" * 10_000):
            assert await finder(odd) == ()

    async def test_hidden_folders_of_the_home_folder_are_left_out(
        self, make_finder: MakeFinder, tmp_path: Path
    ) -> None:
        finder = make_finder("notes.md", ".cache/thing/notes.md", env={"HOME": str(tmp_path / "tree")})
        assert await find_after_walk(finder, "notes") == ("notes.md",)

    async def test_a_query_can_list_a_folder_outside_the_tree(self, make_finder: MakeFinder, tmp_path: Path) -> None:
        finder = make_finder("src/a.py", env={"HOME": str(tmp_path)})
        (tmp_path / "other" / "deep").mkdir(parents=True)
        (tmp_path / "other" / "data.csv").write_text("")
        assert await finder("../oth") == ("../other/",)
        assert await finder(f"{tmp_path}/other/d") == (f"{tmp_path}/other/data.csv", f"{tmp_path}/other/deep/")
        assert await finder("~/other/") == ("~/other/data.csv", "~/other/deep/")
        assert await finder("./s") == ("./src/",)
        assert await finder("/no/such/folder/x") == ()

    async def test_a_deleted_folder_gives_no_results(self, make_finder: MakeFinder, tmp_path: Path) -> None:
        finder = make_finder()
        (tmp_path / "tree").rmdir()
        assert await find_after_walk(finder, "a") == ()

    async def test_the_finder_works_without_ripgrep(
        self, make_finder: MakeFinder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(file_finder, "find_ripgrep", lambda: None)
        finder = make_finder("src/a.py", "skip/a.py")
        (tmp_path / "tree" / ".gitignore").write_text("skip/\n")
        assert await find_after_walk(finder, "a.py") == ("src/a.py",)


class TestTiming:
    async def test_the_tree_is_not_walked_before_the_first_query(self, start: Start, workspace: Path) -> None:
        (workspace / "a.py").write_text("x = 1\n")
        talk = await start([say("ok")])
        await talk.say("hello")
        assert _list_walkers(workspace) == []
        assert await talk.client.find_files("a.py") == ("a.py",)
        assert (await talk.client.find_files(""))[0] == "a.py"

    async def test_new_files_are_found_once_the_index_is_stale(self, make_finder: MakeFinder, tmp_path: Path) -> None:
        now = 1000.0
        finder = make_finder("a.py", clock=lambda: now)
        assert await find_after_walk(finder, "a") == ("a.py",)
        (tmp_path / "tree" / "ab.py").write_text("")
        (tmp_path / "tree" / "a.py").unlink()
        assert await finder("a") == ()
        now += file_finder.FRESH_S + 1
        assert await find_after_walk(finder, "a") == ("ab.py",)

    @pytest.mark.slow
    async def test_a_newer_query_supersedes_an_older_one(self) -> None:
        chunks = ["\n" + "\n".join(f"d{number}/{each}.txt" for each in range(2000)) + "\n" for number in range(400)]
        search = PathSearch()
        asked = time.monotonic()
        with pytest.raises(Superseded):
            await search.find_best(chunks, "zz", 20, lambda: time.monotonic() - asked < 0.02)
        (best, *_) = await search.find_best(chunks, "d7/19.t", 20, lambda: True)
        assert best[2] == "d7/19.txt"

    async def test_other_tasks_run_during_a_long_search(self) -> None:
        """While half a million names are searched, another task runs many times."""
        names = [f"src/module{number}/some_long_name_{each}.py" for number in range(500) for each in range(20)]
        chunks = ["\n" + "\n".join(names[at : at + 1000]) + "\n" for at in range(0, len(names), 1000)] * 50
        turns, over = 0, False

        async def count() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await PathSearch().find_best(chunks, "qzx", 20, lambda: True)
        over = True
        await counting
        assert turns > 10

    async def test_closing_ends_the_walk(
        self, make_finder: MakeFinder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        endless = tmp_path / "rg"
        endless.write_text("#!/bin/sh\nwhile :; do printf 'a/b.py\\0'; sleep 0.01; done\n")
        endless.chmod(0o755)
        monkeypatch.setattr(file_finder, "find_ripgrep", lambda: str(endless))
        finder = make_finder("x.py")
        async with TimeLimit():
            while not await finder("b.py") and not finder.paths.is_walking:
                await asyncio.sleep(0.01)
        assert finder.paths.is_walking
        await finder.paths.close()
        assert not finder.paths.is_walking
        assert _list_walkers(endless) == []
        assert await finder("b.py") == ()

    @pytest.mark.slow
    async def test_three_hundred_thousand_names_take_little_memory(self) -> None:
        kept = PathIndex()
        for number in range(300):
            kept.add("\n".join(f"packages/component{number}/source/file_number_{each}.tsx" for each in range(1000)))
        kept.finish()
        assert kept.count == 300_000 + 2 * 300 + 1
        held = sum(len(chunk) for chunk in kept.chunks)
        assert held < 60 * kept.count
        assert len(kept.chunks) < 2000
        hits = await PathSearch().find_best(kept.chunks, "component42file_number_77.", 5, lambda: True)
        assert hits[0][2] == "packages/component42/source/file_number_77.tsx"


def _list_walkers(of: Path) -> list[str]:
    """Return the command lines of `rg --files` processes that name this path."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in listed if str(of) in line and "--files" in line]


def test_fold_case_keeps_the_length() -> None:
    for text in ("ABC", "İstanbul", "straße", "ÄÖÜ", "ǅ"):
        assert len(fold_case(text)) == len(text)
