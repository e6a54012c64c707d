"""Session managers beside the journal: one owner of the history, and no turn twice in either."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.session import FileSessionManager, S3SessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage

from strands_durable.testing import Answer, call, reach
from tests.features.harness import BriefModel, answered, durability, effect, feature, seen

SCRIPT = [call("keep", key="a"), "One.", [call("keep", key="b"), call("keep", key="c")], "Two."]


@tool(context=True)
def keep(key: str, tool_context: ToolContext) -> str:
    """Keep a key in the state."""
    effect("keep", item=key)
    tool_context.agent.state.set(key, len(tool_context.agent.messages))
    return f"kept {key}"


@tool(context=True)
def approve(what: str, tool_context: ToolContext) -> str:
    """Ask a person."""
    reach("tool approve:start")
    return f"{what}: {tool_context.interrupt('approval', reason=what)}"


def agent_of(manager: Callable[[], Any], script: Any = SCRIPT, **options: Any) -> Agent:
    tools: Any = [keep, approve]
    return Agent(model=BriefModel(script), tools=tools, session_manager=manager(), callback_handler=None, **options)


def conversed(manager: Callable[[], Any], *prompts: str, script: Any = SCRIPT, **options: Any) -> Any:
    """Call an agent with a session; return what came of it, and what an agent without a journal finds in the session."""
    agent = agent_of(manager, script, plugins=[durability()], **options)
    results = [seen(agent, answered(agent, prompt, lambda found: f"yes to {found.reason}")) for prompt in prompts]
    return {"results": results, "restored": restored(manager)}


def restored(manager: Callable[[], Any]) -> Any:
    """Return what a new agent has of the session: what the store holds, not what the journal knows."""
    agent = agent_of(manager)
    return {"state": agent.state.get(), "messages": [[found["role"], found["content"]] for found in agent.messages]}


def in_files() -> Any:
    return FileSessionManager("talk", storage_dir="sessions")


def in_snapshots(**options: Any) -> Any:
    return SnapshotSessionManager("talk", storage=LocalFileStorage("sessions"), **options)


@contextmanager
def s3_server(folder: Path) -> Iterator[None]:
    """Run an S3 that outlives the killed processes."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    (folder / "s3").write_text(f"http://{host}:{port}")
    try:
        yield
    finally:
        server.stop()


def in_s3() -> Any:
    """Return a manager on a bucket of this run's own."""
    os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_ENDPOINT_URL=Path("../s3").read_text())
    session, bucket = boto3.Session(region_name="us-east-1"), f"bucket-{Path.cwd().name}"
    session.client("s3").create_bucket(Bucket=bucket)
    return S3SessionManager("talk", bucket=bucket, boto_session=session)


@feature(10, "a session in files, two calls")
def a_session_in_files() -> Any:
    return conversed(in_files, "First", "Second")


@feature(
    10, "a session in S3", around=s3_server, points=r"(model|tool)\.start:before|(model|tool)\.done:after|call\.end"
)
def a_session_in_s3() -> Any:
    return conversed(in_s3, "First")


@feature(10, "a session in snapshots, one per message")
def a_session_in_snapshots() -> Any:
    return conversed(lambda: in_snapshots(save_latest_on="message"), "First")


@feature(10, "a session in snapshots, one per call")
def a_session_in_snapshots_per_call() -> Any:
    return conversed(in_snapshots, "First")


@feature(10, "a session that waits for a person")
def a_session_that_waits() -> Any:
    found = conversed(in_files, "Paint", script=[call("approve", what="paint"), "Done."])
    del found["results"][0]["tools"]  # an attempt that asked counts only in the process that made it
    return found


@feature(10, "a session whose window slides")
def a_session_whose_window_slides() -> Any:
    def script(turn: int, messages: Any) -> Any:
        last = str(messages[-1]["content"])
        return "One." if "kept b" in last else call("keep", key="b" if "kept a" in last else "a")

    return conversed(
        in_files, "First", script=script, conversation_manager=SlidingWindowConversationManager(window_size=3)
    )


@feature(10, "a session whose last message is redacted")
def a_session_with_a_redaction() -> Any:
    return conversed(in_files, "A secret", script=[call("keep", key="a"), Answer(text="No.", redact_user="[gone]")])
