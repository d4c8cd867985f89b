// The filters of a list, which live in the address.
import { useEffect, useRef, useState } from "preact/hooks";
import { exported, url, useApi } from "../api.js";
import { go } from "../route.js";
import { words } from "../text.js";
import { Choice, useKeys } from "../ui.jsx";

const TEXT = { category: "category", source: "tasks", label: "label", blame: "fault", tool: "tool", outcome: "outcome", stop: "end", order: "order", from_step: "from step", to_step: "to step", turn: "turn", task: "task", text: "text" };
const FIXED = {
  blame: [["own", "own"], ["inherited", "inherited"]],
  outcome: [["passed", "passed"], ["failed", "failed"], ["infra", "lost to infrastructure"], ["excluded", "excluded"]],
  order: [["new", "newest first"], ["old", "oldest first"], ["score", "lowest reward"], ["w", "largest w"], ["advantage", "largest |A|"], ["tokens", "most tokens"], ["errors", "most errors"]],
};

export function FilterBar({ params, run, page, names: always, more = [], fresh, children }) {
  const [open, setOpen] = useState(false);
  const names = open || more.some((name) => params[name]) ? [...always, ...more] : always;
  const choices = useApi(exported ? "" : url("choices", { run: run.name }), fresh).value ?? {};
  const set = (name, value) => go(page, { ...params, [name]: value }, true);
  const search = useRef(null);
  useKeys({ "/": () => search.current?.focus() });
  if (exported) return null;
  const options = (name) => FIXED[name] ?? (choices[name] ?? []).map((value) => [value, name === "label" ? words(value) : value || "unknown"]);
  const used = names.filter((name) => params[name] && !["log", "order"].includes(name));
  const extra = ["step", "turn", "source", "stop", "omega", "label", "outcome"].filter((name) => params[name] && !names.includes(name));
  return (
    <div class="filters" role="search">
      {names.includes("log") && <Choice name="Log" value={params.log ?? "train"} options={[["train", "training"], ["validation", "validation"]]} onPick={(log) => go(page, { ...params, log, from_step: "", to_step: "", step: "" }, true)} />}
      {names.filter((name) => name !== "log").map((name) =>
        ["from_step", "to_step", "task", "text", "turn"].includes(name) ? (
          <Field key={name} name={name} value={params[name] ?? ""} onSet={(value) => set(name, value)} own={name === "text" || (name === "task" && !names.includes("text")) ? search : undefined} />
        ) : (
          <label class={params[name] ? "set" : ""} key={name}>
            <span>{TEXT[name]}</span>
            <select value={params[name] ?? ""} onChange={(event) => set(name, event.target.value)}>
              {name !== "order" && <option value="">any</option>}
              {options(name).map(([value, text]) => <option value={name === "order" && value === "new" ? "" : value}>{text}</option>)}
            </select>
          </label>
        ),
      )}
      {extra.map((name) => (
        <button type="button" class="pill" onClick={() => set(name, "")} title="Remove this filter">{TEXT[name] ?? name}: {name === "turn" ? Number(params[name]) + 1 : params[name]} ×</button>
      ))}
      {more.length > 0 && names === always && <button type="button" class="button quiet" onClick={() => setOpen(true)}>More filters</button>}
      {used.length + extra.length > 0 && <button type="button" class="button quiet clear" onClick={() => go(page, { run: params.run, runs: params.runs, log: params.log, by: params.by, spread: params.spread }, true)}>Clear</button>}
      {children}
    </div>
  );
}

function Field({ name, value, onSet, own }) {
  const [draft, set] = useState(value);
  const timer = useRef(0);
  useEffect(() => set(value), [value]);
  const counts = ["from_step", "to_step", "turn"].includes(name);
  const shownFrom = name === "turn" && draft !== "" ? Number(draft) + 1 : draft;
  const change = (event) => {
    let next = event.target.value.trim();
    if (name === "turn" && next) next = String(Math.max(0, Number(next) - 1));
    if (counts && next && !/^\d+$/.test(next)) return;
    set(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onSet(next), 300);
  };
  return (
    <label class={value ? "set" : ""}>
      <span>{TEXT[name]}</span>
      <input
        ref={own}
        type={counts ? "number" : "search"}
        min={counts ? 0 : undefined}
        class={counts ? "short" : name === "text" ? "long" : ""}
        value={shownFrom}
        placeholder={{ text: "in the dialogue  ( / )", task: "part of its id" }[name] ?? "any"}
        onInput={change}
        onKeyDown={(event) => event.key === "Escape" && event.target.blur()}
      />
    </label>
  );
}
