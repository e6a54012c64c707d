"""What the site needs besides MkDocs: links that leave `docs/`, and code fences that the tests run.

On GitHub a page may link to any file of the repository. The site has only `docs/`, so that such a link becomes plain text
there, and a target that does not exist fails the build like any other broken link.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

logger = logging.getLogger("mkdocs.hooks.site")

_LINK = re.compile(r"\[([^\]]*)\]\((\.\.?/[^)#\s]*)(#[^)\s]*)?\)")
_RUN = re.compile(r"^```(\w+) run$", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **given: Any) -> str:
    """Return the page as the site shows it."""
    docs = Path(config["docs_dir"]).resolve()
    folder = Path(page.file.abs_src_path).resolve().parent

    def link(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if target.is_relative_to(docs):
            return found[0]
        if not (target.is_relative_to(docs.parent) and target.exists()):
            logger.warning("'%s' links to '%s', which is not in the repository", page.file.src_uri, found[2])
        return found[1]

    return _LINK.sub(link, _RUN.sub(r"```\1", markdown))
