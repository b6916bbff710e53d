"""Random sequences of file operations, done directly and in a view whose effects are then applied: same tree?

A program of its own, so that it runs as any user: `python view_sequences.py FOLDER FIRST_SEED COUNT [OPTION ...]`. It
prints one JSON line per seed. Options: `copy` puts the layer on another file system, `links` gives the tree hard links,
`undo` restores the tree from the stage in the end.
A third of the applications are killed, at any line of the code, and resumed.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec.structs import replace

from odin.core.effects import ViewLayer
from odin.sandbox.views.applier import ApplyResult, apply_effects, resume_apply
from odin.sandbox.views.effects import read_effects
from odin.sandbox.views.layer import begin_layer, make_layer, remove_layer

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWUSER, _PRIVATE = 0x20000, 0x10000000, 0x44000
_OLD = 10**18
_KILLED_FILES = ("applier.py", "open_tree.py")


def run_in_child(work: Callable[[], object]) -> Any:
    """Run this in a forked child and return its JSON result; None if the child was killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            with os.fdopen(write, "w") as out:
                json.dump(work(), out)
            code = 0
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as result:
        text = result.read()
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return None
    if status:
        raise RuntimeError("the child failed")
    return json.loads(text)


def create_layer(folder: str, reals: Sequence[str]) -> ViewLayer:
    """Return the layer of a view that this user mounts."""
    return begin_layer(make_layer(folder, reals, "user" if os.geteuid() else "trusted"))


def read_clock(folder: str) -> int:
    """Return the time that the file system of a folder gives to a change right now."""
    mark = Path(folder, "clock")
    mark.touch()
    try:
        return mark.stat().st_ctime_ns
    finally:
        mark.unlink()


def enter_view(layer: ViewLayer) -> None:
    """Mount the view over its roots, in namespaces of this process, and drop the privileges needed for it."""
    uid, gid = os.getuid(), os.getgid()
    _check(_LIBC.unshare(_NEWNS if uid == 0 else _NEWNS | _NEWUSER), "unshare")
    options = "redirect_dir=on,index=off,metacopy=off,xino=on,volatile"
    if uid:
        options = "userxattr,volatile"
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _check(_LIBC.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE), None), "mount")
    for root in layer.roots:
        data = f"lowerdir={root.real},upperdir={root.upper},workdir={root.work},{options}"
        real = os.fsencode(root.real)
        _check(_LIBC.mount(b"overlay", real, b"overlay", ctypes.c_ulong(6), os.fsencode(data)), "overlay")
    if uid:
        head = (ctypes.c_uint32 * 2)(0x20080522, 0)
        _check(_LIBC.capset(head, (ctypes.c_uint32 * 6)()), "capset")


def _check(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)


def run_in_view(layer: ViewLayer, work: Callable[[], object]) -> Any:
    def enter_and_work() -> object:
        enter_view(layer)
        os.chdir(layer.roots[0].real)
        return work()

    return run_in_child(enter_and_work)


def wait_for_tick(folder: str) -> None:
    """Wait until files changed from now on have a later time than those changed before."""
    start = read_clock(folder)
    while read_clock(folder) <= start:
        pass


def take_picture(top: str, *, changed: bool = False) -> dict[str, Any]:
    """Return everything about a tree but access times and inode numbers; with `changed` also the change times."""
    picture: dict[str, Any] = {}
    links: dict[int, list[str]] = {}
    modes: dict[str, int] = {}
    for folder, inner, names in os.walk(top):
        for name in inner:
            path = f"{folder}/{name}"
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode) and os.geteuid() and mode & 0o500 != 0o500:
                modes[path] = stat.S_IMODE(mode)
                os.chmod(path, 0o700)
        for name in ("", *names, *(name for name in inner if os.path.islink(f"{folder}/{name}"))):
            path = f"{folder}/{name}".rstrip("/")
            info = os.lstat(path)
            content = ""
            if stat.S_ISREG(info.st_mode):
                with _readable(path, info):
                    content = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
                    content += f" {[(key, os.getxattr(path, key).hex()) for key in sorted(os.listxattr(path))]}"
                links.setdefault(info.st_ino, []).append(os.path.relpath(path, top))
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISDIR(info.st_mode):
                content = f"{sorted(os.listxattr(path))}"
            times = [info.st_mtime_ns, info.st_ctime_ns] if changed else [info.st_mtime_ns]
            mode = stat.S_IMODE(info.st_mode)
            kind = [stat.S_IFMT(info.st_mode), oct(modes.get(path, mode))]
            picture[os.path.relpath(path, top)] = [kind, info.st_uid, info.st_gid, content, *times]
    for path in reversed(modes):
        os.chmod(path, modes[path])
    picture["links"] = sorted(sorted(group) for group in links.values() if len(group) > 1)
    return picture


@contextlib.contextmanager
def _readable(path: str, info: os.stat_result) -> Generator[None]:
    locked = os.geteuid() and not info.st_mode & 0o400
    if locked:
        os.chmod(path, 0o600)
    yield
    if locked:
        os.chmod(path, stat.S_IMODE(info.st_mode))


def _forget_new_times(picture: dict[str, Any], since: int) -> dict[str, Any]:
    """Times that the run itself made count only as new."""
    return {
        path: value if path == "links" else [*value[:4], *("new" if time >= since else time for time in value[4:])]
        for path, value in picture.items()
    }


def build_tree(top: str, seed: int, *, links: bool = False) -> None:
    choice = random.Random(seed * 7 + 1)
    folders, files = [top], list[str]()
    os.mkdir(top)
    for _ in range(choice.randrange(3, 9)):
        path = f"{choice.choice(folders)}/{choice.choice(['d1', 'd2', 'src', 'A', 'x y'])}"
        if not os.path.exists(path):
            os.mkdir(path)
            folders.append(path)
    for number in range(choice.randrange(4, 20)):
        path = f"{choice.choice(folders)}/{choice.choice(['a', 'b', 'c', 'e.txt', 'ünï', '.hid', f'f{number}'])}"
        if not os.path.exists(path):
            Path(path).write_text(f"{choice.random()}")
            os.chmod(path, choice.choice([0o644, 0o755, 0o600, 0o4755]))
            if choice.random() < 0.2:
                os.setxattr(path, "user.note", b"x")
            files.append(path)
    for number in range(2 if links and files else 0):
        os.link(choice.choice(files), f"{choice.choice(folders)}/hl{number}")
    for number in range(2):
        os.symlink("a", f"{choice.choice(folders)}/sl{number}")
    for folder, _, names in os.walk(top, topdown=False):
        for name in sorted(names):
            stamp = _OLD + choice.randrange(10**9)
            os.utime(f"{folder}/{name}", ns=(_OLD, stamp), follow_symlinks=False)
        os.utime(folder, ns=(_OLD, _OLD + choice.randrange(10**9)))


_NAMES = ("a", "b", "c", "A", "long" * 20, "x y", "ünï", os.fsdecode(b"\xff"), ".hid", "d1", "d2", "e.txt")
_ACTS = (
    *("create", "create", "write", "append", "truncate", "replace", "unlink", "rmtree", "recreate", "mkdir", "rename"),
    *(
        "renamedir",
        "exchange",
        "symlink",
        "hardlink",
        "chmod",
        "chmoddir",
        "readonly",
        "unreadable",
        "utime",
        "utimedir",
    ),
    *("utimelink", "fifo", "reopen", "file2dir", "dir2file", "many", "xattr", "sparse"),
)


def operate(seed: int, count: int) -> list[str]:
    """Do random operations in the current folder. The log tells which succeeded."""
    choice = random.Random(seed)
    log: list[str] = []
    for _ in range(count):
        folders, files, links = _list_tree()
        act = choice.choice(_ACTS)
        try:
            _do_operation(act, choice, folders, files, links)
            log.append(act)
        except OSError as error:
            log.append(f"{act}: {errno.errorcode.get(error.errno or 0)}")
    return log


def _list_tree() -> tuple[list[str], list[str], list[str]]:
    folders, files, links = ["."], list[str](), list[str]()
    for folder, inner, names in os.walk("."):
        inner.sort()
        for name in (*inner, *sorted(names)):
            path = f"{folder}/{name}"
            kind = links if os.path.islink(path) else folders if name in inner else files
            kind.append(path)
    return folders, sorted(files), sorted(links)


def _do_operation(act: str, choice: random.Random, folders: list[str], files: list[str], links: list[str]) -> None:
    def pick(paths: list[str]) -> str:
        if not paths:
            raise OSError(errno.ENOENT, "nothing to choose from")
        return choice.choice(paths)

    def write(path: str, mode: str = "w") -> None:
        with open(path, mode) as file:
            file.write(f"{choice.random()}")

    def move(path: str, target: str) -> None:
        # Ordinary users cannot move folders of the real tree in a view.
        if os.geteuid() == 0 or not os.path.isdir(path) or os.path.islink(path):
            os.rename(path, target)

    inner = folders[1:]
    new = f"{choice.choice(folders)}/{choice.choice(_NAMES)}"
    stamp = _OLD + choice.randrange(10**9)
    match act:
        case "create":
            write(new)
        case "write":
            write(pick(files))
        case "append":
            write(pick(files), "a")
        case "truncate":
            os.truncate(pick(files), choice.randrange(5))
        case "replace":
            path = pick(files)
            write(f"{path}~")
            os.rename(f"{path}~", path)
        case "unlink":
            os.unlink(pick(files + links))
        case "rmtree":
            shutil.rmtree(pick(inner), ignore_errors=True)
        case "recreate":
            path = pick(inner)
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path)
            write(f"{path}/r")
        case "mkdir":
            os.makedirs(f"{new}/{choice.choice(_NAMES)}")
        case "rename":
            move(pick(files + links + inner), new)
        case "renamedir":
            move(pick(inner), new)
        case "exchange":
            one, other = pick(inner), pick(inner)
            move(one, f"{one}~")
            move(other, one)
            move(f"{one}~", other)
        case "symlink":
            os.symlink(choice.choice(["a", "../x", "/nonexistent", "d1"]), new)
        case "hardlink":
            os.link(pick(files), new)
        case "chmod":
            os.chmod(pick(files), choice.choice([0o644, 0o755, 0o600, 0o444, 0o000, 0o2755]))
        case "chmoddir":
            os.chmod(pick(inner), choice.choice([0o755, 0o700, 0o775]))
        case "readonly":
            os.chmod(pick(inner), 0o555)
        case "unreadable":
            os.chmod(pick(inner), choice.choice([0o311, 0o333, 0o711]))
        case "utime":
            os.utime(pick(files), ns=(_OLD, stamp))
        case "utimedir":
            os.utime(pick(inner), ns=(_OLD, stamp))
        case "utimelink":
            os.utime(pick(links), ns=(_OLD, stamp), follow_symlinks=False)
        case "fifo":
            os.mkfifo(new)
            os.unlink(new)
        case "reopen":
            os.close(os.open(pick(files), os.O_RDWR))
        case "file2dir":
            path = pick(files)
            os.unlink(path)
            os.mkdir(path)
            write(f"{path}/in")
        case "dir2file":
            path = pick(inner)
            shutil.rmtree(path, ignore_errors=True)
            write(path)
        case "many":
            os.mkdir(new)
            for number in range(20):
                write(f"{new}/{number}")
        case "xattr":
            os.setxattr(pick(files + inner), choice.choice(["user.note", "user.more"]), b"%d" % choice.randrange(9))
        case _:
            with open(new, "wb") as file:
                file.truncate(100_000)
                file.seek(50_000)
                file.write(b"x")


def apply_with_kills(layer: ViewLayer, stage: str, seed: int) -> tuple[ApplyResult, int]:
    """Apply all effects, for every third seed in children that are killed at a random line of the code at first.

    Return the result and the number of kills.
    """
    choice = random.Random(seed)
    effects = read_effects(layer)
    kills = 0

    def apply() -> ApplyResult:
        return resume_apply(stage) or apply_effects(layer, effects, stage)

    for _ in range(choice.randrange(1, 4) if seed % 3 == 0 else 0):
        left = int(10 ** (choice.random() * 3.5))

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(_KILLED_FILES):
                return None
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        def apply_traced() -> int:
            sys.settrace(trace)
            apply()
            sys.settrace(None)
            return 1

        kills += run_in_child(apply_traced) is None
    return apply(), kills


def try_sequence(base: str, seed: int, options: list[str]) -> dict[str, Any]:
    count = random.Random(seed).randrange(1, 25)
    links = "links" in options
    direct, real = f"{base}/direct", f"{base}/real"
    folder = "/dev/shm/effects-layer-" + str(os.getpid()) if "copy" in options else f"{base}/layer"
    since = time.time_ns() - 10**9
    build_tree(direct, seed, links=links)
    build_tree(real, seed, links=links)
    before = take_picture(real, changed=True)

    def operate_directly() -> list[str]:
        os.chdir(direct)
        return operate(seed, count)

    log = run_in_child(operate_directly)
    layer = create_layer(folder, [real])
    wait_for_tick(folder)
    layer = replace(layer, since=read_clock(folder))
    result: dict[str, Any] = {"seed": seed, "equal": False}
    try:
        seen = run_in_view(layer, lambda: operate(seed, count))
        if take_picture(real, changed=True) != before:
            return result | {"why": "the real tree changed before it was applied"}
        if seen != log:
            return result | {
                "why": "operations differ",
                "log": [pair for pair in zip(log, seen, strict=True) if len({*pair}) > 1],
            }
        stage = f"{folder}/stage"
        effects = read_effects(layer)
        if effects != read_effects(layer):
            return result | {"why": "reading the effects changed them"}
        if refused := [effect.path for effect in effects if effect.refusal]:
            return result | {"refused": refused}
        done, kills = apply_with_kills(layer, stage, seed)
        result |= {"kills": kills, "conflicts": [[item.path, item.reason] for item in done.conflicts]}
        ours, theirs = (_forget_new_times(take_picture(top), since) for top in (real, direct))
        differing = {path: (theirs.get(path), ours.get(path)) for path in ours.keys() | theirs.keys()}
        differing = {path: both for path, both in differing.items() if both[0] != both[1]}
        result |= {"equal": not differing and not done.conflicts, "differing": differing}
        if "undo" in options and result["equal"]:
            kept = undo(stage, f"{folder}/store")
            ours, theirs = (_drop_all_but_content(picture) for picture in (take_picture(real), before))
            if ours != theirs and not kept:
                result |= {"equal": False, "why": "undo gives another tree"}
        return result
    finally:
        remove_layer(layer)
        if os.path.lexists(folder):
            result["equal"] = False


def undo(stage: str, store_folder: str) -> list[str]:
    """Restore the tree from the stage, and return what undo leaves alone, such as a link in place of a folder."""
    # Late, because these take long to load.
    from odin.checkpoints.rewind import plan_restore, restore_files
    from odin.checkpoints.store import CheckpointStore
    from odin.checkpoints.view_changes import list_view_changes
    from odin.session.history import RecordedChange

    store = CheckpointStore(Path(store_folder))
    changes = list_view_changes(stage, lambda path, info: store.keep(Path(path).read_bytes()))
    done = restore_files(plan_restore(map(RecordedChange, changes), store, force=False), store)
    return [item.path for item in done.kept]


def _drop_all_but_content(picture: dict[str, Any]) -> dict[str, Any]:
    return {
        path: [value[0], value[3].partition(" ")[0] * (value[0][0] != stat.S_IFDIR)]
        for path, value in picture.items()
        if path != "links"
    }


def _remove(top: str) -> None:
    for folder, inner, _ in os.walk(top):
        for name in inner:
            if not os.path.islink(f"{folder}/{name}"):
                os.chmod(f"{folder}/{name}", 0o700)
    shutil.rmtree(top)


def main(base: str, first: str, count: str, *options: str) -> None:
    for seed in range(int(first), int(first) + int(count)):
        folder = f"{base}/{seed}"
        os.mkdir(folder)
        try:
            result = try_sequence(folder, seed, list(options))
        except OSError as error:
            result = {"seed": seed, "equal": False, "why": f"{type(error).__name__}: {error}"}
            if error.filename in ("unshare", "mount", "overlay"):
                result["skip"] = f"this user cannot mount a view: {error}"
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
        _remove(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
