"""Processes of tests are forked with their imports behind them; a server that could not import them would say nothing."""

from __future__ import annotations

import sys

from tests.processes import run


def is_preloaded() -> bool:
    return "tests.preloaded" in sys.modules


def test_a_process_of_a_test_need_not_import_what_all_of_them_need() -> None:
    assert run(is_preloaded).checked()
