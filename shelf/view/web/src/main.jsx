// The shell: which run, which page, whether it trains, the theme and the keys.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { exported, get, usePoll } from "./api.js";
import { Cues } from "./pages/cues.jsx";
import { Failures } from "./pages/failures.jsx";
import { Group, Groups } from "./pages/groups.jsx";
import { Overview } from "./pages/overview.jsx";
import { Trajectories } from "./pages/trajectories.jsx";
import { Trajectory } from "./pages/trajectory.jsx";
import { go, href, useRoute } from "./route.js";
import { runColour, seconds, STAGES, WORDS } from "./text.js";
import { Note, Offline, useKeys } from "./ui.jsx";
import "./style.css";

const PAGES = [["overview", "Overview"], ["failures", "Failures"], ["groups", "Groups"], ["trajectories", "Trajectories"], ["cues", "Cues Ω"]];
const SHOWN = { overview: Overview, failures: Failures, groups: Groups, group: Group, trajectories: Trajectories, trajectory: Trajectory, cues: Cues };
const PARENT = { group: "groups", trajectory: "trajectories" };
const POLL_MS = 2000;
const MOST = 8;

const stored = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a page opened from a file, or storage that is switched off
  }
};

function useTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const [picked, pick] = useState(() => stored("seal-theme"));
  const [system, setSystem] = useState(dark.matches ? "dark" : "light");
  useEffect(() => {
    const changed = () => setSystem(dark.matches ? "dark" : "light");
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  const theme = picked ?? system;
  document.documentElement.dataset.theme = theme;
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("seal-theme", next);
    } catch {
      // It then lasts as long as the page.
    }
    pick(next);
  };
  return [theme, toggle];
}

function App() {
  const route = useRoute();
  const [theme, toggle] = useTheme();
  const [{ runs, error }, set] = useState({ runs: null, error: "" });
  const help = useRef(null);
  usePoll(async () => {
    try {
      const { runs: found } = await get("api/runs");
      set((old) => (JSON.stringify(old.runs) === JSON.stringify(found) && !old.error ? old : { runs: found, error: "" }));
    } catch (problem) {
      set((old) => ({ ...old, error: problem.message }));
    }
  }, exported ? 1e9 : POLL_MS);
  const { params } = route;
  const page = SHOWN[route.page] ? route.page : "overview";
  const run = runs?.find((each) => each.name === params.run) ?? runs?.[0];
  const chosen = params.runs ? params.runs.split("|").filter((name) => runs?.some((each) => each.name === name)) : (runs ?? []).slice(0, MOST).map((each) => each.name);
  const keep = { run: params.run, runs: params.runs };
  const pages = exported ? PAGES.filter(([name]) => name !== "groups") : PAGES;
  useKeys({
    ...Object.fromEntries(pages.map(([name], at) => [String(at + 1), () => go(name, keep)])),
    "?": () => help.current.showModal(),
    t: toggle,
  });
  useEffect(() => {
    document.title = `${pages.find(([name]) => name === (PARENT[page] ?? page))?.[1] ?? "SEAL"}${run ? ` · ${run.name}` : ""} · SEAL viewer`;
    if (page !== "overview") scrollTo(0, 0);
  }, [page, params.key, run?.name]);
  document.documentElement.classList.toggle("listing", page === "trajectories" || page === "groups");
  const Page = SHOWN[page];
  const focus = page === "overview" && run && !chosen.includes(run.name) ? runs.find((each) => each.name === chosen[0]) ?? run : run;
  const single = runs?.length === 1;
  // Of an evaluation, or rollouts of other programs, the lists show the validations.
  const shown = exported || params.log || run?.last !== null ? params : { ...params, log: "validation" };
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href={href("overview", keep)}><i aria-hidden="true" />SEAL</a>
        <nav aria-label="Pages">
          {pages.map(([name, text]) => (
            <a href={href(name, keep)} aria-current={(PARENT[page] ?? page) === name ? "page" : undefined}>{text}</a>
          ))}
        </nav>
        {single && <Runs runs={runs} run={focus} chosen={chosen} page={page} params={params} />}
        <span class="actions">
          <Offline />
          <button type="button" class="button quiet" onClick={toggle} aria-label={`Use the ${theme === "dark" ? "light" : "dark"} theme`} title="Theme (t)">{theme === "dark" ? "Light" : "Dark"}</button>
          <button type="button" class="button quiet" onClick={() => help.current.showModal()} aria-label="Keys and words" title="Keys and words (?)">?</button>
        </span>
      </header>
      {runs?.length > 1 && <Runs runs={runs} run={focus} chosen={chosen} page={page} params={params} />}
      <main id="main" tabIndex={-1}>
        {!PARENT[page] && page !== "overview" && <h1 class="sr">{pages.find(([name]) => name === page)?.[1]}</h1>}
        {error && <Note tone="bad">{error}</Note>}
        {run ? (
          <Page params={shown} run={run} runs={runs} focus={focus.name} chosen={chosen.length ? chosen : [run.name]} fresh={run.signature} theme={theme} />
        ) : (
          !error && <p class="missing" aria-busy="true">Loading…</p>
        )}
      </main>
      <Help dialog={help} pages={pages} />
    </>
  );
}

function Runs({ runs, run, chosen, page, params }) {
  const arms = [...new Set(runs.filter((each) => chosen.includes(each.name)).map((each) => each.arm))];
  const overlay = (name) => {
    const next = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
    if (next.length) go("overview", { ...params, runs: next.join("|") }, true);
  };
  const pick = (name) => go(PARENT[page] ?? page, page === "overview" ? { ...params, run: name } : { run: name, runs: params.runs });
  return (
    <section class="runs" aria-label="Run">
      {runs.length > 1 ? (
        <label>
          <span class="sr">Run</span>
          <select value={run.name} onChange={(event) => pick(event.target.value)}>
            {runs.map((each) => <option value={each.name}>{each.name}</option>)}
          </select>
        </label>
      ) : (
        <b title={run.path}>{run.name}</b>
      )}
      <Status stage={run.stage} last={run.last} />
      {page === "overview" && runs.length > 1 && (
        <span class="overlay" role="group" aria-label="Runs in the curves">
          {runs.map((each) => (
            <button type="button" aria-pressed={chosen.includes(each.name)} onClick={() => overlay(each.name)}>
              <i style={{ background: chosen.includes(each.name) ? runColour(arms.indexOf(each.arm)) : "var(--line)" }} />
              {each.name}
            </button>
          ))}
        </span>
      )}
    </section>
  );
}

function Status({ stage, last }) {
  if (!stage) return <span class="dim">{last === null ? "has not started to train" : "what it does is not logged"}</span>;
  const { running, finished, planned } = stage;
  if (finished) return <span class="good">finished, {planned} of {planned} steps</span>;
  const doing = STAGES[stage.stage] ?? stage.stage;
  if (!running) return <span class="dim">{running === false ? "stopped" : "logged last"}: {last === null ? "no step" : `step ${last}`}{planned !== null && ` of ${planned}`} done, {doing} at step {stage.step}</span>;
  const where = stage.stage === "validate" ? `${stage.of} tasks at step ${stage.step}` : `step ${stage.step} of ${stage.of}`;
  return <span class="live" role="status"><i />{doing}, {where} <span class="dim">since {seconds(stage.seconds)}</span></span>;
}

function Help({ dialog, pages }) {
  const keys = [
    [pages.map((_, at) => at + 1).join(" "), pages.map(([, text]) => text).join(", ")],
    ["j k", "next and previous row, or trajectory of the list"],
    ["Enter", "open the chosen row"],
    ["[ ]", "previous and next rollout of the prompt"],
    ["g", "from a trajectory to its group"],
    ["u", "up to the list"],
    ["/", "search"],
    ["t", "theme"],
    ["?", "this help"],
  ];
  return (
    <dialog ref={dialog} aria-label="Keys and words" onClick={(event) => event.target === dialog.current && dialog.current.close()}>
      <h2>Keys</h2>
      <dl>{keys.map(([key, text]) => <div><dt>{key.split(" ").map((each) => <kbd>{each}</kbd>)}</dt><dd>{text}</dd></div>)}</dl>
      <h2>Words</h2>
      <dl>{Object.entries(WORDS).map(([word, text]) => <div><dt>{word}</dt><dd>{text}</dd></div>)}</dl>
      <p class="dim">docs/glossary.md has all of them.</p>
      <form method="dialog"><button class="button primary">Close</button></form>
    </dialog>
  );
}

render(<App />, document.getElementById("app"));
