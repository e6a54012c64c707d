"""Documents are part of the product: what they show runs, and what they list is there."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import strands_durable
from bench import document
from strands_durable import errors
from strands_durable._cli import main
from strands_durable._cli.exit_codes import CANCELLED, FAILED, SUSPENDED
from strands_durable._dispatch import connect
from tests import commands, engines
from tests.guarantees import PAGE, ROOT, filled, missing

README = (ROOT / "README.md").read_text()
DOCS = sorted((ROOT / "docs").rglob("*.md"))
STRANDS = ROOT / "src" / "strands_durable" / "_strands"
EXAMPLES = sorted((ROOT / "examples").rglob("README.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS, *EXAMPLES]
FENCE = re.compile(r"^```(\w+)( run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_the_guarantees_list_every_contract_test() -> None:
    text = PAGE.read_text()
    assert missing(text) == set()
    assert filled(text) == text, "run `python -m tests.guarantees`"


def test_the_table_of_engines_counts_every_contract_test(request: pytest.FixtureRequest) -> None:
    ids = request.config.stash[engines.COLLECTED]
    places = {path.as_posix() for place in engines.PLACES for path in Path(ROOT, place).glob("test_*.py")}
    if not places <= {(ROOT / each.partition("::")[0]).as_posix() for each in ids}:  # only a part was collected
        ids = engines.collected()
    text = engines.PAGE.read_text()
    assert engines.unnamed(ids) == set()
    assert engines.unheld(ids) == set()
    assert engines.filled(text, ids) == text, "run `python -m tests.engines`"


def test_the_figures_in_the_documents_are_the_measured_ones() -> None:
    for page in document.PAGES:
        text = page.read_text()
        assert "<!-- bench " in text
        assert document.filled(text) == text, "run `python -m bench.document`"


def words_of(command: str) -> list[str]:
    program, *arguments = shlex.split(command)
    cli = os.path.join(os.path.dirname(sys.executable), "strands-durable")
    return [{"python": sys.executable, "strands-durable": cli}[program], *arguments]


def run(command: str) -> str:
    """Return what a shell would show of a command."""
    ended = subprocess.run(words_of(command), capture_output=True, text=True, check=False, timeout=60)
    if ended.returncode == -signal.SIGKILL:
        return f"{ended.stdout}Killed\n"
    if ended.returncode in (FAILED, SUSPENDED, CANCELLED):  # no error: how an execution ended, told on both
        return ended.stdout + ended.stderr
    assert ended.returncode == 0, f"$ {command}\n{ended.stdout}{ended.stderr}"
    assert not unexpected(ended.stderr), f"$ {command}\n{ended.stderr}"
    return ended.stdout


_EXPECTED = re.compile(
    r"^$|^bash: line \d+: +\d+ Killed |\| (INFO|WARNING) \|"
    r"|a worker runs it|^Warning: |tool in doubt is run again$|event loop cycle failed$"
)


def unexpected(errors: str) -> list[str]:
    """Return the lines on stderr that are neither advice nor the log of a worker: a reader would take them for a fault."""
    return [line for line in errors.splitlines() if not _EXPECTED.search(line)]


def shown(text: str) -> str:
    """Return output without what a page need not repeat: blank lines, widths of columns, lengths of rules."""
    lines = (" ".join(re.sub("─+", "─", line).split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


@pytest.fixture
def beside() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a page leaves behind with an ampersand: they end with it, and in order."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        process.terminate()
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, unexpected(errors)) == (0, []), f"{process.args}: {errors}"


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the function that docs/lambda.md shows, on AWS's local runner."""
    from strands_durable.testing.aws_lambda import LocalLambda

    blocks = [block for _, _, block in FENCE.findall((ROOT / "docs" / "lambda.md").read_text())]
    Path("app.py").write_text(next(block for block in blocks if block.startswith("# app.py\n")))
    monkeypatch.syspath_prepend(tmp_path)
    with LocalLambda({"trip-planner": "app:handler"}) as aws:
        yield aws.url("trip-planner")


@pytest.mark.parametrize("page", [page for page in DOCS if " run\n" in page.read_text()], ids=named)
def test_what_a_page_shows_is_what_happens(
    page: Path,
    beside: list[subprocess.Popen[str]],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks marked `run` happen in order: a script is kept under the name in its first line, and one without a name runs."""
    if page.name == "temporal.md":  # it has its reader say once where everything runs
        server = request.getfixturevalue("temporal")
        monkeypatch.setenv("STRANDS_DURABLE_BACKEND", f"{server.url}?task_queue=page&prefix=page-")
    if page.name == "lambda.md":
        monkeypatch.setenv("STRANDS_DURABLE_BACKEND", request.getfixturevalue("function"))
    for language, is_run, block in FENCE.findall(page.read_text()):
        if is_run and language == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            Path(name[1] if name else "unnamed.py").write_text(block)
            if name is None:
                run("python unnamed.py")
        elif is_run:
            assert language == "console"
            for command, output in re.findall(r"^\$ (.+)\n((?:[^$].*\n|\n)*)", block, re.MULTILINE):
                if command.endswith(" &"):
                    words = words_of(command.removesuffix(" &"))
                    beside.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
                    continue
                expected = re.escape(shown(output)).replace(re.escape("..."), ".*")
                assert re.fullmatch(expected, shown(run(command)), re.DOTALL), f"{page.name}: {command}"


@pytest.mark.parametrize("page", DOCS, ids=named)
def test_snippets_of_a_page_are_python(page: Path) -> None:
    blocks = [block for language, _, block in FENCE.findall(page.read_text()) if language == "python"]
    assert [block for block in blocks if not is_python(block)] == []


def is_python(block: str) -> bool:
    try:
        compile(block, "a snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return False
    return True


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub and the site give to the headings of a page."""
    found: dict[str, int] = {}
    anchors = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = found[slug] = found.get(slug, -1) + 1
        anchors.add(slug if count == 0 else f"{slug}-{count}")
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert found.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_named_in_documents_exist(page: Path) -> None:
    for path in re.findall(r"`((?:bench|docs|examples|src|tests)/[\w./*-]*)`", prose(page)):
        assert list(ROOT.glob(path.rstrip("/"))), path


def test_every_public_name_is_in_the_reference() -> None:
    reference = "\n".join(page.read_text() for page in DOCS if page.parent.name == "reference")
    listed = set(re.findall(r"^::: strands_durable\.(\w+)$", reference, re.MULTILINE))
    assert listed == {*strands_durable.__all__, "testing"}, (
        "each has a line `::: strands_durable.NAME` in docs/reference"
    )


def test_every_error_has_a_row_with_its_cause_and_its_remedy() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = {
        name: [cause, remedy]
        for name, cause, remedy in re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", text, re.MULTILINE)
    }
    public = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, Exception)}
    assert rows.keys() == public
    assert all(len(cell) > 20 for cells in rows.values() for cell in cells)


def test_the_map_has_every_folder_of_the_package() -> None:
    folders = {path.parent.name for path in (ROOT / "src" / "strands_durable").glob("*/__init__.py")}
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(folders)


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    for page in (ROOT / "docs" / "decisions").glob("0*.md"):
        title = page.read_text().splitlines()[0].removeprefix("# ")
        number, _, sentence = title.partition(". ")
        assert f"| {number} | [{sentence}]({page.name}) |" in index


@pytest.mark.parametrize("name", sorted(path.name for path in STRANDS.glob("*.py")))
def test_every_private_contact_is_a_request(name: str) -> None:
    page = (ROOT / "docs" / "upstream.md").read_text()
    for contact in contacts(ast.parse((STRANDS / name).read_text())):
        assert f"{contact}`" in page, f"{name} touches {contact}: say in docs/upstream.md what would replace it"


def contacts(tree: ast.Module) -> set[str]:
    """Return the names that a module takes from behind an underscore, its own left out."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found |= {alias.name for alias in node.names if "._" in node.module or alias.name.startswith("_")}
        elif isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            found |= set() if is_own else {node.attr}
    return {name for name in found if not name.startswith("_strands_durable")}


def test_snippets_of_the_readme_are_python() -> None:
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(snippets) >= 2
    for code in snippets:
        assert compile(code, "README.md", "exec").co_names


def test_the_page_of_the_command_line_has_the_help_of_every_command() -> None:
    text = commands.PAGE.read_text()
    assert set(re.findall(r"^<!-- help ([\w-]+) -->$", text, re.MULTILINE)) == {"main", *main.commands}
    assert commands.filled(text) == text, "run `python -m tests.commands`"
    table = dict(re.findall(r"^\| (\d) \| (.+?) \|$", text, re.MULTILINE))
    told = dict(re.findall(r"^ +(\d)  (.+)$", commands.help_of("main"), re.MULTILINE))
    assert table.keys() == told.keys() == set("01234567")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_installs_the_clone_as_there_is_no_release(page: Path) -> None:
    for line in re.findall(r"^(?:\$|RUN) (pip install .+)$", page.read_text(), re.MULTILINE):
        for word in shlex.split(line, comments=True):
            assert not re.match(r"strands-durable\b", word), line
            folder = re.match(r"(\.\./\.\.)(\[|$)", word)
            assert folder is None or (page.parent / folder[1]).resolve() == ROOT, line


def test_the_help_of_a_backend_names_every_engine() -> None:
    for name in ("ls", "worker"):
        for scheme in connect._OURS:
            assert f"{scheme}://" in commands.help_of(name)


@pytest.mark.parametrize(
    ("target", "extras"),
    [
        ("demo", set()),
        ("demo-temporal", {"temporal"}),
        ("demo-lambda", {"lambda"}),
        ("demo-dapr", {"dapr"}),
        ("demo-ui", {"ui"}),
    ],
)
def test_a_demo_installs_what_a_user_would(target: str, extras: set[str], tmp_path: Path) -> None:
    """In an environment of its own, so that the first command of a newcomer does not wait for the tools of a developer."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for needed in ("pyproject.toml", "tests/temporal/requirements.txt"):
        (tmp_path / needed).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / needed).touch()
    made = subprocess.run(
        ["make", "--dry-run", target], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    installs = [line for line in made.splitlines() if "pip install" in line]
    assert set(re.findall(r"\.\[(\w+)\]", made)) == extras
    assert any(line.endswith("--editable .") for line in installs)
    assert not [line for line in installs if "dev" in line or "--upgrade" in line]
    more = [found for line in installs for found in re.findall(r"'([\w-]+[<>=].*?)'", line)]
    assert all(f'"{requirement}"' in (ROOT / "pyproject.toml").read_text() for requirement in more)
    assert all(".venv-demo/" in line for line in made.splitlines() if "bin/" in line)


def test_every_command_is_in_the_readme() -> None:
    for name in main.commands:
        assert f"strands-durable {name}" in README or name == "demo"
    assert "make demo" in README


def test_targets_named_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text()):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"
