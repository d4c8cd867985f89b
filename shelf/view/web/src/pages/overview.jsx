// Curves of one run, or of several over each other: seeds of an arm as its mean and their range.
import { useMemo } from "preact/hooks";
import { url, useApi } from "../api.js";
import { Chart, movingMean } from "../chart.jsx";
import { go, href } from "../route.js";
import { count, kind, labelColour, number, percent, runColour, seconds, signed, words } from "../text.js";
import { Answer, Choice, Figures, Missing, Note, Panel } from "../ui.jsx";
import { FirstLook } from "./firstlook.jsx";

const mean = (values) => {
  const found = values.filter((value) => value !== null && value !== undefined);
  return found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : null;
};

export function Overview({ params, runs, focus, chosen, theme }) {
  const signature = runs.filter((run) => chosen.includes(run.name)).map((run) => run.signature).join();
  const state = useApi(url("overview", { run: chosen }), signature);
  return <Answer state={state}>{(value) => <Curves shown={value.runs} focus={focus} params={params} theme={theme} known={runs} />}</Answer>;
}

function Curves({ shown, focus, params, theme, known }) {
  const run = shown.find((each) => each.name === focus) ?? shown[0];
  const several = shown.length > 1;
  const of = several ? `${run.name}: ` : "";
  const status = known.find((each) => each.name === run.name);
  const names = shown.map((each) => each.name);
  const signature = known.filter((each) => names.includes(each.name)).map((each) => each.signature).join();
  const validation = useApi(url("validation", { run: names }), signature);
  const said = validation.value?.runs.find((each) => each.name === run.name)?.headline;
  return (
    <>
      <h1 class="headline" aria-busy={said || validation.error ? undefined : "true"}>{(said ?? run.name).replaceAll("->", "→").replaceAll(" %", "\u00a0%")}</h1>
      <Summary run={run} />
      <Problems run={run} status={status} />
      <FirstLook run={status} />
      <h2 class="section">What it learned</h2>
      <div class="grid three">
        <Validation state={validation} overviews={shown} run={run} params={params} theme={theme} />
        <Panel title="Training reward" note={several ? "mean per step; band: range of an arm's seeds" : "mean per step, and its moving mean"}>
          <Compared shown={shown} of={(each) => each.reward} theme={theme} name="Training reward" />
        </Panel>
        <Labels run={run} theme={theme} of={of} />
        <Rho run={run} theme={theme} of={of} />
        <Weights shown={shown} run={run} theme={theme} />
        <Cues run={run} of={of} />
      </div>
      <h2 class="section">How it ran</h2>
      <div class="grid four">
        <Panel title="Groups with signal" note="prompts with an advantage that is not 0">
          <Compared shown={shown} of={(each) => each.signal} theme={theme} name="Groups with signal" min={0} format={(value) => number(value, 1)} />
        </Panel>
        <Stages run={run} theme={theme} of={of} />
        <Losses run={run} theme={theme} of={of} />
        <Agreement shown={shown} theme={theme} />
      </div>
    </>
  );
}

function Summary({ run }) {
  const last = run.step.length - 1;
  const quarter = Math.max(1, Math.floor(run.step.length / 4));
  const first = mean(run.reward.slice(0, quarter));
  const end = mean(run.reward.slice(-quarter));
  const met = (at) => {
    const all = Object.entries(run.labels).reduce((sum, [, values]) => sum + (values[at] ?? 0), 0);
    return all ? Object.entries(run.labels).reduce((sum, [label, values]) => sum + (kind(label) === "met" ? values[at] ?? 0 : 0), 0) / all : null;
  };
  const cues = Object.values(run.cues).filter((steps) => steps.includes(run.step[last])).length;
  const lost = Object.values(run.infra).flat().reduce((sum, value) => sum + (value ?? 0), 0);
  const total = run.total_seconds.reduce((sum, value) => sum + value, 0);
  const items = [
    ["reward, last quarter", run.step.length ? <>{number(end, 3)} {first !== null && end !== null && run.step.length > 1 && <small class={end >= first ? "good" : "worse"}>{signed(end - first, 3)}</small>}</> : "–"],
    ["turns met, last step", percent(last >= 0 ? met(last) : null), "turn"],
    ["mean w, last step", number(run.w.mean[last], 2), "w"],
    ["active cues, last step", last >= 0 ? cues : "–", "Ω, cue"],
    ["training time", seconds(total || null)],
    ["per step", seconds(total ? total / run.step.length : null)],
    ...(lost ? [["lost to infrastructure", count(lost)]] : []),
  ];
  return <Figures items={items} />;
}

function Problems({ run, status }) {
  const lines = [...run.bad_steps, ...run.bad.first.map((each) => `${each.log} ${each.name}:${each.line}: ${each.problem}`)];
  const bad = run.bad_steps.length + run.bad.count;
  const reading = status && !status.index.ready && status.index.of > 0;
  return (
    <>
      {reading && <Note>Reading the trajectories: {percent(status.index.read / status.index.of)} of {(status.index.of / 1e6).toFixed(0)} MB. Lists and tables fill from the newest step.</Note>}
      {bad > 0 && (
        <details class="note bad">
          <summary>{count(bad)} line{bad > 1 ? "s" : ""} of the logs cannot be used and {bad > 1 ? "are" : "is"} left out.</summary>
          <ul>{lines.slice(0, 30).map((line) => <li>{line}</li>)}</ul>
        </details>
      )}
    </>
  );
}

// One line per arm. A run alone is drawn thin with its moving mean.
function arms(shown, of) {
  const steps = [...new Set(shown.flatMap((run) => run.step))].sort((a, b) => a - b);
  const names = [...new Set(shown.map((run) => run.arm))];
  const series = names.flatMap((arm, number_) => {
    const members = shown.filter((run) => run.arm === arm);
    const columns = members.map((run) => {
      const at = new Map(run.step.map((step, i) => [step, of(run)[i]]));
      return steps.map((step) => at.get(step) ?? null);
    });
    const colour = runColour(number_);
    const values = steps.map((_, i) => mean(columns.map((column) => column[i])));
    if (members.length === 1) {
      const half = Math.floor(steps.length / 16);
      if (half < 1) return [{ name: members[0].name, colour, values, points: steps.length < 40 }];
      return [
        { name: `${members[0].name}, per step`, colour, values, faint: true, quiet: names.length > 1 },
        { name: names.length > 1 ? members[0].name : `mean of ${2 * half + 1} steps`, colour, values: movingMean(values, half) },
      ];
    }
    const edge = (pick) => steps.map((_, i) => {
      const found = columns.map((column) => column[i]).filter((value) => value !== null);
      return found.length ? pick(...found) : null;
    });
    return [{ name: `${arm} (${members.length} seeds)`, colour, values, low: edge(Math.min), high: edge(Math.max) }];
  });
  return { steps, series };
}

function Compared({ shown, of, theme, name, min, max, format }) {
  const { steps, series } = useMemo(() => arms(shown, of), [shown]);
  if (!steps.length) return <Missing>No training step is logged yet.</Missing>;
  if (!series.some((each) => each.values.some((value) => value !== null))) return <Missing>The logs of these runs do not record it.</Missing>;
  return <Chart x={steps} series={series} theme={theme} name={name} min={min} max={max} format={format} />;
}

function Validation({ state, overviews, run: { name: focused }, params, theme }) {
  const rows = new Map((state.value?.runs ?? []).map((each) => [each.name, each.validation]));
  const shown = overviews.map((each) => ({ ...each, validation: rows.get(each.name) ?? [] }));
  const run = shown.find((each) => each.name === focused);
  const what = params.val ?? "";
  const names = [...new Set(shown.flatMap((each) => each.validation.map((row) => row.name)))];
  const turns = params.rate === "turns";
  const key = turns ? "turn_rate" : "rate";
  const several = shown.length > 1;
  // The averages, and prefixes of a single category, which have none.
  const main = names.filter((name) => name.startsWith("average") || !names.includes(["average", ...name.split("@").slice(1)].join("@")));
  const wanted = names.includes(what) ? what : several ? main[0] : "";
  const steps = [...new Set(shown.flatMap((each) => each.validation.map((row) => row.step)))].sort((a, b) => a - b);
  const line = (each, name, colour, text) => {
    const at = new Map(each.validation.filter((row) => row.name === name).map((row) => [row.step, row[key]]));
    return {
      name: text,
      colour,
      values: steps.map((step) => at.get(step)?.rate ?? null),
      low: steps.map((step) => at.get(step)?.low),
      high: steps.map((step) => at.get(step)?.high),
      bars: true,
      points: true,
    };
  };
  const arm = [...new Set(shown.map((each) => each.arm))];
  const series = several
    ? shown.map((each) => line(each, wanted, runColour(arm.indexOf(each.arm)), each.name))
    : (what === "all" ? names : wanted ? [wanted] : main).map((name) => line(run, name, runColour(names.indexOf(name)), words(name)));
  return (
    <Panel
      title="Validation"
      note="plain benchmark, 95 % intervals"
      actions={
        <>
        {names.length > 1 && (
          <select aria-label="Which tasks" value={what === "all" ? what : wanted} onChange={(event) => go("overview", { ...params, val: event.target.value }, true)}>
            {!several && <option value="">averages</option>}
            {!several && names.length > main.length && <option value="all">every category</option>}
            {names.map((name) => <option value={name}>{words(name)}</option>)}
          </select>
        )}
        <Choice name="Rate" value={turns ? "turns" : "tasks"} options={[["tasks", "tasks"], ["turns", "turns"]]} onPick={(rate) => go("overview", { ...params, rate: rate === "tasks" ? "" : rate }, true)} />
        </>
      }
    >
      {steps.length ? <Chart x={steps} series={series} theme={theme} name="Validation" min={0} sync="validation" percents format={(value) => percent(value, 1)} /> : state.error ? <Note tone="bad">{state.error}</Note> : state.value ? <Missing>No validation is logged yet.</Missing> : <p class="missing" aria-busy="true">Loading…</p>}
    </Panel>
  );
}

function shares(run) {
  const totals = run.step.map((_, at) => Object.values(run.labels).reduce((sum, values) => sum + (values[at] ?? 0), 0));
  const order = Object.keys(run.labels).sort((a, b) => (kind(b) === "met") - (kind(a) === "met"));
  return order.map((label) => ({ name: words(label), label, colour: labelColour(label), values: run.labels[label].map((value, at) => (totals[at] ? (value ?? 0) / totals[at] : null)) }));
}

function Labels({ run, theme, of }) {
  const series = useMemo(() => shares(run), [run]);
  return (
    <Panel title="Labels" note={`${of}share of the labelled turns in training`} actions={<a href={href("failures", { run: run.name })}>Failures</a>}>
      {series.length ? <Chart x={run.step} series={series} stacked min={0} max={1} percents theme={theme} name="Labels" format={(value) => percent(value)} /> : <Missing>No labels are logged.</Missing>}
    </Panel>
  );
}

function Rho({ run, theme, of }) {
  const seen = Object.keys(run.rho).filter((label) => run.labels[label] || !Object.keys(run.labels).length);
  const series = seen.map((label) => ({ name: words(label), colour: labelColour(label), values: run.rho[label] }));
  return (
    <Panel title="Utility ρ" note={`${of}of the labels that occurred, as the step was weighted`}>
      {series.length ? <Chart x={run.step} series={series} theme={theme} name="Utility rho" format={(value) => number(value)} /> : <Missing>ρ is not logged.</Missing>}
    </Panel>
  );
}

function Weights({ shown, run, theme }) {
  const one = [{ name: "w", colour: runColour(0), values: run.w.mean, low: run.w.min, high: run.w.max }];
  const any = shown.some((each) => each.w.mean.some((value) => value !== null));
  return (
    <Panel title="Weight w" note={shown.length > 1 ? "mean of the trajectories that count" : "mean, and range of the trajectories that count"}>
      {!any ? <Missing>No weights are logged.</Missing> : shown.length > 1 ? <Compared shown={shown} of={(each) => each.w.mean} theme={theme} name="Weight w" format={(value) => number(value)} /> : <Chart x={run.step} series={one} theme={theme} name="Weight w" format={(value) => number(value)} />}
    </Panel>
  );
}

export function spans(steps) {
  const found = [];
  for (const step of steps) {
    const last = found.at(-1);
    if (last && step === last[1] + 1) last[1] = step;
    else found.push([step, step]);
  }
  return found;
}

export function CueBars({ cues, first, last, link }) {
  const width = last - first + 1;
  return (
    <div class="cuebars">
      {Object.entries(cues).map(([name, steps]) => (
        <a class="cuebar" href={link(name)}>
          <span class="name">{name}</span>
          <span class="track">
            {spans(steps).map(([from, to]) => (
              <i style={{ left: `${(100 * (from - first)) / width}%`, width: `${(100 * (to - from + 1)) / width}%` }} title={`${name}: steps ${from} to ${to}`} />
            ))}
          </span>
          <span class="dim tail">{spans(steps).map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ")}</span>
        </a>
      ))}
      <div class="cuebar axis" aria-hidden="true"><span class="name" /><span class="track"><b>{first}</b><b>{last}</b></span><span class="tail" /></div>
    </div>
  );
}

function Cues({ run, of }) {
  return (
    <Panel title="Active cues of Ω" note={`${of}in training only`} actions={<a href={href("cues", { run: run.name })}>Texts and causes</a>}>
      {Object.keys(run.cues).length ? <CueBars cues={run.cues} first={run.step[0]} last={run.step.at(-1)} link={(name) => href("cues", { run: run.name, cue: name })} /> : <Missing>{run.step.length ? "No cue was active at any logged step." : "No training step is logged yet."}</Missing>}
    </Panel>
  );
}

function Stages({ run, theme, of }) {
  const names = Object.keys(run.seconds).filter((name) => !["step", "testing"].includes(name));
  const order = names.sort((a, b) => mean(run.seconds[b]) - mean(run.seconds[a]));
  const colours = order.slice(0, 6);
  const rest = order.slice(6);
  const series = colours.map((name, at) => ({ name, colour: runColour(at), values: run.seconds[name] }));
  if (rest.length) series.push({ name: "other stages", colour: "var(--label-0)", values: run.step.map((_, at) => rest.reduce((sum, name) => sum + (run.seconds[name][at] ?? 0), 0)) });
  const own = run.step.reduce((sum, _, at) => sum + (run.seal_seconds[at] ?? 0), 0);
  const total = run.total_seconds.reduce((sum, value) => sum + value, 0);
  return (
    <Panel title="Seconds per step" note={total ? `${of}by stage; SEAL's own part in the trainer ${percent(own / total, 2)}` : `${of}by stage`}>
      {series.length ? <Chart x={run.step} series={series} stacked min={0} theme={theme} name="Seconds per step" format={(value) => `${number(value, 1)} s`} /> : <Missing>No times are logged.</Missing>}
    </Panel>
  );
}

function Losses({ run, theme, of }) {
  const names = Object.keys(run.infra);
  const cuts = Object.keys(run.stops).filter((name) => name !== "completed");
  const series = [
    ...names.map((name, at) => ({ name: words(name), colour: runColour(at + 1), values: run.infra[name].map((value) => value ?? 0) })),
    ...cuts.map((name, at) => ({ name: `ended by ${words(name)}`, colour: runColour(at + 1 + names.length), values: run.stops[name].map((value) => value ?? 0), dash: [4, 3] })),
  ];
  return (
    <Panel title="Losses and cuts" note={`${of}trajectories lost to infrastructure, or ended by a budget (dashed)`}>
      {series.length ? <Chart x={run.step} series={series} min={0} theme={theme} name="Losses and cuts" format={(value) => count(value)} /> : <Missing>{run.step.length ? "No trajectory was lost or cut." : "No training step is logged yet."}</Missing>}
    </Panel>
  );
}

function Agreement({ shown, theme }) {
  return (
    <Panel title="Log-probs: engine against actor" note="largest difference; noise unless the weights are stale">
      <Compared shown={shown} of={(each) => each.logp_diff_max} theme={theme} name="Log-prob differences" min={0} format={(value) => value.toExponential(1)} />
    </Panel>
  );
}
