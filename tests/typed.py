"""Have pyright check what the documents show, as an editor of theirs would: `python -m tests.typed`, part of `make check`.

Each page is a folder with its scripts under their names, so that one may import another. A script that is marked `run` is
checked as it is. A fragment may use names that the page has not defined, and may await.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```python( run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("README.md"))]


def fragment(block: str) -> str:
    """Return a program with a fragment in it; what it imports stays outside."""
    lines = block.splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    rest = "\n".join(line for line in lines if line not in imports) or "pass"
    return "\n".join(
        [
            "# pyright: reportUndefinedVariable=false",
            *imports,
            "async def fragment():",
            textwrap.indent(rest, "    ") if rest.strip() else "    pass",
        ]
    )


def write_page(page: Path, folder: Path) -> int:
    """Write the snippets of a page as files; return how many there are."""
    found = FENCE.findall(page.read_text())
    if found:
        folder.mkdir(parents=True)
    for number, (is_run, block) in enumerate(found):
        name = re.match(r"# (\w+\.py)\n", block)
        if is_run or name:
            (folder / (name[1] if name else f"snippet_{number}.py")).write_text(block)
        else:
            (folder / f"fragment_{number}.py").write_text(fragment(block))
    return len(found)


def write_all(folder: Path) -> int:
    """Write every snippet and every example; return how many snippets there are."""
    total = 0
    for page in PAGES:
        total += write_page(page, folder / page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "-"))
    for example in sorted((ROOT / "examples").iterdir()):
        if any(example.glob("*.py")):
            shutil.copytree(example, folder / f"example-{example.name}")
    return total


def check(folder: Path) -> tuple[int, str]:
    """Have pyright look at each folder as a project of its own."""
    roots = [{"root": each.name} for each in sorted(folder.iterdir()) if each.is_dir()]
    options = {"executionEnvironments": roots, "pythonVersion": "3.11", "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return done.returncode, (done.stdout + done.stderr).replace(f"{folder}/", "")


def main() -> int:
    """Check everything, and say what is wrong."""
    with tempfile.TemporaryDirectory() as place:
        total = write_all(Path(place).resolve())
        code, said = check(Path(place).resolve())
    print(said.strip().splitlines()[-1] if code == 0 else said.strip(), f"({total} snippets)")
    return code


if __name__ == "__main__":
    sys.exit(main())
