"""A harness in 40 lines of plain Python: the policy's messages go to the environment as they are.

seal train exp/quickstart_harness.yaml --with-bfcl
"""

import os

import requests

client = requests.Session()  # it keeps its connections: a new one costs the worker as much as a request


def ask(url: str, body: object = None, key: str = "") -> dict:
    """Return the JSON answer to a request."""
    method, headers = "GET" if body is None else "POST", {"Authorization": f"Bearer {key}"}
    answer = client.request(method, url, json=body, headers=headers)
    answer.raise_for_status()
    return answer.json()


def play() -> None:
    """Play one episode."""
    policy, key = f"{os.environ['OPENAI_BASE_URL']}/chat/completions", os.environ["OPENAI_API_KEY"]
    task = os.environ["SEAL_TASK_URL"]
    messages, ended = ask(task)["messages"], False
    while not ended:
        said = ask(policy, {"model": os.environ["OPENAI_MODEL"], "messages": messages}, key)
        text = said["choices"][0]["message"]["content"]
        answer = ask(task, {"text": text})
        messages += [{"role": "assistant", "content": text}, *answer["messages"]]
        ended = answer["ended"]


def main() -> None:
    """Play one episode after another."""
    while True:
        os.environ.update(ask(os.environ["SEAL_NEXT_URL"]))
        play()


if __name__ == "__main__":
    main()
