"""Commands that print, cut and reorder text."""

import os
import re

from odin.policy.command.harmless.options import (
    ParsedOptions,
    ReadOnlyCommand,
    has_any_operands,
    has_no_operands,
    has_one_readable_file,
    has_readable_files,
)
from odin.policy.command.harmless.place import ReadScope
from odin.policy.paths import join_path

_MAX_SLEEP = 60


def _check_printf(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """A format and its values: none may be an option, and none holds what arithmetic would run from inside quotes."""
    return bool(parsed.operands) and not any(char in word for word in parsed.operands for char in "$`")


def _check_sleep(parsed: ParsedOptions, scope: ReadScope) -> bool:
    waits = [re.fullmatch(r"(\d{1,3}(?:\.\d+)?)s?", word) for word in parsed.operands]
    return len(waits) == 1 and waits[0] is not None and float(waits[0][1]) <= _MAX_SLEEP


def _has_no_list_files(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """`@file` stands for the words in that file."""
    return not any(word.startswith("@") for word in parsed.operands) and has_readable_files(parsed, scope)


def _check_shuf(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """With -r and no number it never ends."""
    endless = parsed.has("r", "repeat") and not parsed.has("n", "head-count")
    return not endless and (parsed.has("e", "echo") or has_one_readable_file(parsed, scope))


def _check_look(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Without a file, look searches a dictionary of the system."""
    return (
        len(parsed.operands) in (1, 2)
        and not parsed.starts_with_glob
        and all(scope.allows_content(word) for word in parsed.operands[1:])
    )


def _check_compressed(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Files that are there: for one that is not, another is opened that has a suffix more."""
    return all(scope.allows_content(word) and os.path.isfile(join_path(scope.cwd, word)) for word in parsed.operands)  # noqa: PTH113


def _check_decompression(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """Without one of these options, the file is replaced by another."""
    return parsed.has("c", "l", "t", "stdout", "to-stdout", "list", "test") and _check_compressed(parsed, scope)


def _check_archive(parsed: ParsedOptions, scope: ReadScope) -> bool:
    """What is in an archive, which is named first; what follows are names inside of it."""
    return _check_compressed(ParsedOptions([], parsed.operands[:1]), scope) and bool(parsed.operands)


def _check_unzip(parsed: ParsedOptions, scope: ReadScope) -> bool:
    return parsed.has("l", "v", "t", "Z") and _check_archive(parsed, scope)


def _has_only_numbers(parsed: ParsedOptions, scope: ReadScope) -> bool:
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
