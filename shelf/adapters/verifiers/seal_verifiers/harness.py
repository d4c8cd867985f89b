"""A harness without tools: each segment is one request to the model, made in this process."""

import verifiers.v1 as vf
from openai import AsyncOpenAI
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire


class SealHarnessConfig(vf.HarnessConfig):
    """The time limit of a request."""

    id: str = "seal-verifiers"
    request_s: float = Field(600.0, gt=0)
    """Seconds that the model has for one message, including the connection."""


class SealHarness(vf.Harness[SealHarnessConfig]):
    """Sends the dialogue as it is and leaves the answer as raw text, for the service to parse."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Ask the model once, through the endpoint that records the trace."""
        system, prompt = self.resolve_prompt(data)
        if isinstance(prompt, str):
            prompt = [vf.UserMessage(content=prompt)]
        messages = [message_to_wire(message) for message in prompt or []]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=self.config.request_s) as model:
            await model.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
