"""Make the effects of a command real.

Each file appears, changes or goes in one rename. What is replaced or deleted is moved to the stage folder, as the
checkpoint of the command. A plan is written to the stage first, and every step finds out itself whether it was done, so
that after a kill at any moment `resume_apply` completes it. Nothing is synced to the disk, as the command would not
have done either.

Nothing that others changed after the command started is overwritten. Such files are found by their change time before
the first step. Whoever comes after that is found by exchanging the new file with the old one: if something else than
expected comes out, it is swapped back.

Order: in the old layout, innermost first, files are deleted and folders deleted or moved away; in the new layout,
outermost first, folders are moved in or made and files put there; at last folders get their modes and times, innermost
first. If the layer or the stage is on another file system than the files, new files are copied to a temporary name
beside their target first, and old ones from there to the stage.
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from odin.core.effects import FileEffect, ViewLayer
from odin.core.event_values import SkippedFile
from odin.core.path_names import contains, decode_path, make_temporary_name
from odin.sandbox.views.effects import GONE, find_outer, has_same_content
from odin.sandbox.views.open_tree import (
    EXCHANGE,
    NOREPLACE,
    OpenTree,
    Place,
    copy_file,
    find_status,
    get_kind,
    is_origin,
    point_at,
    read_attributes,
    read_marks,
    rename,
    strip_marks,
)

CHANGED = "it was changed meanwhile"
CREATED = "it was created meanwhile"
NOT_EMPTY = "it contains other files"
SPECIAL = "sockets, pipes and devices are left out"

JOURNAL, _CLEARED, DONE = "journal", "cleared", "done"
_CLEARING = ("delete", "rmdir", "away")


class FileIdentity(Struct, frozen=True, array_like=True):
    """What a rename leaves as it is, so that a file is recognized wherever it is."""

    inode: int
    modified: int
    size: int
    mode: int


class ApplyStep(Struct, frozen=True, omit_defaults=True):
    """One step of a plan. Paths are relative to the root.

    `path` is the target; for `away` and `in`, `source` is where the folder was. `old` is the file that must be there,
    `new` the one in the upper layer. `temporary` is the name beside the target if files are copied, `link` the step
    whose file this one is a hard link to. For `folder`, `new` holds mode and time; a time of 0 leaves it alone.
    """

    act: Literal["delete", "rmdir", "away", "in", "make", "put", "set", "folder"]
    path: str
    effect: int = -1
    source: str = ""
    old: FileIdentity | None = None
    new: FileIdentity = FileIdentity(0, 0, 0, 0)
    root: int = 0
    temporary: str = ""
    link: int = -1


class ApplyJournal(Struct, frozen=True):
    """A plan, and in the end why some effects (by number) could not be applied."""

    layer: ViewLayer
    effects: tuple[FileEffect, ...]
    steps: tuple[ApplyStep, ...]
    failed: dict[int, str] = {}


class ApplyResult(Struct, frozen=True):
    """`conflicts` were not applied; if they were there before the first step, nothing was. `skipped` never can be."""

    applied: tuple[FileEffect, ...] = ()
    conflicts: tuple[SkippedFile, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


class _Conflict(Exception):
    """Others changed the path; the message is the reason."""


def apply_effects(layer: ViewLayer, effects: Iterable[FileEffect], stage: str) -> ApplyResult:
    """Make these effects real: all that `read_effects` returned, or some of them. Folders that they need are made.

    `stage` is a folder for this alone, best on the file system of the files. With conflicts, nothing is changed.
    """
    chosen = tuple(effects)
    Path(stage).mkdir(0o700, parents=True, exist_ok=True)
    if load_journal(stage) is not None:
        raise FileExistsError(stage)
    steps, conflicts = _plan(layer, chosen, stage)
    if conflicts:
        return ApplyResult(conflicts=conflicts, skipped=_list_skipped(chosen))
    journal = ApplyJournal(layer, chosen, steps)
    # Unlike msgspec's, this encoder keeps names that are not valid Unicode.
    _write(stage, JOURNAL, json.dumps(msgspec.to_builtins(journal)).encode())
    return _carry_out(journal, stage)


def resume_apply(stage: str) -> ApplyResult | None:
    """Complete what a killed process has begun. None if it had not begun."""
    journal = load_journal(stage)
    return None if journal is None else _carry_out(journal, stage)


def find_conflicts(layer: ViewLayer, effects: Iterable[FileEffect]) -> tuple[SkippedFile, ...]:
    """Return the effects that cannot be applied now, and why."""
    return _plan(layer, tuple(effects), layer.folder)[1]


def load_journal(stage: str) -> ApplyJournal | None:
    """Return the journal of an apply that has begun; `failed` is complete when it has ended."""
    try:
        journal = msgspec.convert(json.loads(Path(stage, JOURNAL).read_bytes()), ApplyJournal)
    except FileNotFoundError:
        return None
    return replace(journal, failed=_read_failed(stage, DONE) or {})


def _read_failed(stage: str, name: str) -> dict[int, str] | None:
    try:
        return msgspec.json.decode(Path(stage, name).read_bytes(), type=dict[int, str])
    except FileNotFoundError:
        return None


def _write(stage: str, name: str, data: bytes) -> None:
    unfinished = Path(stage, f"{name}.new")
    unfinished.write_bytes(data)
    unfinished.replace(Path(stage, name))


def _plan(
    layer: ViewLayer, effects: tuple[FileEffect, ...], stage: str
) -> tuple[tuple[ApplyStep, ...], tuple[SkippedFile, ...]]:
    """Return the steps, and the conflicts because of which they must not be taken."""
    conflicts = {at: effect.refusal for at, effect in enumerate(effects) if effect.refusal}
    steps: list[ApplyStep] = []
    for number, root in enumerate(layer.roots):
        with OpenTree(root.upper) as upper, OpenTree(root.real) as real:
            planned = _plan_root(effects, root.real, upper, real, layer, conflicts)
        copies = len(set(map(_identify_mount, (root.real, root.upper, stage)))) > 1
        holds: dict[int, str] = {}
        for step in planned:
            temporary = ""
            if copies and step.act in ("delete", "put", "away"):
                temporary = make_temporary_name((step.source or step.path).rpartition("/")[2])
                holds[step.effect] = temporary
            if copies and step.act == "in":
                temporary = holds[step.effect]
            steps.append(replace(step, root=number, temporary=temporary))
    steps.sort(key=lambda step: step.act not in _CLEARING)
    links: dict[tuple[int, int], int] = {}
    for at, step in enumerate(steps):
        if step.act == "put":
            first = links.setdefault((step.root, step.new.inode), at)
            steps[at] = replace(step, link=first if first != at else -1)
    return tuple(steps), tuple(SkippedFile(effects[at].path, reason) for at, reason in conflicts.items())


def _plan_root(
    effects: tuple[FileEffect, ...],
    top: str,
    upper: OpenTree,
    real: OpenTree,
    layer: ViewLayer,
    conflicts: dict[int, str],
) -> list[ApplyStep]:
    """Plan the effects of one root. Note in `conflicts`, by number, what cannot be applied and why."""
    since = layer.since
    own: list[tuple[int, FileEffect, str, str]] = []
    for at, effect in enumerate(effects):
        path, source = decode_path(effect.path), decode_path(effect.source)
        if contains(top, path) and at not in conflicts and effect.after != "other":
            own.append((at, effect, path[len(top) :].lstrip("/"), source[len(top) :].lstrip("/")))
    deleted = {path for _, effect, path, _ in own if effect.kind == "deleted"}
    moves = {source: path for _, effect, path, source in own if effect.kind == "moved"}
    origins = {path: source for source, path in moves.items()}

    def find_old(path: str) -> os.stat_result | None:
        """Find what is now at the place that will have this path."""
        outer = find_outer(path, origins)
        place = path if outer is None else f"{origins[outer]}{path.removeprefix(outer)}"
        away = find_outer(place, moves)
        if place in deleted or (away is not None and (outer is None or origins[outer] != away)):
            return None
        return real.find(place)

    exchanged: dict[str, bool] = {"": False}

    def is_exchanged(folder: str) -> bool:
        """True if the command saw another folder at this place, or in place of one around it."""
        if folder not in exchanged:
            outer = folder.rpartition("/")[0]
            exchanged[folder] = is_exchanged(outer)
            old, new = real.find(folder), upper.find(folder)
            if get_kind(old) == get_kind(new) == "folder" and find_outer(folder, origins) is None:
                marks = read_marks(point_at(upper.locate(folder)), layer.prefix)
                exchanged[folder] |= not is_origin(marks.get("origin", b""), real.locate(folder))
        return exchanged[folder]

    first: list[ApplyStep] = []
    then: list[ApplyStep] = []
    folders: dict[str, ApplyStep] = {}
    entered: set[str] = set()
    for at, effect, path, source in own:
        if effect.kind != "created" and is_exchanged(path.rpartition("/")[0]):
            conflicts[at] = GONE
        if effect.kind == "deleted":
            old = real.find(path)
            if old is None:
                continue  # others deleted it, too
            if _is_later(old, since):  # a folder that was moved here, too
                conflicts[at] = CHANGED
            if effect.before == "folder":
                names = (f"{path}/{name}" for name in real.list_names(path))
                if any(name not in deleted and name not in moves for name in names):
                    conflicts[at] = NOT_EMPTY
            first.append(ApplyStep("rmdir" if effect.before == "folder" else "delete", path, at, old=_identify(old)))
        elif effect.kind == "moved":
            old = real.find(source)
            if old is None or get_kind(old) != "folder":
                conflicts[at] = GONE
                continue
            first.append(ApplyStep("away", path, at, source, _identify(old)))
            then.append(ApplyStep("in", path, at, source, _identify(old)))
        else:
            old, new = find_old(path), upper.find(path)
            if new is None:
                raise FileNotFoundError(effect.path)
            if old is not None and _is_later(old, since) and effect.after != "folder" and old.st_mode == new.st_mode:
                is_done = has_same_content(path, new, source or path, old, upper, real)
                if is_done:  # others did the same: two commands of git write the same object
                    continue
            if effect.kind == "created":
                if old is not None and (get_kind(old), effect.after) != ("folder", "folder"):
                    conflicts[at] = CREATED
            elif old is None:
                conflicts[at] = GONE
            elif _is_later(old, since) if effect.after != "folder" else stat.S_IMODE(old.st_mode) != effect.mode_before:
                conflicts[at] = CHANGED
            if effect.after == "folder":
                if old is None:
                    then.append(ApplyStep("make", path, at))
                if old is None or effect.kind != "created":
                    folders[path] = ApplyStep("folder", path, at, new=_identify(new))
            else:
                act = "set" if effect.kind in ("attributes", "touched") else "put"
                then.append(ApplyStep(act, path, at, old=None if old is None else _identify(old), new=_identify(new)))
    # The folders, in the new layout, in which names come and go: they keep their modes, and their times if the command
    # did not change them. Missing ones are made. Those above them may need another mode meanwhile.
    for step in first:
        folder = (step.source or step.path).rpartition("/")[0]
        outer = find_outer(folder, moves)
        if folder not in deleted:
            entered.add(folder if outer is None else f"{moves[outer]}{folder.removeprefix(outer)}")
    entered |= {step.path.rpartition("/")[0] for step in then if step.act != "set"}
    entered |= {""} if moves else set()  # where they may be held meanwhile
    above = {""}
    for folder in entered:
        while (folder := folder.rpartition("/")[0]) not in above:
            above.add(folder)
    for folder in (entered | above) - folders.keys():
        old, new = find_old(folder), upper.find(folder)
        if old is None and new is not None and get_kind(new) == "folder":
            then.append(ApplyStep("make", folder))
            folders[folder] = ApplyStep("folder", folder, new=_identify(new))
        elif old is not None:
            is_kept = folder in entered and new is not None and new.st_mtime_ns == old.st_mtime_ns
            if is_kept or old.st_mode & 0o700 != 0o700:
                identity = replace(_identify(old), modified=old.st_mtime_ns if is_kept else 0)
                folders[folder] = ApplyStep("folder", folder, new=identity)
    first.sort(key=lambda step: (step.source or step.path).split("/"), reverse=True)
    then.sort(key=lambda step: step.path.split("/"))
    return [*first, *then, *sorted(folders.values(), key=lambda step: step.path.split("/"), reverse=True)]


def _is_later(status: os.stat_result, since: int) -> bool:
    """True if a file changed after this time, or may have: some file systems count whole seconds."""
    second = 1_000_000_000
    return status.st_ctime_ns >= (since if status.st_ctime_ns % second else since - since % second)


def _identify(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)


def _identify_mount(path: str) -> tuple[int, str]:
    """Return what must be equal for two folders so that files can be renamed from one to the other."""
    with OpenTree(path) as tree, open(f"/proc/self/fdinfo/{tree.fd}", encoding="ascii") as lines:  # noqa: PTH123
        return os.fstat(tree.fd).st_dev, next(line for line in lines if line.startswith("mnt_id:"))


def _carry_out(journal: ApplyJournal, stage: str) -> ApplyResult:
    failed = _read_failed(stage, DONE)
    if failed is None:
        with contextlib.ExitStack() as stack:
            failed = _Applier(journal, stage, stack).run()
        _write(stage, DONE, msgspec.json.encode(failed))
    return ApplyResult(
        tuple(effect for at, effect in enumerate(journal.effects) if at not in failed and effect.after != "other"),
        tuple(SkippedFile(journal.effects[at].path, reason) for at, reason in failed.items()),
        _list_skipped(journal.effects),
    )


def _list_skipped(effects: tuple[FileEffect, ...]) -> tuple[SkippedFile, ...]:
    return tuple(SkippedFile(effect.path, SPECIAL) for effect in effects if effect.after == "other")


class _Applier:
    def __init__(self, journal: ApplyJournal, stage: str, stack: contextlib.ExitStack) -> None:
        self._journal = journal
        self._folder = stage
        self._prefix = journal.layer.prefix
        self._stage = stack.enter_context(OpenTree(stage)).fd
        roots = journal.layer.roots
        self._uppers = [stack.enter_context(OpenTree(root.upper, writable=True)) for root in roots]
        self._reals = [stack.enter_context(OpenTree(root.real, writable=True)) for root in roots]

    def run(self) -> dict[int, str]:
        """Take all steps, and return the reasons of effects that failed."""
        # A new folder can have the name and even the inode of a deleted one: what was cleared is not cleared again.
        cleared = _read_failed(self._folder, _CLEARED)
        failed = cleared or {}
        for number, step in enumerate(self._journal.steps):
            if step.act in _CLEARING:
                if cleared is not None:
                    continue
            elif cleared is None:
                cleared = failed
                _write(self._folder, _CLEARED, msgspec.json.encode(failed))
            if step.effect in failed:
                continue
            upper, real = self._uppers[step.root], self._reals[step.root]
            try:
                match step.act:
                    case "delete":
                        self._delete(number, step, real)
                    case "put":
                        self._put(number, step, upper, real)
                    case "set":
                        self._set(step, upper, real)
                    case "folder":
                        self._finish_folder(step, upper, real)
                    case _:
                        self._arrange_folder(step, real)
            except (_Conflict, OSError) as error:
                if step.effect >= 0:
                    reason = f"it cannot be written: {error.strerror}" if isinstance(error, OSError) else str(error)
                    failed[step.effect] = reason
        return failed

    def _arrange_folder(self, step: ApplyStep, real: OpenTree) -> None:
        real.forget()
        if step.act == "make":
            target = real.locate(step.path)
            try:
                os.mkdir(target[1], 0o700, dir_fd=target[0])
            except FileExistsError:
                if get_kind(find_status(target)) != "folder":
                    raise _Conflict(CREATED) from None
            return
        if step.act == "rmdir":
            try:
                fd, name = real.locate(step.path)
                os.rmdir(name, dir_fd=fd)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise _Conflict(NOT_EMPTY) from None
            return
        hold = (real.fd, step.temporary) if step.temporary else (self._stage, f"moved.{step.effect}")
        is_held = find_status(hold) is not None
        if step.act == "away" and not is_held:
            found = real.find(step.source)
            if found is None or step.old is None or found.st_ino != step.old.inode:
                raise _Conflict(GONE)
            real.enter(step.source)  # makes it writable, which changing its `..` needs
            rename(real.locate(step.source), hold, NOREPLACE)
        elif step.act == "in" and is_held:
            try:
                rename(hold, real.locate(step.path), NOREPLACE)
            except OSError:
                rename(hold, real.locate(step.source), NOREPLACE)
                raise _Conflict(CREATED) from None

    def _delete(self, number: int, step: ApplyStep, real: OpenTree) -> None:
        try:
            target = real.locate(step.path)
        except (FileNotFoundError, NotADirectoryError):
            return
        stage = (self._stage, str(number))
        place = (target[0], step.temporary) if step.temporary else stage
        status = find_status(place)
        if status is None:
            status = find_status(target)
            if status is None or find_status(stage) is not None:
                return
            if _identify(status) != step.old:
                raise _Conflict(CHANGED)
            rename(target, place, NOREPLACE)
            status = find_status(place)
        if status is not None and _identify(status) != step.old:
            try:
                rename(place, target, NOREPLACE)
            except FileExistsError:  # the latest one stays
                self._keep(place, number, step)
            raise _Conflict(CHANGED)
        self._keep(place, number, step)

    def _put(self, number: int, step: ApplyStep, upper: OpenTree, real: OpenTree) -> None:
        target = real.locate(step.path)
        place = (target[0], step.temporary) if step.temporary else upper.locate(step.path)
        status = find_status(place)
        if status is None:
            if not step.temporary or find_status((self._stage, str(number))) is not None:
                return
            if self._is_new(step, find_status(target)) and step.old is None:
                return
            self._copy_new(step, upper, real)
            target = real.locate(step.path)
            place = (target[0], step.temporary)
            status = find_status(place)
        if self._is_new(step, status):
            if not step.temporary:
                strip_marks(place, self._prefix, stat.S_IMODE(step.new.mode))
            found = find_status(target)
            if step.old is None and found is None:
                try:
                    rename(place, target, NOREPLACE)
                except FileExistsError:
                    found = find_status(target)
                else:
                    return
            if step.old is None and found is not None and found.st_mode == step.new.mode:
                new = upper.find(step.path)
                if new is not None and has_same_content(step.path, new, step.path, found, upper, real):
                    if step.temporary:
                        os.unlink(place[1], dir_fd=place[0])
                    return  # others did the same after this was planned
            if found is None or step.old is None or _identify(found) != step.old:
                self._give_up(step, place, GONE if found is None else CREATED if step.old is None else CHANGED)
            rename(place, target, EXCHANGE)
            status = find_status(place)
        if status is not None and _identify(status) != step.old:
            with contextlib.suppress(FileNotFoundError):  # it was deleted at the same moment
                rename(place, target, EXCHANGE)
                if self._is_new(step, find_status(place)):
                    self._give_up(step, place, CHANGED)
                rename(place, target, EXCHANGE)  # it was changed once more: the latest one stays
            self._keep(place, number, step)
            raise _Conflict(CHANGED)
        self._keep(place, number, step)

    @staticmethod
    def _give_up(step: ApplyStep, place: Place, reason: str) -> NoReturn:
        if step.temporary:
            os.unlink(place[1], dir_fd=place[0])
        raise _Conflict(reason)

    @staticmethod
    def _is_new(step: ApplyStep, status: os.stat_result | None) -> bool:
        if status is None:
            return False
        if step.temporary:
            return (status.st_mtime_ns, status.st_size) == (step.new.modified, step.new.size)
        return status.st_ino == step.new.inode

    def _copy_new(self, step: ApplyStep, upper: OpenTree, real: OpenTree) -> None:
        """Copy a file of the upper layer to its temporary name, or link it if another link of it is in place."""
        other = self._journal.steps[step.link] if step.link >= 0 else None
        if other is not None and self._is_new(other, real.find(other.path)):
            fd, name = real.locate(other.path)
            folder = os.dup(fd)  # entering the other one closes it
            try:
                os.link(
                    name, step.temporary, src_dir_fd=folder, dst_dir_fd=real.locate(step.path)[0], follow_symlinks=False
                )
            finally:
                os.close(folder)
        else:
            place = (real.locate(step.path)[0], step.temporary)
            copy_file(upper.locate(step.path), place, stat.S_IMODE(step.new.mode), self._prefix)

    def _keep(self, place: Place, number: int, step: ApplyStep) -> None:
        """Move what was replaced or deleted to the stage."""
        stage = (self._stage, str(number))
        if not step.temporary:
            if place != stage:
                rename(place, stage, 0)
            return
        status = find_status(place)
        if status is not None and get_kind(status) in ("file", "link"):
            copy_file(place, stage, stat.S_IMODE(status.st_mode))
        os.unlink(place[1], dir_fd=place[0])

    def _set(self, step: ApplyStep, upper: OpenTree, real: OpenTree) -> None:
        """Change the attributes of a file in place. Its content and its other links stay as they are."""
        place, new, old = real.locate(step.path), step.new, step.old
        source = upper.locate(step.path)
        status = find_status(source)
        if status is None or old is None:
            raise _Conflict(GONE)
        fd = os.open(place[1], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place[0])
        try:
            found = os.fstat(fd)
            is_same = (found.st_ino, found.st_size) == (old.inode, old.size)
            if not is_same or found.st_mtime_ns not in (old.modified, new.modified):
                raise _Conflict(CHANGED)
            if stat.S_ISLNK(found.st_mode):
                os.chown(place[1], status.st_uid, status.st_gid, dir_fd=place[0], follow_symlinks=False)
                os.utime(place[1], ns=(status.st_atime_ns, new.modified), dir_fd=place[0], follow_symlinks=False)
                return
            self._copy_attributes(fd, found, read_attributes(point_at(source), self._prefix), status)
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(new.mode))  # noqa: PTH101
            os.utime(f"/proc/self/fd/{fd}", ns=(status.st_atime_ns, new.modified))
        finally:
            os.close(fd)

    def _finish_folder(self, step: ApplyStep, upper: OpenTree, real: OpenTree) -> None:
        fd = real.enter(step.path)
        path, status, new = f"/proc/self/fd/{fd}", os.fstat(fd), step.new
        if step.effect >= 0:
            source = upper.enter(step.path)
            wanted = read_attributes(f"/proc/self/fd/{source}", self._prefix, is_open=True)
            self._copy_attributes(fd, status, wanted, os.fstat(source))
        if stat.S_IMODE(os.fstat(fd).st_mode) != stat.S_IMODE(new.mode):
            os.chmod(path, stat.S_IMODE(new.mode))  # noqa: PTH101
        if new.modified and status.st_mtime_ns != new.modified:
            os.utime(path, ns=(status.st_atime_ns, new.modified))

    @staticmethod
    def _copy_attributes(
        fd: int, current: os.stat_result, ours: dict[str, bytes] | None, wanted: os.stat_result
    ) -> None:
        """Give an open path of the real tree the owner and the extended attributes of one in the upper layer."""
        path = f"/proc/self/fd/{fd}"
        if (current.st_uid, current.st_gid) != (wanted.st_uid, wanted.st_gid):
            os.chown(path, wanted.st_uid, wanted.st_gid)
        if ours is None or ours == read_attributes(path, is_open=True):
            return
        if os.geteuid():
            os.chmod(path, stat.S_IMODE(current.st_mode) | 0o600)  # noqa: PTH101
        theirs = read_attributes(path, is_open=True) or {}
        for name in ours.keys() | theirs.keys():
            if name not in ours:
                os.removexattr(path, name)
            elif theirs.get(name) != ours[name]:
                os.setxattr(path, name, ours[name])
