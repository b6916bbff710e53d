"""Commands that tell what files there are, and how they differ."""

import os

from odin.policy.command.harmless.options import (
    GlobMatch,
    ParsedOptions,
    ReadOnlyCommand,
    has_any_operands,
    has_inside_paths,
    has_no_operands,
    has_only_names,
    has_readable_files,
)
from odin.policy.command.harmless.place import ReadScope, TreeScan
from odin.policy.paths import is_folder, resolve_path

_DIGEST = ReadOnlyCommand(has_readable_files, "btz", "binary text tag zero")


def _check_comparison(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Two files, or two folders: files in those are read through links, so there must be none that lead anywhere."""
    if any(not word.isdigit() for word in parsed.operands[2:]):
        return False
    for word in parsed.operands[:2]:
        found = resolve_path(word, scope.cwd)
        folder = found is not None and is_folder(found)
        if not (
            scope.allows_path(word) and TreeScan(follow_links=True).is_clear(word, scope)
            if folder
            else scope.allows_content(word)
        ):
            return False
    return True


def _check_df(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """The size of a whole file system may be asked for, wherever it begins."""
    return all(word in ("/", "/tmp") or scope.allows_path(word) for word in parsed.operands)


_NAME_ONLY_OPTIONS = ("d", "directory", "1", "a", "A", "r", "p", "Q", "color")
"""Options of ls with which it prints names only."""


def _is_link_match(word: str, scope: ReadScope, *, slash: bool = False) -> bool:
    """A pattern stands for whatever is there, be it a link that leads out. A slash behind it would follow that."""
    return isinstance(word, GlobMatch) and (slash or not word.endswith("/")) and scope.allows_name(word)


def _has_named_paths(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Paths of which a link among them is shown as a link."""
    return all(scope.allows_path(word) or _is_link_match(word, scope) for word in parsed.operands)


def _check_ls(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """With -d or -l a link is shown as a link; otherwise a folder behind it is opened.

    Some versions know -I and -w without a value: what follows is a folder to them.
    """
    if not all(scope.allows_path(value) for value in parsed.values_of("I", "w")):
        return False
    if parsed.has("d", "directory"):
        bare = all(name in _NAME_ONLY_OPTIONS for name, _ in parsed.options)
        return all(scope.allows_path(word) or _is_link_match(word, scope, slash=bare) for word in parsed.operands)
    long = parsed.has("l") and not parsed.has("C", "x", "m", "1", "format", "zero")
    return _has_named_paths(parsed, scope) if long else has_inside_paths(parsed, scope)


def _check_readlink(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Without an option that resolves it, only the text of a link is shown."""
    plain = not parsed.has("f", "e", "m", "canonicalize", "canonicalize-existing", "canonicalize-missing")
    return all(scope.allows_path(word) or (plain and scope.allows_name(word)) for word in parsed.operands)


def _check_stat(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return (
        has_inside_paths(parsed, scope)
        if parsed.has("L", "f", "dereference", "file-system")
        else _has_named_paths(parsed, scope)
    )


def _check_file(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return (
        has_inside_paths(parsed, scope)
        if parsed.has("L", "dereference") or os.environ.get("POSIXLY_CORRECT")
        else _has_named_paths(parsed, scope)
    )


FILE_COMMANDS: dict[str, ReadOnlyCommand] = {
    "pwd": ReadOnlyCommand(has_no_operands, "LP", "logical physical"),
    "ls": ReadOnlyCommand(
        _check_ls,
        "aAbBcCdfFgGhiklmnNopqQrRsStTuUvw:xXZ1I:",
        "all almost-all author escape block-size= ignore-backups color? directory classify? file-type format= "
        "full-time group-directories-first no-group human-readable si hide= hyperlink? indicator-style= inode ignore= "
        "kibibytes numeric-uid-gid literal hide-control-chars quote-name quoting-style= reverse recursive size sort= "
        "time= time-style= tabsize= width= context zero",
    ),
    "dir": ReadOnlyCommand(has_inside_paths, "aAlhrRtS1", "all color?"),
    "cat": ReadOnlyCommand(
        has_readable_files,
        "AbeEnstTuv",
        "number number-nonblank show-all show-ends show-tabs squeeze-blank show-nonprinting",
    ),
    "head": ReadOnlyCommand(
        has_readable_files, "n:c:qvz", "lines= bytes= quiet verbose silent zero-terminated", takes_number=True
    ),
    "tail": ReadOnlyCommand(
        has_readable_files, "n:c:qvz", "lines= bytes= quiet verbose silent zero-terminated", takes_number=True
    ),
    "wc": ReadOnlyCommand(has_readable_files, "lwcmL", "lines words bytes chars max-line-length total="),
    "stat": ReadOnlyCommand(_check_stat, "c:tfLx", "format= printf= terse file-system dereference cached="),
    "file": ReadOnlyCommand(
        _check_file,
        "bikhNLIErF:",
        "brief mime mime-type mime-encoding no-dereference dereference extension separator= raw",
    ),
    "du": ReadOnlyCommand(
        _has_named_paths,
        "shackmbxd:St:0B:",
        "summarize human-readable all total max-depth= bytes apparent-size block-size= exclude= one-file-system "
        "separate-dirs si threshold= null time? time-style= inodes",
    ),
    "df": ReadOnlyCommand(
        _check_df,
        "hHTiaklPt:x:mB:",
        "human-readable si print-type inodes all local portability total type= exclude-type= block-size= output?",
    ),
    "which": ReadOnlyCommand(has_only_names, "as", "all"),
    "whereis": ReadOnlyCommand(has_only_names, "bms"),
    "basename": ReadOnlyCommand(has_any_operands, "as:z", "multiple suffix= zero"),
    "dirname": ReadOnlyCommand(has_any_operands, "z", "zero"),
    "readlink": ReadOnlyCommand(
        _check_readlink,
        "femnqsvz",
        "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero",
    ),
    "realpath": ReadOnlyCommand(
        has_inside_paths,
        "emqszLP",
        "canonicalize-existing canonicalize-missing quiet strip no-symlinks zero logical physical relative-to= "
        "relative-base=",
    ),
    "tree": ReadOnlyCommand(
        has_inside_paths,
        "adfiCDhpstL:P:I:qNQugFAnSrvcUJX",
        "dirsfirst noreport filelimit= gitignore prune du si inodes device sort= timefmt= matchdirs ignore-case "
        "charset= filesfirst",
        is_unbundled=True,
    ),
    "cmp": ReadOnlyCommand(_check_comparison, "bln:si:", "print-bytes verbose silent quiet bytes= ignore-initial="),
    "comm": ReadOnlyCommand(
        has_readable_files, "123z", "total check-order nocheck-order output-delimiter= zero-terminated"
    ),
    "diff": ReadOnlyCommand(
        _check_comparison,
        "ubwBiqrNcU:C:ydsatETEpI:W:nex:",
        "unified? context? brief recursive ignore-case ignore-all-space ignore-space-change ignore-blank-lines "
        "ignore-trailing-space ignore-matching-lines= new-file color? side-by-side width= suppress-common-lines "
        "report-identical-files text show-c-function label= minimal normal left-column exclude= strip-trailing-cr "
        "no-dereference speed-large-files tabsize= expand-tabs initial-tab",
    ),
    "cksum": ReadOnlyCommand(has_readable_files, "a:z", "algorithm= untagged tag zero base64 raw"),
    "sum": ReadOnlyCommand(has_readable_files, "rs", "sysv"),
    **dict.fromkeys(("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum"), _DIGEST),
    "shasum": ReadOnlyCommand(has_readable_files, "a:btp", "algorithm= binary text portable"),
    "md5": ReadOnlyCommand(has_readable_files, "qr"),
    "getfacl": ReadOnlyCommand(
        has_inside_paths, "acdeEtnp", "access default numeric omit-header skip-base tabular absolute-names"
    ),
    "lsattr": ReadOnlyCommand(has_inside_paths, "aldpv"),
    "namei": ReadOnlyCommand(has_inside_paths, "lmovnx", "long modes owners vertical nosymlinks mountpoints"),
    "pathchk": ReadOnlyCommand(has_inside_paths, "pP", "portability"),
}
