"""Read-only commands that list and compare files, and that process text."""

import os
import re

from odin.policy.command_scope import CommandScope
from odin.policy.commands.readonly.options import (
    GlobMatch,
    ParsedOptions,
    ReadOnlyCommand,
    has_any_operands,
    has_inside_paths,
    has_no_operands,
    has_one_readable_file,
    has_only_names,
    has_readable_files,
)
from odin.policy.commands.readonly.searches import TreeScan
from odin.policy.paths import is_folder, join_path, resolve_path

_DIGEST = ReadOnlyCommand(has_readable_files, "btz", "binary text tag zero")


def _check_comparison(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Two files, or two folders without links: diff reads files in folders through links."""
    if any(not word.isdigit() for word in parsed.operands[2:]):
        return False
    for word in parsed.operands[:2]:
        resolved = resolve_path(word, scope.cwd)
        folder = resolved is not None and is_folder(resolved)
        if not (
            scope.allows_path(word) and TreeScan(follow_links=True).is_clear(word, scope)
            if folder
            else scope.allows_content(word)
        ):
            return False
    return True


def _check_df(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """The size of the root and /tmp file systems may be shown, too."""
    return all(word in ("/", "/tmp") or scope.allows_path(word) for word in parsed.operands)


_NAME_ONLY_OPTIONS = ("d", "directory", "1", "a", "A", "r", "p", "Q", "color")
"""Options of ls that print names only."""


def _is_link_match(word: str, scope: CommandScope, *, slash: bool = False) -> bool:
    """True for a glob match whose name lies inside, even if it is a link. A trailing slash would follow the link."""
    return isinstance(word, GlobMatch) and (slash or not word.endswith("/")) and scope.allows_name(word)


def _has_named_paths(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Paths for commands that show a link itself, not its target."""
    return all(scope.allows_path(word) or _is_link_match(word, scope) for word in parsed.operands)


def _check_ls(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """With -d or -l a link itself is shown; otherwise a linked folder is opened.

    Some versions have -I and -w without a value and take the next word for a folder.
    """
    if not all(scope.allows_path(value) for value in parsed.list_values("I", "w")):
        return False
    if parsed.has("d", "directory"):
        bare = all(name in _NAME_ONLY_OPTIONS for name, _ in parsed.options)
        return all(scope.allows_path(word) or _is_link_match(word, scope, slash=bare) for word in parsed.operands)
    long = parsed.has("l") and not parsed.has("C", "x", "m", "1", "format", "zero")
    return _has_named_paths(parsed, scope) if long else has_inside_paths(parsed, scope)


def _check_readlink(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Without an option that resolves it, only the text of the link is shown."""
    plain = not parsed.has("f", "e", "m", "canonicalize", "canonicalize-existing", "canonicalize-missing")
    return all(scope.allows_path(word) or (plain and scope.allows_name(word)) for word in parsed.operands)


def _check_stat(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return (
        has_inside_paths(parsed, scope)
        if parsed.has("L", "f", "dereference", "file-system")
        else _has_named_paths(parsed, scope)
    )


def _check_file(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return (
        has_inside_paths(parsed, scope)
        if parsed.has("L", "dereference") or scope.environment.get("POSIXLY_CORRECT")
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
    "wc": ReadOnlyCommand(has_inside_paths, "lwcmL", "lines words bytes chars max-line-length total="),
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


_MAX_SLEEP = 60


def _check_printf(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """A format and its values, without `$` and backticks, which arithmetic would evaluate even inside quotes."""
    return bool(parsed.operands) and not any(char in word for word in parsed.operands for char in "$`")


def _check_sleep(parsed: ParsedOptions, scope: CommandScope) -> bool:
    waits = [re.fullmatch(r"(\d{1,3}(?:\.\d+)?)s?", word) for word in parsed.operands]
    return len(waits) == 1 and waits[0] is not None and float(waits[0][1]) <= _MAX_SLEEP


def _has_no_list_files(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """`@file` would insert the words of that file."""
    return not any(word.startswith("@") for word in parsed.operands) and has_readable_files(parsed, scope)


def _check_shuf(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """With -r and without a count it never ends."""
    endless = parsed.has("r", "repeat") and not parsed.has("n", "head-count")
    return not endless and (parsed.has("e", "echo") or has_one_readable_file(parsed, scope))


def _check_look(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Without a file, look searches the system dictionary."""
    return (
        len(parsed.operands) in (1, 2)
        and not parsed.starts_with_glob
        and all(scope.allows_content(word) for word in parsed.operands[1:])
    )


def _check_compressed(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Existing files only: for a missing one, these commands open a file with an added suffix."""
    return all(scope.allows_content(word) and os.path.isfile(join_path(scope.cwd, word)) for word in parsed.operands)  # noqa: PTH113


def _check_decompression(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """Without one of these options, the command replaces the file."""
    return parsed.has("c", "l", "t", "stdout", "to-stdout", "list", "test") and _check_compressed(parsed, scope)


def _check_archive(parsed: ParsedOptions, scope: CommandScope) -> bool:
    """The archive comes first, followed by names of its members."""
    return _check_compressed(ParsedOptions([], parsed.operands[:1]), scope) and bool(parsed.operands)


def _check_unzip(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return parsed.has("l", "v", "t", "Z") and _check_archive(parsed, scope)


def _has_only_numbers(parsed: ParsedOptions, scope: CommandScope) -> bool:
    return all(re.fullmatch(r"[+-]?\d{1,9}(\.\d{1,9})?", word) for word in parsed.operands)


TEXT_COMMANDS: dict[str, ReadOnlyCommand] = {
    "sort": ReadOnlyCommand(
        has_readable_files,
        "bdfghinMRrVuk:t:csmzCS:",
        "reverse unique numeric-sort general-numeric-sort human-numeric-sort version-sort month-sort random-sort sort= "
        "key= field-separator= check? ignore-case ignore-leading-blanks dictionary-order ignore-nonprinting merge "
        "stable zero-terminated debug parallel= buffer-size=",
    ),
    "uniq": ReadOnlyCommand(
        has_one_readable_file,
        "cdDuif:s:w:z",
        "count repeated all-repeated? unique ignore-case skip-fields= skip-chars= check-chars= group? zero-terminated",
        options_first=True,
    ),
    "cut": ReadOnlyCommand(
        has_readable_files,
        "d:f:c:b:snz",
        "delimiter= fields= characters= bytes= only-delimited complement output-delimiter= zero-terminated",
    ),
    "tr": ReadOnlyCommand(has_any_operands, "cCdst", "complement delete squeeze-repeats truncate-set1"),
    "nl": ReadOnlyCommand(
        has_readable_files,
        "b:n:w:s:v:i:h:f:d:l:p",
        "body-numbering= number-format= number-width= number-separator= starting-line-number= line-increment=",
    ),
    "tac": ReadOnlyCommand(has_readable_files, "brs:", "before regex separator="),
    "rev": ReadOnlyCommand(has_readable_files),
    "fold": ReadOnlyCommand(has_readable_files, "bsw:", "bytes spaces width=", takes_number=True),
    "fmt": ReadOnlyCommand(
        has_readable_files,
        "cstuw:g:",
        "crown-margin split-only tagged-paragraph uniform-spacing width= goal= prefix=",
        takes_number=True,
    ),
    "pr": ReadOnlyCommand(
        has_readable_files,
        "adfFh:e?i?l:mn?N:o:rs?tTvW:w:",
        "columns= header= length= omit-header width=",
        takes_number=True,
    ),
    "paste": ReadOnlyCommand(has_readable_files, "d:sz", "delimiters= serial zero-terminated"),
    "join": ReadOnlyCommand(
        has_readable_files,
        "a:e:ij:1:2:o:t:v:z",
        "ignore-case header check-order nocheck-order zero-terminated",
    ),
    "expand": ReadOnlyCommand(has_readable_files, "it:", "initial tabs="),
    "unexpand": ReadOnlyCommand(has_readable_files, "at:", "all first-only tabs="),
    "column": ReadOnlyCommand(
        has_readable_files,
        "ts:c:nexo:N:R:H:J",
        "table separator= columns= output-separator= table-columns= table-right= fillrows json table-name=",
    ),
    "od": ReadOnlyCommand(
        has_readable_files, "A:j:N:t:vw?abcdfilosxS?", "address-radix= skip-bytes= read-bytes= format= strings? width?"
    ),
    "hexdump": ReadOnlyCommand(has_readable_files, "Cbcdoxvn:s:e:", "canonical length= skip= no-squeezing"),
    "hd": ReadOnlyCommand(has_readable_files, "Cvn:s:"),
    "xxd": ReadOnlyCommand(has_one_readable_file, "abc:eg:il:o:ps:uEd", options_first=True, is_unbundled=True),
    "strings": ReadOnlyCommand(
        _has_no_list_files,
        "an:t:e:fow",
        "all bytes= radix= encoding= print-file-name include-all-whitespace",
        takes_number=True,
        value_pattern="[^@].*",
    ),
    "base64": ReadOnlyCommand(has_one_readable_file, "diw:", "decode ignore-garbage wrap="),
    "base32": ReadOnlyCommand(has_one_readable_file, "diw:", "decode ignore-garbage wrap="),
    "iconv": ReadOnlyCommand(
        has_readable_files, "f:t:cls", "from-code= to-code= list silent", value_pattern=r"[\w.:+-]*(//[\w,-]*)*"
    ),
    "tsort": ReadOnlyCommand(has_one_readable_file),
    "shuf": ReadOnlyCommand(_check_shuf, "en:i:rz", "echo head-count= input-range= repeat zero-terminated"),
    "numfmt": ReadOnlyCommand(
        has_any_operands,
        "d:z",
        "from= to= from-unit= to-unit= suffix= padding= round= delimiter= field= format= grouping header? invalid=",
    ),
    "seq": ReadOnlyCommand(_has_only_numbers, "f:s:w", "format= separator= equal-width", takes_number=True),
    "factor": ReadOnlyCommand(has_any_operands),
    "bc": ReadOnlyCommand(has_readable_files, "lqsw", "mathlib quiet standard warn"),
    "col": ReadOnlyCommand(has_no_operands, "bfhpx"),
    "look": ReadOnlyCommand(_check_look, "dft:"),
    "uuidgen": ReadOnlyCommand(has_no_operands, "r", "random"),
    "gzip": ReadOnlyCommand(
        _check_decompression, "cdlvtqN", "stdout to-stdout decompress list verbose test quiet", options_first=True
    ),
    "gunzip": ReadOnlyCommand(
        _check_decompression, "clvtqN", "stdout to-stdout list verbose test quiet", options_first=True
    ),
    **dict.fromkeys(("zcat", "xzcat", "bzcat", "zstdcat"), ReadOnlyCommand(_check_compressed)),
    "xz": ReadOnlyCommand(
        _check_decompression, "cdlvtq", "stdout to-stdout decompress list verbose test quiet", options_first=True
    ),
    "unzip": ReadOnlyCommand(_check_unzip, "lvqZ1t", options_first=True),
    "zipinfo": ReadOnlyCommand(_check_archive, "12slmvhtTzC", options_first=True),
    "nm": ReadOnlyCommand(
        _has_no_list_files, "agnuCDASoprP", "demangle? dynamic defined-only undefined-only numeric-sort print-size"
    ),
    "size": ReadOnlyCommand(_has_no_list_files, "ABdt", "format= totals"),
    "readelf": ReadOnlyCommand(
        _has_no_list_files, "ahlSsrdnVgeIW", "all file-header program-headers section-headers symbols dynamic wide"
    ),
    "sleep": ReadOnlyCommand(_check_sleep),
    "true": ReadOnlyCommand(has_any_operands),
    "false": ReadOnlyCommand(has_any_operands),
    ":": ReadOnlyCommand(has_any_operands),
    "printf": ReadOnlyCommand(_check_printf),
    "umask": ReadOnlyCommand(has_no_operands, "S"),
}
