"""Generate reproducible file trees for the search benchmarks."""

import os
import random
from pathlib import Path

WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "return",
    "import",
    "class",
    "value",
    "index",
    "table",
    "result",
    "error",
    "config",
    "parse",
    "token",
    "stream",
)
RARE = "needle_in_the_haystack"
_ENDINGS = ["py"] * 6 + ["ts"] * 4 + ["tsx"] * 2 + ["js"] * 3 + ["md"] * 2 + ["json"] * 2 + ["txt", "css"]
_TOP = ("src", "lib", "tests", "docs", "pkg", "apps", "tools", "build", "dist", "services")
_DEEPEST = 30


def source_tree(root: Path, files: int) -> None:
    """Create sources as in a large repository: up to thirty folders deep, a tenth ignored, ages spread over a year."""
    chance = random.Random(7)
    folders = [root / name for name in _TOP]
    while len(folders) < files // 20:
        above = chance.choice(folders)
        if len(above.relative_to(root).parts) < _DEEPEST:
            folders.append(above / f"{chance.choice(WORDS)}{len(folders)}")
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    (root / ".gitignore").write_text("build/\ndist/\n*.log\n/docs/generated*\n!keep.log\n*.min.js\n")
    for number in range(files):
        lines = [" ".join(chance.choices(WORDS, k=8)) for _ in range(chance.randint(5, 60))]
        if number % 997 == 0:
            lines[2] = RARE
        path = chance.choice(folders) / f"{chance.choice(WORDS)}_{number}.{chance.choice(_ENDINGS)}"
        path.write_text("\n".join(lines) + "\n")
        age = 1_700_000_000 + chance.randrange(30_000_000)
        os.utime(path, (age, age))


def crowded_tree(root: Path, files: int) -> None:
    """Create ten small files per folder, plus link cycles and other traps for a naive walk."""
    for number in range(files // 10):
        folder = root / f"a{number % 100}" / f"b{number}"
        folder.mkdir(parents=True)
        for name in range(10):
            os.close(os.open(folder / f"f{name}.txt", os.O_CREAT | os.O_WRONLY))
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to(root, target_is_directory=True)
    (root / "closed").mkdir(mode=0)
