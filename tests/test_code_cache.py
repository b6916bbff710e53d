"""The file that holds the byte code of known modules: it is used, and no fault of it is ever noticed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import odin
from tests.waiting import LIMIT_S

PROBE = """
import sys
from odin.entry import main
sys.argv = ["odin", "sessions", "--help"]
main()
from odin.commands import command_line
print(type(command_line.__loader__).__name__, command_line.write_output.__code__.co_filename, command_line.__doc__)
"""
FROM_FILE, AS_USUAL = "_CachedLoader", "SourceFileLoader"


def start(package: Path, *flags: str, **env: str) -> "subprocess.Popen[str]":
    env = {"PATH": os.environ["PATH"], "HOME": str(package.parent), "PYTHONPATH": str(package.parent), **env}
    command = [sys.executable, *flags, "-c", PROBE]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(package: Path, *flags: str, **env: str) -> list[str]:
    """Return the loader of a module, the path in its code, and its docstring."""
    return start(package, *flags, **env).communicate(timeout=LIMIT_S)[0].splitlines()[-1].split(maxsplit=2)


def locate_file(package: Path) -> Path:
    return package / "__pycache__" / f"modules.{sys.implementation.cache_tag}.pyc"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("modules.*.pyc*")
    return Path(shutil.copytree(Path(odin.__file__).parent, tmp_path / "a" / "odin", ignore=ignored))


def test_known_modules_come_from_one_file_until_their_source_changes(package: Path, tmp_path: Path) -> None:
    assert run(package)[0] == AS_USUAL
    assert run(package)[0] == FROM_FILE
    source = package / "commands" / "command_line.py"
    source.write_text(source.read_text().replace('"""', '"""CHANGED ', 1))
    loader, _, text = run(package)
    assert loader == AS_USUAL
    assert text.startswith("CHANGED")
    loader, path, text = run(package)
    assert (loader, path) == (FROM_FILE, str(source))
    assert text.startswith("CHANGED")

    copy = Path(shutil.copytree(package, tmp_path / "b" / "odin"))
    assert run(copy)[:2] == [FROM_FILE, str(copy / "commands" / "command_line.py")]


def damage_code(file: Path) -> None:
    data = file.read_bytes()
    start_of_code = 12 + int.from_bytes(data[8:12], "little")
    file.write_bytes(data[:start_of_code] + bytes(len(data) - start_of_code))


def replace_by_folder(file: Path) -> None:
    file.unlink()
    (file / "x").mkdir(parents=True)


FAULTS: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "other Python": lambda file: file.write_bytes(b"x" * 4 + file.read_bytes()[4:]),
    "other version": lambda file: file.write_bytes(file.read_bytes()[:4] + b"old" * 1000),
    "cut in the index": lambda file: file.write_bytes(file.read_bytes()[:500]),
    "cut in the code": lambda file: file.write_bytes(file.read_bytes()[:-100_000]),
    "zeros instead of code": damage_code,
    "cannot be written": replace_by_folder,
}


def test_a_damaged_file_is_as_good_as_none(package: Path) -> None:
    expected = run(package)[1:]
    intact = locate_file(package).read_bytes()
    for name, damage in FAULTS.items():
        damage(locate_file(package))
        assert run(package)[1:] == expected, name
        assert not list(package.glob("__pycache__/modules.*.pyc.*")), name
        shutil.rmtree(locate_file(package), ignore_errors=True)
        locate_file(package).write_bytes(intact)


def test_it_is_written_where_byte_code_is_written(package: Path, tmp_path: Path) -> None:
    run(package, PYTHONDONTWRITEBYTECODE="1")
    run(package, PYTHONPYCACHEPREFIX=str(tmp_path / "elsewhere"))
    assert not locate_file(package).exists()
    assert run(package, PYTHONPYCACHEPREFIX=str(tmp_path / "elsewhere"))[0] == FROM_FILE
    assert run(package, "-O")[0] == run(package)[0] == AS_USUAL  # without assertions: other byte code


def test_several_processes_write_it_at_once(package: Path) -> None:
    for process in [start(package) for _ in range(4)]:
        process.communicate(timeout=LIMIT_S)
    assert [file.name for file in package.glob("__pycache__/modules.*")] == [locate_file(package).name]
    assert run(package)[0] == FROM_FILE
