"""Plays user tasks of AgentDojo with the official package; a program of the suite's own environment.

``python program.py PLAN.json``. The package's command line knows models by name and reaches a
local server at one address only, so this uses its public API: the default pipeline without a
defence, `TaskSuite.run_task_with_pipeline` and the tasks' own checks. Every attempt is appended
to a file as it ends. Nothing of SEAL is installed where this runs.

Two things differ from the package's own client, which would change what is measured. The system
message is sent as `system`: chat templates of open models drop the role `developer`. And the
temperature is always sent: the package leaves out a temperature of 0.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, PipelineConfig
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM
from agentdojo.task_suite.load_suites import get_suite
from openai.types.chat import ChatCompletion
from pydantic import ValidationError

CONTEXT_STATUS = frozenset({400, 413, 422})


class UnreadableCall(Exception):
    """The model wrote arguments that are not a JSON object."""


class ProtocolFault(Exception):
    """The endpoint's answer is not a chat completion."""


class Endpoint:
    """The part of the OpenAI client that the package uses, for one attempt: it counts tokens and names requests."""

    def __init__(self, client: openai.OpenAI, plan: Mapping[str, Any], name: str, sample: int):
        self.chat = SimpleNamespace(completions=self)
        self.requests = self.input_tokens = self.output_tokens = 0
        self._client, self._name = client, name
        self._settings = {"temperature": plan["temperature"], "seed": plan["seed"] + sample}

    def create(self, messages: Sequence[Mapping[str, Any]], **request: Any) -> ChatCompletion:
        """One completion, with the settings of the plan."""
        sent = [{**each, "role": "system"} if each["role"] == "developer" else each for each in messages]
        header = {"X-Request-Id": f"{self._name}/{self.requests}"}
        request |= self._settings
        try:
            answer = self._client.chat.completions.create(messages=sent, extra_headers=header, **request)
        except ValueError as error:
            raise ProtocolFault(f"no JSON: {error}") from error
        if not isinstance(answer, ChatCompletion) or not answer.choices:
            raise ProtocolFault(f"no chat completion: {str(answer)[:200]}")
        self.requests += 1
        if answer.usage is not None:
            self.input_tokens += answer.usage.prompt_tokens
            self.output_tokens += answer.usage.completion_tokens
        return answer


class Agent(OpenAILLM):
    """The package's model, which tells an unreadable call from other errors."""

    def query(self, *arguments: Any, **named: Any) -> Any:
        """Ask for the next message."""
        try:
            return super().query(*arguments, **named)
        except (json.JSONDecodeError, ValidationError) as error:
            raise UnreadableCall(str(error)) from error


def play(client: openai.OpenAI, plan: Mapping[str, Any], suite: str, task: str, sample: int) -> dict[str, Any]:
    """One attempt: its verdict, or why it has none."""
    began = time.monotonic()
    endpoint = Endpoint(client, plan, f"{suite}/{task}/{sample}", sample)
    found: dict[str, Any] = {"passed": False, "stop": "answered", "infra": None, "message": ""}
    tasks = get_suite(plan["benchmark"], suite)
    agent = Agent(endpoint, plan["model"])
    agent.name = plan["model"]
    pipeline = AgentPipeline.from_config(
        PipelineConfig(llm=agent, model_id=None, defense=None, system_message_name=None, system_message=None)
    )
    try:
        found["passed"], _ = tasks.run_task_with_pipeline(pipeline, tasks.user_tasks[task], None, {})
    except UnreadableCall as error:
        found |= {"stop": "unreadable_call", "message": str(error)}
    except ProtocolFault as error:
        found |= {"infra": "endpoint_protocol", "message": str(error)}
    except openai.APIStatusError as error:
        text = error.response.text
        if error.status_code in CONTEXT_STATUS and "context" in text.lower() and "length" in text.lower():
            found |= {"stop": "context", "message": text}
        else:
            found |= {"infra": f"endpoint_{error.status_code}", "message": text}
    except openai.APITimeoutError as error:
        found |= {"infra": "endpoint_timeout", "message": str(error)}
    except openai.APIError as error:
        found |= {"infra": "endpoint_unreachable", "message": str(error)}
    used = {"input_tokens": endpoint.input_tokens, "output_tokens": endpoint.output_tokens}
    return {**found, **used, "seconds": round(time.monotonic() - began, 3)}


def main(plan: Mapping[str, Any]) -> None:
    """Play the plan's attempts, several at once, and append each to its file."""
    client = openai.OpenAI(base_url=plan["base_url"], timeout=plan["timeout_s"])
    with Path(plan["out"]).open("a", encoding="utf-8") as out, ThreadPoolExecutor(plan["concurrency"]) as pool:
        running = {pool.submit(play, client, plan, *attempt): attempt for attempt in plan["attempts"]}
        for future in as_completed(running):
            error = future.exception()
            # An exception of the package itself gives no verdict; the other attempts go on.
            found = future.result() if error is None else {"infra": "package_error", "message": repr(error)}
            suite, task, sample = running[future]
            found["message"] = found["message"][:300]
            out.write(json.dumps({"suite": suite, "task": task, "sample": sample, **found}) + "\n")
            out.flush()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
