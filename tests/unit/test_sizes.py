"""The limits that keep the source readable: lines of a folder, of a file and of a function, and entries of the package."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "strands_durable"
FOLDER_LINES, FILE_LINES, FUNCTION_LINES, ENTRIES = 4200, 400, 50, 18
LAMBDA_LINES = 900


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_file_and_no_function_is_too_long() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        if _lines(path) > FILE_LINES:
            found.append(f"{path.relative_to(PACKAGE)}: {_lines(path)} lines")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    found.append(f"{path.relative_to(PACKAGE)}: {node.name} has {length} lines")
    assert found == []


def test_no_folder_is_too_large() -> None:
    folders = [path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE]
    sizes = {str(path.relative_to(PACKAGE)): sum(map(_lines, path.glob("*.py"))) for path in folders}
    assert len(sizes) > 10
    assert {name: size for name, size in sizes.items() if size > FOLDER_LINES} == {}


def test_the_package_shows_its_folders_at_a_glance() -> None:
    entries = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert 10 < len(entries) <= ENTRIES
