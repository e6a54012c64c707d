"""C12: what a kill does to the tools and plugins of Strands and of strands-agents-tools; docs/features.md says the same."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from strands.types.tools import AgentTool

from strands_durable._strands.public_tools import _IN_PROCESS
from tests.public_tools import survey
from tests.public_tools.tables import NOT_RUN, PAGE, SECTIONS, documented, title, titles

PACKAGES = (
    "strands.vended_tools",
    "strands.vended_plugins",
    "strands.vended_interventions",
    "strands.vended_memory_stores",
    "strands_tools",
)
SCENARIOS = survey.load()


@pytest.mark.parametrize("package", PACKAGES)
def test_c12_every_tool_and_plugin_of_the_packages_has_a_scenario_or_a_reason_why_it_is_not_run(package: str) -> None:
    there = {f"{package}.{found.name}" for found in pkgutil.iter_modules(import_module(package).__path__)}
    there.discard("strands_tools.utils")
    assert there, f"{package} has no modules"
    used = {found.module for found in SCENARIOS.values() if found.module.startswith(f"{package}.")}
    left_out = {module for module in NOT_RUN if module.startswith(f"{package}.")}
    assert used | left_out == there, "write a scenario for it, or the reason why it is not run"
    assert not used & left_out


@pytest.mark.parametrize("package", ["strands.vended_tools", "strands_tools"])
def test_c12_every_tool_of_a_module_with_scenarios_is_used_in_one(package: str) -> None:
    room = (Path(survey.__file__).parent / f"{package.rpartition('.')[2]}.py").read_text()
    modules = {found.module for found in SCENARIOS.values() if found.module.startswith(f"{package}.")}
    tools = {name for module in modules for name in _tools_in(module)}
    made = {name.removeprefix("make_") for name in getattr(import_module(package), "__all__", ()) if name.islower()}
    assert len(tools) > 10
    assert {name for name in tools | made if not re.search(rf"\b(make_)?{name}\b", room)} == set()


def _tools_in(module: str) -> Iterator[str]:
    """Return the names of the tools that a module, or a package's modules, define as objects, methods or specifications."""
    found = import_module(module)
    places = [import_module(f"{module}.{each.name}") for each in pkgutil.iter_modules(getattr(found, "__path__", []))]
    for place in (found, *places):
        own = [each for each in vars(place).values() if isinstance(each, type) and each.__module__.startswith(module)]
        for value in (each for scope in (place, *own) for each in vars(scope).values()):
            if isinstance(value, AgentTool):
                yield value.tool_name
        if hasattr(place, "TOOL_SPEC"):
            yield place.TOOL_SPEC["name"]


@pytest.mark.parametrize("section", SECTIONS)
def test_c12_the_tables_have_every_scenario_and_every_reason_and_nothing_else(section: str) -> None:
    packages = SECTIONS[section]
    run = [found.title for found in SCENARIOS.values() if found.module.rpartition(".")[0] in packages]
    left_out = {title(module): reason for module, reason in NOT_RUN.items() if module.rpartition(".")[0] in packages}
    assert sorted(titles(section)) == sorted([*run, *left_out]), "run python -m tests.public_tools.survey"
    for name, reason in left_out.items():
        assert f"| {name} | not run | | | {reason} |" in documented(section)


def test_c12_the_tables_are_about_the_installed_versions() -> None:
    text = PAGE.read_text()
    assert f"strands-agents {version('strands-agents')}" in text
    assert f"strands-agents-tools {version('strands-agents-tools')}" in text


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_c12_a_tool_or_plugin_that_is_killed_everywhere_ends_as_the_table_says(name: str, tmp_path: Path) -> None:
    found, scenario = survey.examine(name, tmp_path), SCENARIOS[name]
    [section] = [section for section, packages in SECTIONS.items() if scenario.module.rpartition(".")[0] in packages]
    assert found.row() in documented(section), f"run python -m tests.public_tools.survey\n{found.example}"
    ours = any(module == scenario.module or module.startswith(f"{scenario.module}.") for module in _IN_PROCESS)
    assert found.restored == ours, "whether its calls are repeated on resume, and must be"
