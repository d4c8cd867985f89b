// plain_text.py in Node: seal train exp/quickstart.yaml --with-bfcl "seal.rollout.harness=[node,exp/harness/plain_text.mjs]"

/** Return the JSON answer to a request. */
async function ask(url, body, key = "") {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
  const answer = await fetch(url, body && { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** Play one episode, given by its variables. */
async function play({ OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL, SEAL_TASK_URL }) {
  const { messages } = await ask(SEAL_TASK_URL);
  for (let ended = false; !ended; ) {
    const said = await ask(`${OPENAI_BASE_URL}/chat/completions`, { model: OPENAI_MODEL, messages }, OPENAI_API_KEY);
    const text = said.choices[0].message.content;
    const answer = await ask(SEAL_TASK_URL, { text });
    messages.push({ role: "assistant", content: text }, ...answer.messages);
    ended = answer.ended;
  }
}

for (;;) await play(await ask(process.env.SEAL_NEXT_URL)); // one episode after another
