"""The peer: pydantic-ai's AWS Lambda durability, as its README shows it. Runs in a virtualenv of its own."""

from __future__ import annotations

from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits
from pydantic_ai_harness.aws_lambda import AWSLambdaDurability, durable_agent_handler

from bench.aws_lambda.script import LAST, begin, cycles_in, text


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    page = sum(isinstance(message, ModelResponse) for message in messages)
    begin("model", page)
    if page == cycles_in(str(messages[0].parts[0].content)):
        return ModelResponse(parts=[TextPart(LAST)])
    return ModelResponse(
        parts=[TextPart(text("model", page)), ToolCallPart("read_page", {"page": page}, f"page-{page}")]
    )


agent = Agent(FunctionModel(_answer, model_name="scripted"), name="reader", capabilities=[AWSLambdaDurability()])


@agent.tool_plain
def read_page(page: int) -> str:
    """Read a page."""
    begin("tool", page)
    return text("tool", page)


@durable_execution
@durable_agent_handler
async def handler(event: dict[str, Any], context: DurableContext) -> str:
    """Run the agent."""
    result = await agent.run(event["prompt"], usage_limits=UsageLimits(request_limit=None))
    return result.output
