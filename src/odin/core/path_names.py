"""Classify paths by their names alone, without touching the file system.

Protected files make other programs run something (git, shells, editors, package managers, agents, build servers), tell
agents what to do, or hold Odin's own rules. They are recognized by name, so a file that does not exist yet is protected
too, and by the name as a case-insensitive file system compares it: any case, trailing dots or spaces, invisible
characters, or the short 8.3 form.

Changing one by a tool needs approval, and so does a command that names one. The sandbox makes existing ones read-only.
Two kinds are only watched there, because ordinary commands write them, and changes are reported: `_WATCHED_NAMES`, and
what package managers install. Commands may also name the latter: running `.venv/bin/pytest` changes nothing.

Secret files usually hold credentials; printing one needs an approval. Temporary files are those of Odin's own atomic
writes.
"""

import os
import re
import sys
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Literal

from odin.core.lazy_pattern import compile_lazily

_PROTECTED_NAMES = frozenset(
    """
    .git .gitconfig .gitmodules .lfsconfig .githooks .git-hooks .hg .hgrc .svn .bzr _darcs
    .odin odinconfig.json
    .claude .claude.json .codex .gemini .cursor .cursorrules .agents .mcp.json mcp.json .windsurf .windsurfrules
    .continue .roo .roomodes .cline .clinerules .kilocode .opencode opencode.json opencode.jsonc .amazonq .kiro .qwen
    .goose .goosehints .junie .augment .trae .aider.conf.yml .crush crush.json .openhands .factory .warp .amp .copilot
    .vscode .vscode-server .idea .run .fleet .zed .nova .helix .vs .theia .husky .devcontainer devcontainer.json
    .devcontainer.json devfile.yaml .devfile.yaml .gitpod.yml .gitpod.dockerfile .replit .stackblitzrc .codesandbox .idx
    .cargo .rustup rust-toolchain rust-toolchain.toml .yarn .mvn .npmrc .pnpmfile.cjs .pnpmfile.mjs bunfig.toml
    .bunfig.toml .bazelrc .bazeliskrc .buckconfig .pre-commit-config.yaml .pre-commit-config.yml prek.toml
    .overcommit.yml .simple-git-hooks.json .simple-git-hooks.js .simple-git-hooks.cjs simple-git-hooks.json .envrc
    .direnv .shadowenv.d .autoenv .autoenv.zsh mise.toml .mise.toml mise.local.toml .mise.local.toml .mise .condarc
    pip.conf .pypirc .ripgreprc pyrightconfig.json gradle-wrapper.properties gradle-wrapper.jar
    maven-wrapper.properties maven-wrapper.jar gradlew gradlew.bat mvnw mvnw.cmd ansible.cfg .ansible.cfg
    sitecustomize.py usercustomize.py
    .profile .login .logout .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zshenv .zprofile
    .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .inputrc .xprofile .xinitrc .xsession .xsessionrc .pam_environment
    .vimrc .gvimrc .nvimrc .lvimrc .local.vimrc .exrc .nvim.lua .lazy.lua .vim .vimspector.json .emacs .emacs.d
    .dir-locals.el .dir-locals-2.el .tmux.conf .screenrc .gdbinit .lldbinit .pdbrc .pdbrc.py .pythonrc .irbrc .pryrc
    .iex.exs .rprofile .renviron .octaverc .ghci .ocamlinit .perldb .erlang .sqliterc .psqlrc .mailcap
    .ssh .gnupg .netrc .curlrc .wgetrc .aws .kube .docker .git-credentials
    """.split()  # noqa: SIM905
)

BUILD_SERVER_NAMES = frozenset(
    """
    .gitlab-ci.yml .circleci .buildkite jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml .travis.yml .drone.yml
    .gitea .forgejo .woodpecker.yml .woodpecker .semaphore appveyor.yml .appveyor.yml .cirrus.yml .teamcity .build.yml
    .builds cloudbuild.yaml buildspec.yml codemagic.yaml bitrise.yml
    """.split()  # noqa: SIM905
)
"""Protected names that only count at the top of a repository."""

_INSTRUCTION_NAMES = frozenset(
    """
    agents.md agents.override.md agent.md claude.md claude.local.md odin.md gemini.md qwen.md crush.md warp.md
    """.split()  # noqa: SIM905
)
"""Where case matters, they count only in capitals: `docs/agents.md` is a page, not an instruction file."""

_WATCHED_NAMES = _INSTRUCTION_NAMES | frozenset((".tool-versions", ".python-version", ".bundle"))

_ALL_PROTECTED = _PROTECTED_NAMES | BUILD_SERVER_NAMES

_SKILL_FILE = "skill.md"
"""Changing it needs approval, because a skill can allow calls. Commands in the sandbox may write it: a project's skill
that changed is not used before the user trusts it again."""

_PROTECTED_PREFIXES = (
    *(".yarnrc", ".pnp.", ".huskyrc", ".lintstagedrc"),
    *("lefthook.", ".lefthook.", "lefthook-local.", ".lefthook-local."),
)
_PROTECTED_ENDINGS = (".code-workspace", ".sublime-project")

Chain = tuple[str, ...]


def _split_chains(text: str) -> tuple[Chain, ...]:
    return tuple(tuple(chain.split("/")) for chain in text.split())


_PROTECTED_CHAINS = _split_chains(
    ".config/git .config/odin .config/fish .config/systemd .config/autostart .config/nvim .config/direnv .config/mise "
    ".config/mise.toml .local/state/odin .cache/odin .local/bin .github/workflows .github/actions .github/hooks "
    ".github/copilot-instructions.md .github/instructions .github/prompts .github/agents .github/chatmodes "
    "library/launchagents .jj/repo/config.toml .sl/config .pijul/config tools/bazel"
)
"""Files and folders that are protected only inside the given parent folders."""

_INSTALLED_CHAINS = _split_chains(
    ".venv/bin venv/bin env/bin .venv/scripts venv/scripts env/scripts bin/activate node_modules/.bin "
    "site-packages/*.pth dist-packages/*.pth"
)
"""What package managers install and other programs run. A `*` is the start of any name."""

_CHAIN_STARTS = frozenset(chain[0] for chain in (*_PROTECTED_CHAINS, *_INSTALLED_CHAINS))
_CHAINS_BY_PARENT: dict[str, list[Chain]] = {}
for _chain in (*_PROTECTED_CHAINS, *_INSTALLED_CHAINS):
    _CHAINS_BY_PARENT.setdefault(_chain[-2], []).append(_chain)
_PLAIN_NAME = compile_lazily(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*[A-Za-z0-9_]|[A-Za-z0-9_]")
"""Matches ASCII names, which need no Unicode normalization before they are compared."""

_INVISIBLE = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
"""Characters that some file systems ignore when they compare names."""

_SHORT_NAME = compile_lazily(r"([a-z0-9_-]{1,6})~\d+(\.\w{0,3})?")
_SHORT_STEMS = frozenset(name.lstrip(".").split(".", 1)[0][:6] for name in _ALL_PROTECTED)


def contains(root: str, path: str) -> bool:
    """True if a resolved path is the folder or lies in it. Compares components: /proj-evil is not in /proj."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def find_protected_name(names: Sequence[str], *, in_command: bool = False) -> str:
    """Return the first component (or `parent/child`) that makes a path protected, or "".

    With `in_command`, installed programs do not count.
    """
    folded = [fold_name(name) for name in names]
    for written, name in zip(names, folded, strict=True):
        if name == _SKILL_FILE or _classify_name(written, name):
            return name
    if _CHAIN_STARTS.isdisjoint(folded):
        return ""
    chains = _PROTECTED_CHAINS if in_command else (*_PROTECTED_CHAINS, *_INSTALLED_CHAINS)
    found = (chain for chain in chains if chain[0] in folded and _contains_chain(chain, folded))
    return "/".join(next(found, ()))


def classify_entry(parents: Sequence[str], name: str) -> Literal["", "protected", "watched", "installed"]:
    """Return how an entry is protected, by its name and those of the folders above it.

    What is watched or installed is written by ordinary commands, so it is not made read-only.
    """
    folded = name.lower() if _PLAIN_NAME.fullmatch(name) else fold_name(name)
    chains = _CHAINS_BY_PARENT.get(fold_name(parents[-1])) if parents else None
    if chains:
        tail = (*(fold_name(parent) for parent in parents), folded)
        for chain in chains:
            if _is_chain(chain, tail[-len(chain) :]):
                return "installed" if chain in _INSTALLED_CHAINS else "protected"
    return _classify_name(name, folded)


def _classify_name(name: str, folded: str) -> Literal["", "protected", "watched"]:
    if folded in _ALL_PROTECTED or folded.startswith(_PROTECTED_PREFIXES) or folded.endswith(_PROTECTED_ENDINGS):
        return "protected"
    if folded in _WATCHED_NAMES:
        is_exact = name.partition(".")[0].isupper() or sys.platform in ("darwin", "win32")
        return "watched" if is_exact or folded not in _INSTRUCTION_NAMES else ""
    short = _SHORT_NAME.fullmatch(folded) if "~" in folded else None
    return "protected" if short is not None and short[1] in _SHORT_STEMS else ""


def _contains_chain(chain: Chain, names: Sequence[str]) -> bool:
    return any(_is_chain(chain, names[at : at + len(chain)]) for at in range(len(names) - len(chain) + 1))


def _is_chain(chain: Chain, names: Sequence[str]) -> bool:
    if len(names) != len(chain) or tuple(names[:-1]) != chain[:-1]:
        return False
    return names[-1] == chain[-1] or (chain[-1].startswith("*") and names[-1].endswith(chain[-1][1:]))


def fold_name(name: str) -> str:
    """Return the name as a case-insensitive file system compares it."""
    if not name.isascii():
        from unicodedata import normalize

        name = normalize("NFC", name.translate(_INVISIBLE))
    return name.casefold().split(":", 1)[0].rstrip(". ")


def quote_path(path: str) -> str:
    """Return a path as one word of a shell command, which no program takes for an option or an operator."""
    import shlex

    return shlex.quote(f"./{path}" if path.startswith(("-", "!", "(")) else path)


_SECRET_NAMES = frozenset(
    """
    .netrc _netrc .pgpass .my.cnf .git-credentials .htpasswd .npmrc .yarnrc.yml .pypirc .dockercfg .s3cfg .boto
    .vault-token .terraformrc credentials credentials.json credentials.yml credentials.yaml credentials.toml
    .credentials secrets.json secrets.yml secrets.yaml secrets.toml secrets.env secret.json secret.yml secret.yaml
    service-account.json service_account.json serviceaccount.json master.key terraform.tfstate
    terraform.tfvars .envrc kubeconfig
    """.split()  # noqa: SIM905
)

_DATA_NAMES = frozenset(("auth.json", "token.json"))
"""Names that hold a login where a program keeps its state, but ordinary data in a folder with sources or tests."""

_SOURCE_FOLDERS = frozenset(
    """
    src source sources lib libs app apps pkg packages components pages api docs doc examples example samples schemas
    schema locales locale i18n assets static public test tests __tests__ spec specs fixtures __fixtures__ testdata mocks
    __mocks__
    """.split()  # noqa: SIM905
)
_FIXTURE_FOLDERS = frozenset(("fixtures", "__fixtures__", "fixture", "testdata", "test-data", "test_data", "testkeys"))
_SYSTEM_SECRETS = frozenset(("shadow", "shadow-", "gshadow", "gshadow-"))
"""The names of password files in /etc."""

_SECRET_ENDINGS = "pem|key|p12|pfx|jks|keystore|kdbx|ppk|gpg|age|tfvars|ovpn"
_SECRET_PATTERN = (
    r"\.env(\..+|rc)?|.+\.env"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_.+)?"
    rf"|.+\.({_SECRET_ENDINGS})"
)
_SECRET_EXCEPTIONS = (
    r"\.env\.(.+\.)?(example|sample|template|tmpl|dist|defaults?|schema|test)|(.+\.)?(example|sample|template)\.env"
    r"|.+\.pub"
)
_KEY_MATERIAL = r".+\.(pem|key|p12|pfx|jks|keystore|ppk)|id_(rsa|dsa|ecdsa|ed25519)(_.+)?"
_SECRET_FOLDERS = frozenset((".ssh", ".gnupg", ".aws", ".kube", ".docker"))


def is_secret_path(path: str) -> bool:
    """True if the last name of a path, or a folder above it, usually holds secrets.

    Keys in a folder with test fixtures do not count, nor does data in a folder with sources.
    """
    if (path.startswith(".") or "/." in path) and any(map(is_secret_folder, path.split("/"))):
        return True
    name = path.rsplit("/", 1)[-1]
    if is_secret_name(name):
        return not _is_test_key(path)
    plain = fold_name(name)
    if plain in _DATA_NAMES:
        return not _has_parent(path, _SOURCE_FOLDERS, 1)
    return plain in _SYSTEM_SECRETS and _has_parent(path, ("etc",), 1)


def _is_test_key(path: str) -> bool:
    name = fold_name(path.rsplit("/", 1)[-1])
    return re.fullmatch(_KEY_MATERIAL, name) is not None and _has_parent(path, _FIXTURE_FOLDERS, 2)


def _has_parent(path: str, names: Collection[str], reach: int) -> bool:
    """True if one of the nearest `reach` folders of a path has one of these names."""
    return any(fold_name(folder) in names for folder in path.split("/")[:-1][-reach:])


def is_secret_folder(name: str) -> bool:
    return name.startswith(".") and fold_name(name) in _SECRET_FOLDERS


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    if "." not in name and "_" not in name and name.islower() and name not in _SECRET_NAMES:
        return False
    plain = fold_name(name)
    if plain in _SECRET_NAMES:
        return True
    return re.fullmatch(_SECRET_PATTERN, plain) is not None and re.fullmatch(_SECRET_EXCEPTIONS, plain) is None


_MAX_NAME_BYTES = 200
_TEMPORARY_NAME = compile_lazily(r"(?s)\..+\.odin-(copy-)?(\d+)-[0-9a-f]+")


def make_temporary_name(name: str) -> str:
    """Return a new temporary name for a file of this name: `.NAME.odin-PID-TIME`."""
    short = os.fsencode(name)[:_MAX_NAME_BYTES].decode("utf-8", "ignore") or "file"
    return f".{short}.odin-{os.getpid()}-{time.time_ns():x}"


def make_copy_name(temporary: str) -> str:
    """Return the name for a copy that must not be lost: `.NAME.odin-copy-PID-TIME`."""
    head, _, tail = temporary.rpartition(".odin-")
    return f"{head}.odin-copy-{tail}"


def is_temporary(path: str) -> bool:
    """True if this is the name of one of Odin's temporary files or copies."""
    return ".odin-" in path and _TEMPORARY_NAME.fullmatch(path.rpartition("/")[2]) is not None


def parse_writer_pid(name: str) -> int | None:
    """Return the process that writes this temporary file; None if it is a copy or no temporary file."""
    match = _TEMPORARY_NAME.fullmatch(name) if ".odin-" in name else None
    return int(match[2]) if match is not None and not match[1] else None


_BYTE_BASE = 0x10FF00


def encode_path(path: str) -> str:
    """Return the path as valid Unicode, even if its bytes are not UTF-8. `decode_path` reverses it.

    Undecodable bytes become characters at the very end of Unicode. Real characters of that range are encoded, too.
    """
    return path if path.isascii() else re.sub("[\udc80-\udcff\U0010ff00-\U0010ffff]", _encode_match, path)


def _encode_match(found: re.Match[str]) -> str:
    return "".join(chr(_BYTE_BASE + byte) for byte in found[0].encode("utf-8", "surrogateescape"))


def decode_path(text: str) -> str:
    return text if text.isascii() else re.sub("[\U0010ff00-\U0010ffff]+", _decode_match, text)


def _decode_match(found: re.Match[str]) -> str:
    return bytes(ord(char) - _BYTE_BASE for char in found[0]).decode("utf-8", "surrogateescape")


def show_path(path: str) -> str:
    """Return an encoded path for a message, on one line: a name must not look like something that Odin says."""
    shown = decode_path(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return shown if shown.isprintable() else re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", _escape_match, shown)


def _escape_match(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]


def resolve_links(path: str) -> str:
    """Return the path without links; as it is written if a link in it is exchanged at this moment."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.path.abspath(path)  # noqa: PTH100
