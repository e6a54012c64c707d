"""The words of the field, in natural English: phrases that we avoid are in no page, docstring, comment, error or help text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import words


def test_no_page_and_no_text_of_the_source_has_a_phrase_to_avoid() -> None:
    found = [str(each) for each in words.findings()]
    assert not found, "\n".join(["phrases to avoid:", *found])


def test_phrases_are_found_with_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    for page in words.PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).touch()
    (tmp_path / "docs" / "page.md").write_text(
        "# A page\n\nThe run goes\non.\n\n```console\n$ run  # told\nhe said\n```\n"
    )
    (tmp_path / "src" / "code.py").write_text(
        'told = 1  # nobody\nprint(f"{told} is mended")\n"""Line one.\n\nSay whether."""\n'
    )
    monkeypatch.setattr(words, "ROOT", tmp_path)
    found = {re.sub(r"; write.*", "", str(each)) for each in words.findings()}
    assert found == {
        "docs/page.md:3: 'goes on'",
        "docs/page.md:7: 'told'",
        "docs/page.md (quoted):8: 'he'",
        "src/code.py:1: 'nobody'",
        "src/code.py:2: 'mended'",
        "src/code.py:5: 'Say whether'",
    }
