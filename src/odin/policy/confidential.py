"""Names of files that usually hold secrets: a command that would print one of them is asked about."""

import re
from functools import lru_cache

from odin.policy.untouchable import fold_name

_SECRET_NAMES = frozenset(
    """
    .netrc _netrc .pgpass .my.cnf .git-credentials .htpasswd .npmrc .yarnrc.yml .pypirc .dockercfg .s3cfg .boto
    .vault-token .terraformrc credentials credentials.json credentials.yml credentials.yaml credentials.toml
    .credentials secrets.json secrets.yml secrets.yaml secrets.toml secrets.env secret.json secret.yml secret.yaml
    service-account.json service_account.json serviceaccount.json master.key terraform.tfstate
    terraform.tfvars .envrc auth.json token.json kubeconfig shadow
    """.split()  # noqa: SIM905
)

_SECRET_PATTERN = (
    r"\.env(\..+|rc)?|.+\.env"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_.+)?"
    r"|.+\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg|age|tfvars|ovpn)"
)
_SECRET_EXCEPTIONS = r"\.env\.(example|sample|template|dist|defaults?|schema|test)|(example|sample)\.env|.+\.pub"
_SECRET_FOLDERS = frozenset((".ssh", ".gnupg", ".aws", ".kube", ".docker"))


def is_secret_path(path: str) -> bool:
    """Whether the last name of a path, or the folder it lies in, is one under which people keep secrets."""
    parts = path.rsplit("/", 2)
    return is_secret_name(parts[-1]) or any(map(is_secret_folder, parts[-2:]))


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
