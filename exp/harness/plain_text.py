"""A harness in 50 lines of plain Python: the policy's messages go to the environment as they are.

seal train exp/quickstart_harness.yaml --with-bfcl
"""

import json
import os
import urllib.request


def ask(url: str, body: object = None, key: str = "") -> dict:
    """Return the JSON answer to a request."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
        return json.load(answer)


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
