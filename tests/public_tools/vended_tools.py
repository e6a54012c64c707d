"""The tools that come with Strands."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from strands import Agent, tool
from strands.types.tools import ToolContext
from strands.vended_tools import (
    file_editor,
    handoff_to_user,
    http_request,
    make_a2a_client,
    make_mcp_router,
    make_subagent,
    make_swarm,
    make_web_fetch,
    notebook,
    python_repl,
    shell,
    sleep,
    stop,
)

from strands_durable.testing import call
from tests.public_tools.scenario import SERVER, STRIKE, Place, agent_of, by_prompt, pay, scenario

TOOLS = "strands.vended_tools"


def _shell(place: Place, found: Any) -> Agent:
    rome, oslo = (place.command(f"echo {city} >> cities; echo {city}") for city in ("Rome", "Oslo"))
    return agent_of(place, [call(found.tool_name, command=rome), call(found.tool_name, command=oslo), "Done."], [found])


@scenario(f"{TOOLS}.shell", note="each call has its own shell")
def in_shell(place: Place) -> Agent:
    return _shell(place, shell)


@scenario(f"{TOOLS}._bash", note="the old name of `shell`")
def in_bash(place: Place) -> Agent:
    with warnings.catch_warnings(action="ignore"):
        from strands.vended_tools import bash
    return _shell(place, bash)


@scenario(f"{TOOLS}.python_repl", note="each call has its own interpreter")
def in_python(place: Place) -> Agent:
    code = f"""
import subprocess, sys
open("cities", "a").write("Rome\\n")
subprocess.run([sys.executable, "-IS", {str(STRIKE)!r}, {str(place.folder)!r}])
print("Rome")"""
    return agent_of(place, [call("python_repl", code=code), "Done."], [python_repl])


def _edit(place: Place, command: str, **given: Any) -> Agent:
    path = str(place.folder / "trip")
    edit, view = (
        call("file_editor", command=command, path=path, **given),
        call("file_editor", command="view", path=path),
    )
    return agent_of(place, [edit, view, "Done."], [file_editor])


@scenario(
    f"{TOOLS}.file_editor",
    "`create`",
    note="the repeated call fails, because the file is there: the model sees an error",
)
def create(place: Place) -> Agent:
    path = str(place.folder / "new")
    script = [
        call("file_editor", command=what, path=path, **given)
        for what, given in (("create", {"file_text": "x\n"}), ("view", {}))
    ]
    return agent_of(place, [*script, "Done."], [file_editor])


@scenario(
    f"{TOOLS}.file_editor",
    "`str_replace`",
    note="the repeated call fails, because the text is gone: the model sees an error",
)
def replace(place: Place) -> Agent:
    return _edit(place, "str_replace", old_str="Rome", new_str="Oslo")


@scenario(f"{TOOLS}.file_editor", "`insert`", note="a call in doubt inserts its text twice")
def insert(place: Place) -> Agent:
    return _edit(place, "insert", insert_line=1, new_str="Oslo\n")


@scenario(f"{TOOLS}.notebook", note="kept in the agent's state")
def notes(place: Place) -> Agent:
    script = [
        call("notebook", mode="create", name="trip", new_str="Rome"),
        call("notebook", mode="write", name="trip", insert_line=-1, new_str="Oslo"),
        call("notebook", mode="read", name="trip"),
    ]
    return agent_of(place, [*script, "Done."], [notebook])


@scenario(f"{TOOLS}.sleep", note="an interrupted sleep starts over; `durable.sleep` waits for the remainder")
def sleeping(place: Place) -> Agent:
    return agent_of(place, [call("sleep", duration=0.01), call("pay", amount=5), "Done."], [sleep, pay])


@scenario(f"{TOOLS}.stop")
def stopping(place: Place) -> Agent:
    return agent_of(
        place, [call("pay", amount=5), [call("pay", amount=7), call("stop", message="Enough.")]], [stop, pay]
    )


@scenario(f"{TOOLS}.handoff_to_user", note="the answer may come in any process", answer="Rome")
def handing_off(place: Place) -> Agent:
    return agent_of(
        place, [call("pay", amount=5), call("handoff_to_user", message="Where to?"), "Done."], [handoff_to_user, pay]
    )


@scenario(f"{TOOLS}.http_request", note="sends the step's key as `Idempotency-Key`: the repeated request has the same")
def requesting(place: Place) -> Agent:
    orders = [call("http_request", method="POST", url=f"{place.web}/order", body=item) for item in ("tea", "milk")]
    return agent_of(place, [*orders, "Done."], [http_request])


@scenario(f"{TOOLS}.web_fetch", "as Markdown", note="the page is fetched again")
def fetching(place: Place) -> Agent:
    tools = [make_web_fetch(mode="markdown")]
    return agent_of(place, [call("web_fetch", url=f"{place.web}/page"), "Done."], tools)


@scenario(
    f"{TOOLS}.web_fetch", "with an analyst", note="the page is fetched again, the analyst's recorded answer is used"
)
def analysing(place: Place) -> Agent:
    script = by_prompt(Go=[call("web_fetch", url=f"{place.web}/page", prompt="Which city?"), "Done."], city=["Rome."])
    return agent_of(place, script, [make_web_fetch()])


@scenario(f"{TOOLS}.mcp_router", note="`connect` and `disconnect` are repeated, `call_tool` is not")
def routing(place: Place) -> Agent:
    router = make_mcp_router(servers={"shop": {"command": sys.executable, "args": [str(SERVER)]}})
    use = call("mcp_router", command="call_tool", connection_id="one", tool_name="price", arguments={"item": "tea"})
    script = [
        call("mcp_router", command="connect", server_name="shop", connection_id="one"),
        use,
        use,
        call("mcp_router", command="disconnect", connection_id="one"),
    ]
    return agent_of(place, [*script, "Done."], [router])


@scenario(f"{TOOLS}.a2a_client", note="the remote agent is asked again, with a new message id")
def asking(place: Place) -> Agent:
    message = f"Rome or not, {place.folder}"
    script = [call("a2a_client", operation="send_message", endpoint=place.remote, message=message), "Done."]
    return agent_of(place, script, [make_a2a_client(allowed_endpoints=[place.remote])])


# Agents inside

TWICE = [call("pay", amount=5), call("pay", amount=7), "Paid."]


@tool(context=True)
def confirm(amount: int, tool_context: ToolContext) -> str:
    """Ask a person whether to pay."""
    return str(tool_context.interrupt("sure", reason={"amount": amount}))


ASKING = [call("pay", amount=5), call("confirm", amount=7), call("pay", amount=7), "Paid."]


def _subagent(place: Place, inside: Any) -> Agent:
    script = by_prompt(Go=[call("subagent", task="Pay it."), call("pay", amount=9), "Done."], Pay=inside)
    return agent_of(place, script, [make_subagent(), pay, confirm])


def _swarm(place: Place, inside: Any) -> Agent:
    members = [{"name": "first", "instructions": "Begin."}, {"name": "second", "instructions": "End."}]

    def member(turn: int, messages: list[Any]) -> Any:
        is_second = "Handoff Message" in str(messages[0])
        handing = [call("handoff_to_agent", agent_name="second", message="Your turn."), "Over."]
        return inside[turn] if is_second else [call("pay", amount=3), *handing][turn]

    script = by_prompt(Go=[call("swarm", task="Pay it.", agents=members), call("pay", amount=9), "Done."], Pay=member)
    return agent_of(place, script, [make_swarm(), pay, confirm])


@scenario(f"{TOOLS}.subagent")
def delegating(place: Place) -> Agent:
    return _subagent(place, TWICE)


@scenario(f"{TOOLS}.subagent", "with a question inside", answer="yes")
def delegating_with_a_question(place: Place) -> Agent:
    return _subagent(place, ASKING)


@scenario(f"{TOOLS}.swarm")
def swarming(place: Place) -> Agent:
    return _swarm(place, TWICE)


@scenario(f"{TOOLS}.swarm", "with a question inside", answer="yes")
def swarming_with_a_question(place: Place) -> Agent:
    return _swarm(place, ASKING)
