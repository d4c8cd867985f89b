"""A user without a model: an OpenAI-compatible endpoint that plays the users of `seal env new` by rules.

python exp/user/rules.py PORT [SECONDS]: answers after that many seconds. It reads its wishes, the lines that begin with
"- ", from the instructions, says them one by one in words that follow from the request's seed, sometimes only hints at
one first and gives in when it is asked, and ends the dialogue when all were answered, or an answer is empty.
"""

import json
import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STOP = "###STOP###"
WORDS = ("Please get {}.", "I want {}.", "Can you get {}?", "I need {}, please.", "Now {}.")
HINTS = ("I have a change for my list.", "There is something about my list.")
"""They hold no wish: whoever acts on them guesses."""
EMPTY = "(no answer)"


def said(messages: list[dict], seed: int) -> str:
    """The user's next message, from those of its request."""
    wishes = [line[2:] for line in messages[0]["content"].splitlines() if line.startswith("- ")]
    heard, spoken = messages[-1]["content"], [each["content"] for each in messages if each["role"] == "assistant"]
    draw = random.Random(seed)
    hinted = spoken[-1:] and spoken[-1] in HINTS
    told = sum(text not in HINTS for text in spoken)
    if told == len(wishes) or (spoken and heard == EMPTY):
        return STOP
    if not hinted and draw.random() < 0.2:
        return draw.choice(HINTS)
    return draw.choice(WORDS).format(wishes[told])


class Rules(BaseHTTPRequestHandler):
    """Answers chat completions by the rules."""

    protocol_version = "HTTP/1.1"
    seconds = 0.0

    def do_POST(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.seconds)
        text = said(asked["messages"], asked.get("seed", 0))
        words = sum(len(message["content"].split()) for message in asked["messages"])
        usage = {"prompt_tokens": words, "completion_tokens": len(text.split())}
        self.answer(200, {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage})

    def answer(self, status: int, value: object) -> None:
        """Send a value as JSON."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Endpoint(ThreadingHTTPServer):
    """Takes the rollouts of a step at once: the standard library's queue of five would leave the others waiting."""

    request_queue_size = 1024


if __name__ == "__main__":
    Rules.seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    Endpoint(("127.0.0.1", int(sys.argv[1])), Rules).serve_forever()
