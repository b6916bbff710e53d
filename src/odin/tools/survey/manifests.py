"""What the manifests of a repository say about it: names, descriptions, dependencies, where programs begin."""

import re
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.tools.survey.tree import ProjectTree

Json = dict[str, Any]


class PackageManifest(Struct, frozen=True):
    """One manifest. `begins` are the programs it names, each with where it begins."""

    path: str
    what: str
    name: str = ""
    description: str = ""
    needs: tuple[str, ...] = ()
    begins: tuple[tuple[str, str], ...] = ()


def read_manifests(tree: ProjectTree) -> list[PackageManifest]:
    """Those at the root and one or two folders below it, in the order of their paths."""
    found: list[PackageManifest] = []
    for path in tree.files:
        reader = _MANIFEST_READERS.get(path.rsplit("/", 1)[-1])
        if reader is not None and path.count("/") <= 2:
            manifest = reader(path, tree.read(path))
            if manifest is not None:
                found.append(manifest)
    return sorted(found, key=lambda manifest: (manifest.path.count("/"), manifest.path))


def parse_toml(text: str) -> Json:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def parse_json(text: str) -> Json:
    try:
        return get_table(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return {}


def get_table(value: Any, *path: str) -> Json:
    """The table at this path of keys, or an empty one."""
    for key in path:
        value = cast("Json", value).get(key) if isinstance(value, dict) else None
    return cast("Json", value) if isinstance(value, dict) else {}


def get_texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in cast("list[Any]", value) if isinstance(item, str)) if isinstance(value, list) else ()


def parse_requirement(text: str) -> str:
    """The name of a package in a line such as `name[extra]>=1; marker`."""
    found = re.match(r"\s*([A-Za-z0-9][\w.-]*)", text)
    return found[1] if found else ""


def _make_manifest(path: str, what: str, data: Json, **more: Any) -> PackageManifest:
    name, description = data.get("name"), data.get("description")
    return PackageManifest(
        path,
        what,
        name if isinstance(name, str) else "",
        description.strip() if isinstance(description, str) else "",
        **more,
    )


def _read_pyproject(path: str, text: str) -> PackageManifest | None:
    data = parse_toml(text)
    project, poetry = get_table(data, "project"), get_table(data, "tool", "poetry")
    needs = [parse_requirement(item) for item in get_texts(project.get("dependencies"))]
    needs += [name for name in get_table(poetry, "dependencies") if name != "python"]
    scripts = {**get_table(poetry, "scripts"), **get_table(project, "scripts"), **get_table(project, "gui-scripts")}
    build = get_table(data, "build-system").get("build-backend")
    version = project.get("requires-python") or get_table(poetry, "dependencies").get("python")
    what = "Python project" + (f" ({version})" if isinstance(version, str) else "")
    what += f", built with {build}" if isinstance(build, str) else ""
    begins = tuple((name, str(target)) for name, target in scripts.items() if isinstance(target, str))
    return _make_manifest(path, what, project or poetry, needs=tuple(filter(None, needs)), begins=begins)


def _read_setup_cfg(path: str, text: str) -> PackageManifest | None:
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    if not parser.has_section("metadata"):
        return None
    listed: str = parser.get("options", "install_requires", fallback="")
    needs = [parse_requirement(line) for line in listed.splitlines()]
    return _make_manifest(path, "Python project", dict(parser["metadata"]), needs=tuple(filter(None, needs)))


def _read_requirements(path: str, text: str) -> PackageManifest | None:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", "-"))]
    return PackageManifest(path, "Python requirements", needs=tuple(filter(None, map(parse_requirement, lines))))


def _read_package_json(path: str, text: str) -> PackageManifest | None:
    data = parse_json(text)
    if not data:
        return None
    bins, main = data.get("bin"), data.get("main")
    begins = [(str(data.get("name", "")), bins)] if isinstance(bins, str) else list(get_table(bins).items())
    if isinstance(main, str):
        begins.append(("main", main))
    spaces = data.get("workspaces")
    members = get_texts(spaces) or get_texts(get_table(spaces).get("packages"))
    what = "Node package" + (f" with workspaces {', '.join(members)}" if members else "")
    needs = (*get_table(data, "dependencies"), *get_table(data, "devDependencies"))
    return _make_manifest(path, what, data, needs=needs, begins=tuple((name, str(target)) for name, target in begins))


def _read_cargo(path: str, text: str) -> PackageManifest | None:
    data = parse_toml(text)
    members = get_texts(get_table(data, "workspace").get("members"))
    what = "Rust crate" if "package" in data else "Rust workspace"
    what += f" with members {', '.join(members)}" if members else ""
    bins = cast("list[Any]", data.get("bin")) if isinstance(data.get("bin"), list) else []
    begins = [(str(get_table(item).get("name", "")), str(get_table(item).get("path", "src/main.rs"))) for item in bins]
    needs = tuple(get_table(data, "dependencies"))
    return _make_manifest(path, what, get_table(data, "package"), needs=needs, begins=tuple(begins))


def _read_go_mod(path: str, text: str) -> PackageManifest | None:
    module = re.search(r"(?m)^module\s+(\S+)", text)
    version = re.search(r"(?m)^go\s+(\S+)", text)
    needs = re.findall(r"(?m)^(?:require\s+|\t)([\w.-]+\.[\w./-]+)\s+v\S+$", text)
    what = f"Go module ({version[1]})" if version else "Go module"
    return PackageManifest(path, what, name=module[1] if module else "", needs=tuple(needs))


def _read_pom(path: str, text: str) -> PackageManifest | None:
    own = re.sub(r"(?s)<(parent|dependencies|build|profiles|dependencyManagement)>.*?</\1>", "", text)
    name, described = (re.search(f"<{tag}>([^<]+)</{tag}>", own) for tag in ("artifactId", "description"))
    depends = re.search(r"(?s)<dependencies>(.*?)</dependencies>", text)
    needs = re.findall(r"<artifactId>([^<]+)</artifactId>", depends[1]) if depends else []
    return PackageManifest(
        path, "Maven project", name[1] if name else "", described[1].strip() if described else "", tuple(needs)
    )


def _read_gradle(path: str, text: str) -> PackageManifest | None:
    name = re.search(r"""rootProject\.name\s*=\s*["']([^"']+)""", text)
    return PackageManifest(path, "Gradle build", name=name[1] if name else "")


def _read_gemfile(path: str, text: str) -> PackageManifest | None:
    return PackageManifest(path, "Ruby bundle", needs=tuple(re.findall(r"""(?m)^\s*gem\s+["']([^"']+)""", text)))


def _read_composer(path: str, text: str) -> PackageManifest | None:
    data = parse_json(text)
    return _make_manifest(path, "PHP package", data, needs=tuple(get_table(data, "require"))) if data else None


def _read_cmake(path: str, text: str) -> PackageManifest | None:
    found = re.search(r"(?im)^\s*project\s*\(\s*([\w.-]+)", text)
    return PackageManifest(path, "CMake project", name=found[1]) if found else None


def _read_dockerfile(path: str, text: str) -> PackageManifest | None:
    images = re.findall(r"(?im)^FROM\s+(?:--\S+\s+)*(\S+)", text)
    return PackageManifest(path, "container image", needs=tuple(dict.fromkeys(images)))


_MANIFEST_READERS = {
    "pyproject.toml": _read_pyproject,
    "setup.cfg": _read_setup_cfg,
    "requirements.txt": _read_requirements,
    "requirements-dev.txt": _read_requirements,
    "package.json": _read_package_json,
    "Cargo.toml": _read_cargo,
    "go.mod": _read_go_mod,
    "pom.xml": _read_pom,
    "build.gradle": _read_gradle,
    "build.gradle.kts": _read_gradle,
    "settings.gradle": _read_gradle,
    "settings.gradle.kts": _read_gradle,
    "Gemfile": _read_gemfile,
    "composer.json": _read_composer,
    "CMakeLists.txt": _read_cmake,
    "Dockerfile": _read_dockerfile,
}
