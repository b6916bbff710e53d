"""Names of files that usually hold secrets: a command that would print one of them is asked about."""

import re
from functools import lru_cache

from odin.policy.untouchable import folded

_NAMES = frozenset(
    """
    .netrc _netrc .pgpass .my.cnf .git-credentials .htpasswd .npmrc .yarnrc.yml .pypirc .dockercfg .s3cfg .boto
    .vault-token .terraformrc credentials credentials.json credentials.yml credentials.yaml credentials.toml
    .credentials secrets.json secrets.yml secrets.yaml secrets.toml secrets.env secret.json secret.yml secret.yaml
    service-account.json service_account.json serviceaccount.json master.key terraform.tfstate
    terraform.tfvars .envrc auth.json token.json kubeconfig shadow
    """.split()  # noqa: SIM905
)

_PATTERN = (
    r"\.env(\..+|rc)?|.+\.env"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_.+)?"
    r"|.+\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg|age|tfvars|ovpn)"
)
_HARMLESS = r"\.env\.(example|sample|template|dist|defaults?|schema|test)|(example|sample)\.env|.+\.pub"
_FOLDERS = frozenset((".ssh", ".gnupg", ".aws", ".kube", ".docker"))


def confidential(path: str) -> bool:
    """Whether the last name of a path, or the folder it lies in, is one under which people keep secrets."""
    parts = path.rsplit("/", 2)
    return secret_name(parts[-1]) or any(map(secret_folder, parts[-2:]))


def secret_folder(name: str) -> bool:
    return name.startswith(".") and folded(name) in _FOLDERS


@lru_cache(maxsize=4096)
def secret_name(name: str) -> bool:
    if "." not in name and "_" not in name and name.islower() and name not in _NAMES:
        return False
    plain = folded(name)
    if plain in _NAMES:
        return True
    return re.fullmatch(_PATTERN, plain) is not None and re.fullmatch(_HARMLESS, plain) is None
