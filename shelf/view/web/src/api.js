// Answers of the server, or of the page itself if it was exported.
import { useEffect, useRef, useState } from "preact/hooks";

const embedded = document.getElementById("seal-export");
const answers = embedded ? JSON.parse(embedded.textContent) : null;
export const exported = answers !== null;

const KEPT = 60;
const cache = new Map();

export function url(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    if (Array.isArray(value)) value.forEach((each) => query.append(name, each));
    else query.set(name, value);
  }
  query.sort();
  const text = query.toString();
  return `api/${path}${text ? `?${text}` : ""}`;
}

// What the server would answer, from the answers in the page.
function answer(address) {
  const [path, query] = address.split("?");
  const asked = new URLSearchParams(query);
  if (["api/overview", "api/validation"].includes(path)) return { runs: asked.getAll("run").flatMap((name) => answers[`${path}?run=${name}`]?.runs ?? []) };
  if (path === "api/trajectories") return listed(asked);
  return answers[decodeURIComponent(address.replaceAll("+", " "))];
}

export const sampled = (run) => answers?.[`api/sample?run=${run}`];

// The rows of the sample that fit the filters; one and the same turn must have label, fault, tool and position.
function listed(asked) {
  const run = asked.get("run");
  const is = (name, value) => !asked.get(name) || asked.get(name) === String(value);
  const rows = (sampled(run)?.keys ?? []).flatMap((key) => {
    const { record, figures } = answers[`api/trajectory?key=${key}&run=${run}`];
    const { labels = [], diagnosis = [], evidence = [] } = record;
    const tools = (at) => [...(evidence[at]?.actions ?? []).flatMap((action) => (action.calls ?? []).map((each) => each.name)), ...(evidence[at]?.needed ?? [])];
    const blames = labels.map((_, at) => diagnosis.find((each) => each.turn === at)?.blame ?? null);
    const fits = labels.some((label, at) => is("label", label) && is("turn", at) && is("blame", blames[at]) && (!asked.get("tool") || tools(at).includes(asked.get("tool"))));
    if (!(fits || (!labels.length && !["label", "turn", "blame", "tool"].some((name) => asked.get(name))))) return [];
    if (!is("category", figures.category) || !is("step", figures.step)) return [];
    if (asked.get("from_step") && figures.step < Number(asked.get("from_step"))) return [];
    if (asked.get("to_step") && figures.step > Number(asked.get("to_step"))) return [];
    return [{ ...record, ...figures, key, task: record.task_id, labels, blames, infra: record.infra ?? null, errors: record.errors ?? 0, tokens: record.tokens ?? 0 }];
  });
  rows.sort((a, b) => b.step - a.step);
  const offset = Number(asked.get("offset"));
  return { total: rows.length, offset, rows: rows.slice(offset, offset + Number(asked.get("limit"))), searched: null };
}

export async function get(address, signal) {
  if (exported) {
    const found = answer(address);
    if (found === undefined) throw new Error("An exported page does not hold this. Run `seal view` on the run to see it.");
    return found;
  }
  let response;
  try {
    response = await fetch(address, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The viewer does not answer: it was ended. Start `seal view` again.");
  }
  if (response.headers.get("content-type")?.includes("json")) {
    const value = await response.json();
    if (!response.ok) throw new Error(value.error ?? `The viewer answered ${response.status}.`);
    return value;
  }
  throw new Error(await response.text());
}

// The answer to an address; `fresh` changes whenever it must be asked again. Keeps the old answer meanwhile.
export function useApi(address, fresh = "") {
  const [state, set] = useState(() => ({ address, value: cache.get(address) }));
  const shown = useRef(address);
  useEffect(() => {
    if (!address) return;
    const aborter = new AbortController();
    if (shown.current !== address) set({ address, value: cache.get(address) });
    shown.current = address;
    get(address, aborter.signal).then(
      (value) => {
        cache.delete(address);
        cache.set(address, value);
        if (cache.size > KEPT) cache.delete(cache.keys().next().value);
        set({ address, value });
      },
      (error) => error.name !== "AbortError" && set((old) => ({ address, value: old.address === address ? old.value : undefined, error: error.message })),
    );
    return () => aborter.abort();
  }, [address, fresh]);
  return state.address === address ? state : { address, value: cache.get(address) };
}

// Calls `work` now and every `ms` while the page is visible.
export function usePoll(work, ms) {
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => {
    let timer = 0;
    let ended = false;
    const tick = async () => {
      if (!document.hidden) await latest.current();
      if (!ended) timer = setTimeout(tick, ms);
    };
    tick();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [ms]);
}
