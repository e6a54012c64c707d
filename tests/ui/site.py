"""A page under test, without a browser: its app, a client, a backend with a worker, and runs of the contract's agents."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any, TypeVar

import httpx
from strands import Agent, ToolContext, tool

from strands_durable import ExecutionHandle, connect, durable_agent
from strands_durable._dispatch.ports import DurableBackend
from strands_durable.testing import Answer, ScriptedModel, call
from strands_durable.testing.agents import contract_agent, contract_graph
from strands_durable.ui import durable_ui
from strands_durable.ui._access import form_token as made_token
from tests import threads

T = TypeVar("T")
HOST = "http://testserver"
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}
HOSTILE = '<script>window.hurt = 1</script><img src=x onerror="window.hurt = 2"></pre></table>{{ 7 * 7 }}'
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


@tool
def fetch(url: str) -> dict[str, Any]:
    """Fetch a page that wants to be run, with a picture and a secret."""
    return {
        "status": "success",
        "content": [
            {"text": HOSTILE},
            {"json": {"page": HOSTILE, "api_key": "hunter2hunter2"}},
            {"image": {"format": "png", "source": {"bytes": PIXEL}}},
            {"image": {"format": "svg", "source": {"bytes": b"<svg onload='window.hurt = 3'/>"}}},
        ],
    }


@tool(context=True)
def choose(reason: Any, tool_context: ToolContext) -> str:
    """Ask a person, for any reason."""
    return f"chosen: {tool_context.interrupt('choice', reason=reason)}"


@durable_agent
def hostile_agent(url: str = "https://example.com/?password=hunter2hunter2") -> Agent:
    """An agent that fetches a page."""
    script = [call("fetch", url=url), Answer(text=f"It says {HOSTILE}")]
    return Agent(name=f"hostile {HOSTILE}", model=ScriptedModel(script), tools=[fetch], callback_handler=None)


class _Writer(ScriptedModel):
    """Writes word after word, from the moment there is a file ``go`` until there is a file ``enough``."""

    def __init__(self, folder: str) -> None:
        super().__init__([])
        self._folder = Path(folder)

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        while not (self._folder / "go").exists():
            await asyncio.sleep(0.02)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        while not (self._folder / "enough").exists():
            yield {"contentBlockDelta": {"delta": {"text": "word <b>after</b> word "}}}
            await asyncio.sleep(0.1)
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}
        yield {
            "metadata": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "metrics": {"latencyMs": 1}}
        }


@durable_agent
def writing_agent(folder: str) -> Agent:
    """An agent whose answer can be seen as it comes."""
    return Agent(model=_Writer(folder), callback_handler=None)


@durable_agent
def asking_agent(reason: Any) -> Agent:
    """An agent that asks for a reason."""
    return Agent(model=ScriptedModel([call("choose", reason=reason), "Done."]), tools=[choose], callback_handler=None)


class Site:
    """Requests and runs, all on one event loop."""

    def __init__(self, backend: DurableBackend, app: Any, folder: str) -> None:
        self.backend, self.folder = backend, folder
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)  # a browser has the loop of this one
        self._thread.start()
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOST)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def close(self) -> None:
        self.run(self.client.aclose())
        self.run(self.backend.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        threads.join(self._thread)
        self.loop.close()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.run(self.client.get(path, **options))

    def text(self, path: str) -> str:
        """Return the words of a page, without its tags."""
        response = self.get(path)
        assert response.status_code == 200, response.text
        return words(response.text)

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Send a form as a page of the site would."""
        token = form_token(self.get("/inbox").text) or made_token(next(iter(self.client.cookies.values())), "anna")
        return self.run(self.client.post(path, data={"form_token": token, **fields}, headers=SAME_ORIGIN))

    def dispatch(self, execution_id: str, *script: Any, agent: Any = contract_agent) -> ExecutionHandle:
        """Start a run of the contract's agent, which follows a script."""
        spec = agent.spec_with(folder=self.folder, script=list(script))
        return self.run(self.backend.dispatch(spec, "Go", execution_id=execution_id))

    def finished(self, execution_id: str, *script: Any, agent: Any = contract_agent) -> ExecutionHandle:
        """Have such a run come to its end, or to its question."""
        handle = self.dispatch(execution_id, *script, agent=agent)
        self.run(handle.result(timeout=30))
        return handle

    def started(self, execution_id: str, agent: Any, **arguments: Any) -> ExecutionHandle:
        """Have a run of another agent come to its end, or to its question."""
        handle = self.run(self.backend.dispatch(agent.spec_with(**arguments), "Go", execution_id=execution_id))
        self.run(handle.result(timeout=30))
        return handle

    def writing(self, execution_id: str) -> ExecutionHandle:
        """Start a run whose model writes while there is a file ``go`` and no file ``enough``."""
        return self.run(
            self.backend.dispatch(writing_agent.spec_with(folder=self.folder), "Go", execution_id=execution_id)
        )

    def touch(self, name: str) -> None:
        Path(self.folder, name).touch()

    def graph(self, execution_id: str) -> ExecutionHandle:
        """Have a graph come to its end."""
        return self.finished(execution_id, {"tool": "book", "city": "Rome"}, "Quickly.", agent=contract_graph)


@contextmanager
def site(folder: str, *, app: Any = None, url: str = "sqlite:///runs.db", **options: Any) -> Iterator[Site]:
    """Have a page over a new backend with a worker in this process."""
    backend = connect(url)
    options = {"authorize": lambda request: "anna", **options}
    found = Site(backend, app(backend) if app else durable_ui(backend, **options), folder)
    try:
        yield found
    finally:
        found.close()


def form_token(html: str) -> str:
    """Return what a form of a page carries; nothing if it has no form."""
    found = re.search(r'name="form_token" value="([0-9a-f]+)"', html)
    return found[1] if found else ""


def words(html: str) -> str:
    """Return the text of a page, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
