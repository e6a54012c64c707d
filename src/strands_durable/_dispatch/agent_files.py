"""Agents from the user's files: a path or a module name, imported as ``python FILE`` would.

The folder of a file comes first on ``sys.path``, so that it finds its neighbours, and its module is named after the file, so
that two files which import each other get the same modules. Errors name the line in the user's file, without a traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import DurableError

if TYPE_CHECKING:
    from .registry import DurableAgent


class AgentFileError(DurableError):
    """A file that should define agents cannot be used."""

    def __init__(self, file: str, reason: str, hint: str = "") -> None:
        super().__init__(file, reason, hint)
        self.file, self.reason, self.hint = file, reason, hint

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}. {self.hint}".rstrip(" .") + "."


def agents_of(files: list[str]) -> list[DurableAgent]:
    """Import files and return all agents that are registered then."""
    from .registry import agents

    for file in files:
        _imported(file)
    if not agents:
        raise AgentFileError(", ".join(files), "it defines no agent", _HINT)
    return [agents[name] for name in sorted(agents)]


def agent_of(target: str) -> DurableAgent:
    """Return the agent that ``FILE:AGENT`` names; ``FILE`` is enough if it defines one agent."""
    from .registry import DurableAgent, agents

    file, name = _parted(target)
    before = set(agents)
    module = _imported(file)
    if not name:
        there = {found.name: found for found in vars(module).values() if isinstance(found, DurableAgent)}
        return _only(file, [agents[found] for found in sorted({*agents, *there} - (before - set(there)))])
    found = vars(module).get(name) or agents.get(name)
    if isinstance(found, DurableAgent):
        return found
    if found is not None:
        raise AgentFileError(file, f"{name!r} is a {type(found).__name__}, not a durable agent", _HINT)
    known = ", ".join(sorted(agents)) or "none"
    raise AgentFileError(file, f"it defines no agent {name!r} (registered: {known})", "" if agents else _HINT)


_HINT = "Put @durable_agent on a function that returns a new Agent, Graph or Swarm"


def _only(file: str, found: list[DurableAgent]) -> DurableAgent:
    if len(found) == 1:
        return found[0]
    if not found:
        raise AgentFileError(file, "it defines no agent", _HINT)
    choices = ", ".join(f"{file}:{agent.name}" for agent in found)
    raise AgentFileError(file, f"it defines {len(found)} agents", f"Name one of them: {choices}")


def _parted(target: str) -> tuple[str, str]:
    """Return the file and the agent's name; a drive letter is not a file."""
    file, colon, name = target.rpartition(":")
    return (file, name) if colon and len(file) > 1 and not name.endswith(".py") else (target, "")


def _imported(file: str) -> ModuleType:
    if file.endswith(".py") or os.sep in file or os.path.isfile(file):
        return _from_path(file, Path(file).resolve())
    with _translated(file, None):
        _find_first(Path.cwd())
        return importlib.import_module(file)


def _from_path(file: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise AgentFileError(file, "the file does not exist")
    known = sys.modules.get(path.stem)
    if known is not None and _file_of(known) == path:
        return known
    name = path.stem if known is None else str(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AgentFileError(file, "it is not a Python file")
    _find_first(path.parent)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _translated(file, path):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).resolve()


def _find_first(folder: Path) -> None:
    """Put a folder first on ``sys.path``."""
    if str(folder) not in sys.path[:1]:
        sys.path.insert(0, str(folder))


@contextlib.contextmanager
def _translated(file: str, path: Path | None) -> Iterator[None]:
    """Turn any error of an import into an `AgentFileError` of one sentence."""
    try:
        yield
    except SystemExit as error:
        hint = "Put code that workers must not run under if __name__ == '__main__'"
        raise AgentFileError(
            _line(file, path, error), f"importing it exited the process with {error.code!r}", hint
        ) from error
    except DurableError as error:
        raise AgentFileError(_line(file, path, error), str(error).rstrip(".")) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}".rstrip(": .")
        raise AgentFileError(_line(file, path, error), reason, _advice(error)) from error


def _advice(error: Exception) -> str:
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return "A file of a package is named as a module: package.module:agent"
    if isinstance(error, ModuleNotFoundError):
        return "Is it installed beside strands-durable, or in the folder of the file?"
    return ""


def _line(file: str, path: Path | None, error: BaseException) -> str:
    """Return the file and line of an error: the last line of the user's own code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path is not None and Path(frame.filename) == path] or _outside(frames)
    return f"{_short(own[-1].filename)}:{own[-1].lineno}" if own else file


def _outside(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Return the frames that belong neither to us nor to an installed package nor to Python itself."""
    here = str(Path(__file__).parents[1])
    other = [frame for frame in frames if os.path.isabs(frame.filename) and not frame.filename.startswith(here)]
    return [frame for frame in other if "site-packages" not in frame.filename and "/lib/python" not in frame.filename]


def _short(filename: str) -> str:
    """Return a path relative to the current folder if it is inside."""
    relative = os.path.relpath(filename)
    return filename if relative.startswith("..") else relative


def place_of(error: BaseException) -> str | None:
    """Return the last line of the user's own code that an error passed through."""
    own = _outside(traceback.extract_tb(error.__traceback__))
    return f"{_short(own[-1].filename)}:{own[-1].lineno}" if own else None
