// Parts that several pages use.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { exported, get } from "./api.js";
import { kind, labelColour, words, WORDS } from "./text.js";

// Names and values in a row; a name that the glossary has says so where the pointer is.
export const Figures = ({ items }) => (
  <dl class="figures">
    {items.map(([name, value, word]) => <div title={WORDS[word]}><dt>{name}</dt><dd>{value}</dd></div>)}
  </dl>
);

// A name that may break after its underscores and dots, but not inside a word.
export const Name = ({ children }) => String(children).split(/(?<=[_.(=,])/).flatMap((part, at) => (at ? [<wbr />, part] : [part]));

export const Label = ({ label, blame, href }) => {
  const inner = (
    <>
      <i class={`dot ${kind(label)}`} style={{ background: labelColour(label) }} />
      {words(label)}
      {blame && <small>{blame}</small>}
    </>
  );
  return href ? <a class="label" href={href}>{inner}</a> : <span class="label">{inner}</span>;
};

export const Note = ({ children, tone = "" }) => <p class={`note ${tone}`}>{children}</p>;
export const Missing = ({ children }) => <p class="missing">{children}</p>;

export function Answer({ state, children, what = "Loading" }) {
  if (state.value !== undefined)
    return (
      <>
        {state.error && <Note tone="bad">{state.error}</Note>}
        {children(state.value)}
      </>
    );
  return state.error ? <Note tone="bad">{state.error}</Note> : <p class="missing" aria-busy="true">{what}…</p>;
}

export const Panel = ({ title, note, children, wide, actions }) => (
  <section class={`panel ${wide ? "wide" : ""}`}>
    <header>
      <h2>{title}</h2>
      {note && <span class="dim">{note}</span>}
      {actions && <span class="actions">{actions}</span>}
    </header>
    {children}
  </section>
);

export const Choice = ({ name, value, options, onPick }) => (
  <div class="choice" role="group" aria-label={name}>
    {options.map(([key, text]) => (
      <button type="button" aria-pressed={key === value} onClick={() => onPick(key)}>
        {text}
      </button>
    ))}
  </div>
);

export function Copy({ text, children }) {
  const [done, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea"); // an address without TLS has no clipboard
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return (
    <button type="button" class="button" title={text} onClick={copy}>
      {done ? "Copied" : children}
    </button>
  );
}

// Rows of equal height, of which only those in view are in the document; pages of them are fetched as they are needed.
const PAGE = 100;
export function Rows({ address, height, head, fresh, render, onTotal, label, chosen, onChoose }) {
  const box = useRef(null);
  const bar = useRef(null);
  const pages = useRef(new Map());
  const [view, setView] = useState({ top: 0, height: 600 });
  const [state, set] = useState({ total: null, error: "", version: 0 });
  const generation = useRef(0);

  const load = async (page, run) => {
    if (pages.current.has(page)) return;
    pages.current.set(page, null);
    try {
      const value = await get(address(page * PAGE, PAGE));
      if (generation.current !== run) return;
      pages.current.set(page, value.rows);
      set((old) => ({ total: value.total, error: "", version: old.version + 1 }));
      onTotal?.(value);
    } catch (error) {
      pages.current.delete(page);
      if (generation.current === run) set((old) => ({ ...old, total: old.total ?? 0, error: error.message }));
    }
  };
  const key = address(0, PAGE);
  useEffect(() => {
    if (box.current) box.current.scrollTop = 0;
    set({ total: null, error: "", version: 0 });
  }, [key]);
  useEffect(() => {
    generation.current += 1;
    const old = pages.current;
    pages.current = new Map();
    const first = Math.floor(((box.current?.scrollTop ?? 0) / height) / PAGE);
    load(first, generation.current).then(() => old.clear());
  }, [key, fresh]);
  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);
  useEffect(() => {
    const element = box.current;
    if (chosen === undefined || chosen < 0 || !element) return;
    const top = chosen * height;
    const room = element.clientHeight - (bar.current?.offsetHeight ?? 0);
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + room) element.scrollTop = top + height - room;
  }, [chosen, height]);

  const total = state.total ?? 0;
  const from = Math.max(0, Math.floor(view.top / height) - 6);
  const to = Math.min(total, Math.ceil((view.top + view.height) / height) + 6);
  useEffect(() => {
    for (let page = Math.floor(from / PAGE); page <= Math.floor(Math.max(from, to - 1) / PAGE); page += 1) load(page, generation.current);
  }, [from, to, state.version]);
  const items = [];
  for (let at = from; at < to; at += 1) {
    const row = pages.current.get(Math.floor(at / PAGE))?.[at % PAGE];
    items.push(
      <div class={`row ${at === chosen ? "chosen" : ""}`} style={{ top: `${at * height}px`, height: `${height}px` }} key={at} onClick={() => onChoose?.(at)}>
        {row ? render(row, at) : <span class="ghost" />}
      </div>,
    );
  }
  return (
    <div class="rows" ref={box} tabIndex={0} role="region" aria-label={label} data-total={state.total ?? ""}>
      {head && <div class="row head" ref={bar} aria-hidden="true">{head}</div>}
      {state.error && <Note tone="bad">{state.error}</Note>}
      {state.total === 0 && !state.error && <Missing>Nothing in the logs fits these filters.</Missing>}
      {state.total === null && !state.error && <p class="missing" aria-busy="true">Loading…</p>}
      <div class="space" style={{ height: `${total * height}px` }}>{items}</div>
    </div>
  );
}

export function useNarrow(width = 720) {
  const media = matchMedia(`(max-width: ${width}px)`);
  const [narrow, set] = useState(media.matches);
  useEffect(() => {
    const changed = () => set(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  return narrow;
}

// Keys of the page that is open, as {key: action}; typing in a field is left alone.
const keymaps = [];
export function useKeys(map) {
  const entry = useRef(map);
  entry.current = map;
  useLayoutEffect(() => {
    keymaps.push(entry);
    return () => keymaps.splice(keymaps.indexOf(entry), 1);
  }, []);
}
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest?.("input, select, textarea, dialog[open]");
  if (typing && event.key !== "Escape") return;
  if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return; // it acts itself
  for (const entry of [...keymaps].reverse()) {
    const action = entry.current[event.key];
    if (action) {
      event.preventDefault();
      action(event);
      return;
    }
  }
});

export const Offline = () => (exported ? <span class="pill">exported page</span> : null);
