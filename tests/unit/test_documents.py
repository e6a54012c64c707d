"""Documents are part of the product: what they show runs, and what they list is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import document
from strands_durable._cli import main
from tests.guarantees import PAGE, ROOT, filled, missing

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_guarantees_list_every_contract_test() -> None:
    text = PAGE.read_text()
    assert missing(text) == set()
    assert filled(text) == text, "run `python -m tests.guarantees`"


def test_the_figures_in_the_documents_are_the_measured_ones() -> None:
    for page in document.PAGES:
        text = page.read_text()
        assert "<!-- bench " in text
        assert document.filled(text) == text, "run `python -m bench.document`"


def test_the_script_of_the_readme_dies_and_goes_on() -> None:
    code = re.findall(r"```python run\n(.*?)```", README, re.DOTALL)
    assert len(code) == 1
    Path("trip.py").write_text(code[0])

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False)

    first, second, third = (run(sys.executable, "trip.py") for _ in range(3))
    assert first.returncode == -signal.SIGKILL
    assert second.stdout.strip() == third.stdout.strip() == "Your trip is booked."
    cli = os.path.join(os.path.dirname(sys.executable), "strands-durable")
    for command in re.findall(r"^\$ strands-durable (.+)$", README, re.MULTILINE):
        shown = run(cli, *command.split())
        assert shown.returncode == 0, shown.stderr
        assert "trip-42" in shown.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_snippets_of_the_readme_are_python() -> None:
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(snippets) >= 2
    for code in snippets:
        assert compile(code, "README.md", "exec").co_names


def test_every_command_is_in_the_readme() -> None:
    for name in main.commands:
        assert f"strands-durable {name}" in README or name == "demo"
    assert "make demo" in README


def test_targets_named_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"
