"""Names of files that make other programs run something: git, shells, editors, package managers, agents, build servers.

They are told by name alone, so that one that does not exist yet is protected too, and by the name as a forgiving file
system sees it: in any case, with trailing dots or spaces, invisible characters, or in the short 8.3 form.
"""

import re
from collections.abc import Iterable, Sequence

_PROTECTED_NAMES = frozenset(
    """
    .git .gitconfig .gitmodules .hg .hgrc .svn
    .odin odinconfig.json
    .claude .claude.json .codex .gemini .cursor .cursorrules .agents .mcp.json mcp.json .windsurf .windsurfrules
    .continue .roo .roomodes .cline .clinerules .kilocode .opencode opencode.json opencode.jsonc .amazonq .kiro .qwen
    .goose .junie .augment .trae .aider.conf.yml .crush crush.json
    .vscode .vscode-server .idea .fleet .zed .husky .huskyrc .devcontainer devcontainer.json .devcontainer.json
    .cargo .rustup rust-toolchain rust-toolchain.toml .yarn .mvn .npmrc .pnpmfile.cjs .pnpmfile.mjs bunfig.toml
    .bunfig.toml .bazelrc .bazeliskrc .pre-commit-config.yaml .pre-commit-config.yml .overcommit.yml .envrc .direnv
    mise.toml .mise.toml .mise .condarc pip.conf .pypirc .ripgreprc pyrightconfig.json gradle-wrapper.properties
    maven-wrapper.properties gradlew gradlew.bat mvnw mvnw.cmd
    .profile .login .logout .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .zshrc .zshenv .zprofile
    .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .inputrc .xprofile .xinitrc .xsession .xsessionrc .pam_environment
    .vimrc .gvimrc .nvimrc .exrc .nvim.lua .vim .emacs .emacs.d .dir-locals.el .tmux.conf .screenrc .gdbinit .lldbinit
    .pdbrc .irbrc .pryrc .rprofile .sqliterc .psqlrc .mailcap
    .ssh .gnupg .netrc .curlrc .wgetrc .aws .kube .docker .git-credentials
    .gitlab-ci.yml .circleci .buildkite jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml .travis.yml .drone.yml
    .gitea .forgejo
    """.split()  # noqa: SIM905
)

_PROTECTED_PREFIXES = (".yarnrc", ".pnp.", "lefthook.", ".lefthook.", "lefthook-local.", ".lefthook-local.")

_PROTECTED_CHAINS = tuple(
    tuple(chain.split("/"))
    for chain in (  # noqa: SIM905
        ".config/git .config/odin .config/fish .config/systemd .config/autostart .config/nvim .config/direnv "
        ".config/mise .local/state/odin .cache/odin .local/bin .github/workflows .github/actions library/launchagents"
    ).split()
)
"""Folders that are protected where they stand below the one before them."""

_INVISIBLE = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
"""Characters that some file systems leave out when they compare names."""

_SHORT_NAME = re.compile(r"([a-z0-9_-]{1,6})~\d+(\.\w{0,3})?")
_SHORT_STEMS = frozenset(name.lstrip(".").split(".", 1)[0][:6] for name in _PROTECTED_NAMES)


def find_protected_name(names: Sequence[str]) -> str:
    """The first of the components of a path that makes it one to ask about, or ""."""
    seen = [fold_name(name) for name in names]
    for name in seen:
        if name in _PROTECTED_NAMES or name.startswith(_PROTECTED_PREFIXES):
            return name
        short = _SHORT_NAME.fullmatch(name) if "~" in name else None
        if short is not None and short[1] in _SHORT_STEMS:
            return name
    return next(("/".join(chain) for chain in _PROTECTED_CHAINS if _contains_chain(chain, seen)), "")


def _contains_chain(chain: Sequence[str], names: Iterable[str]) -> bool:
    parts = tuple(names)
    return any(parts[at : at + len(chain)] == tuple(chain) for at in range(len(parts) - len(chain) + 1))


def fold_name(name: str) -> str:
    """The name as a forgiving file system sees it."""
    if not name.isascii():
        from unicodedata import normalize

        name = normalize("NFC", name.translate(_INVISIBLE))
    return name.casefold().split(":", 1)[0].rstrip(". ")
