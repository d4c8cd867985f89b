// One message of a dialogue: who speaks, what was said, and what was called.
import { useState } from "preact/hooks";
import { call } from "../text.js";
import { Name } from "../ui.jsx";

const LONG = 900;

export function Message({ message, action, plain, answer }) {
  const calls = action?.calls ?? [];
  const refusals = action?.refusals ?? [];
  // A message that is nothing but calls is shown as them; what was written is one click away.
  const parsed = calls.length > 0 && !refusals.length;
  const own = typeof plain === "number" ? message.content.slice(0, plain) : message.content;
  const added = typeof plain === "number" ? message.content.slice(plain) : "";
  return (
    <article class={`message ${message.speaker}`}>
      <h3>{message.speaker}</h3>
      <div class="said">
        {!parsed && <Text own={own} added={added} folded={message.speaker === "system"} />}
        {action?.truncated && <p class="flaw">A length limit cut this message.</p>}
        {refusals.map((refusal) => <p class="flaw">The parser refused: {refusal}</p>)}
        {calls.map((each) => <Call call={each} heard={answer} />)}
        {parsed && <details class="raw"><summary>as written</summary><pre class="text">{message.content}</pre></details>}
      </div>
    </article>
  );
}

// What the environment itself sent, then what the cues added, marked.
function Text({ own, added, folded }) {
  const [open, set] = useState(!folded);
  const long = own.length > LONG;
  if (!own && !added) return <p class="dim">(empty)</p>;
  return (
    <>
      <pre class="text">{!open && long ? `${own.slice(0, LONG)}…` : own}{added && <mark title="Added by the cues of Ω; validation never shows it">{added}</mark>}</pre>
      {long && folded && <button type="button" class="button quiet" onClick={() => set(!open)}>{open ? "Fold" : `Show all ${own.length.toLocaleString("en")} characters`}</button>}
      {added && <p class="cueline">marked: added by the cues of Ω</p>}
    </>
  );
}

const ERRORS = { unavailable: "the tool is not available", signature: "the tool refused its arguments", execution: "the tool reported an error", deadline: "it ran out of time" };

// heard: what the environment answered in this turn; a result that it holds is not said twice.
function Call({ call: each, heard }) {
  const failed = Boolean(each.error || each.violations?.length);
  const unheard = each.result && heard !== undefined && !heard.includes(each.result);
  return (
    <div class={`made ${failed ? "failed" : ""}`}>
      <code><Name>{call(each)}</Name></code>
      <ul>
        {!each.available && <li class="flaw">not an available tool</li>}
        {(each.violations ?? []).map((violation) => <li class="flaw">schema, {violation.kind}{violation.path && <> at <code>{violation.path}</code></>}: {violation.message}</li>)}
        {each.error && <li class="flaw">{ERRORS[each.error] ?? each.error}</li>}
        {unheard && <li class="result"><details><summary>the whole result, {each.result.length.toLocaleString("en")} characters</summary><code>{each.result}</code></details></li>}
      </ul>
    </div>
  );
}
