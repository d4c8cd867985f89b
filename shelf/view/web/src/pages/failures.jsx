// Where which failures are: a table of turns by label, whose cells lead to the trajectories; what changed; what cues reached.
import { useMemo } from "preact/hooks";
import { exported, url, useApi } from "../api.js";
import { filtersOf, go, href } from "../route.js";
import { count, kind, labelColour, percent, signed, words } from "../text.js";
import { Answer, Choice, Label, Missing, Name, Panel } from "../ui.jsx";
import { FilterBar } from "./filters.jsx";

const COLUMNS = 14;

export function Failures({ params, run, fresh }) {
  const by = params.by ?? "step";
  const filters = filtersOf(params);
  const state = useApi(url("failures", { run: run.name, by, ...filters }), fresh);
  const pick = (given) => go("failures", { ...params, ...given }, true);
  return (
    <>
      <FilterBar params={params} run={run} page="failures" fresh={fresh} names={["log", "from_step", "to_step", "category", "tool", "blame"]} />
      <Answer state={state}>
        {(value) => (
          <>
            <Panel
              wide
              title="Turns by label"
              note={{ step: "and step", category: "and category", tool: "and tool that the turn called or needed", turn: "and position of the turn" }[by]}
              actions={
                <>
                  <Choice name="Columns" value={by} options={[["step", "step"], ["category", "category"], ["tool", "tool"], ["turn", "turn"]]} onPick={(each) => pick({ by: each })} />
                  <Choice name="Unit" value={params.unit ?? "count"} options={[["count", "turns"], ["share", "%"]]} onPick={(unit) => pick({ unit: unit === "count" ? "" : unit })} />
                </>
              }
            >
              <Matrix cells={value.cells} by={by} unit={params.unit ?? "count"} link={(given) => href("trajectories", { run: run.name, ...filters, ...given })} />
            </Panel>
            <div class="grid two">
              <Changes value={value.changes} log={params.log} />
              <Reached rows={value.reached} log={params.log} run={run} />
            </div>
          </>
        )}
      </Answer>
    </>
  );
}

function binned(cells, by) {
  if (by !== "step") {
    const totals = new Map();
    cells.forEach((cell) => totals.set(cell.at, (totals.get(cell.at) ?? 0) + (kind(cell.label) === "failed" ? cell.count : 0)));
    const order = [...totals.keys()].sort((a, b) => (by === "turn" ? a - b : totals.get(b) - totals.get(a)));
    return order.map((at) => ({ name: by === "turn" ? `turn ${at + 1}` : String(at), holds: (each) => each === at, given: { [by]: at } }));
  }
  const steps = [...new Set(cells.map((cell) => cell.at))].sort((a, b) => a - b);
  const size = Math.ceil(steps.length / COLUMNS);
  const bins = [];
  for (let i = 0; i < steps.length; i += size) {
    const [from, to] = [steps[i], steps[Math.min(i + size, steps.length) - 1]];
    bins.push({ name: from === to ? `${from}` : `${from}–${to}`, holds: (at) => at >= from && at <= to, given: { from_step: from, to_step: to } });
  }
  return bins;
}

function Matrix({ cells, by, unit, link }) {
  const table = useMemo(() => {
    const bins = binned(cells, by);
    const totals = new Map();
    cells.forEach((cell) => totals.set(cell.label, (totals.get(cell.label) ?? 0) + cell.count));
    const rank = { failed: 0, excluded: 1, met: 2 };
    const labels = [...totals.keys()].sort((a, b) => rank[kind(a)] - rank[kind(b)] || totals.get(b) - totals.get(a));
    const at = (bin, label) => cells.filter((cell) => cell.label === label && bin.holds(cell.at)).reduce((sum, cell) => sum + cell.count, 0);
    const grid = bins.map((bin) => labels.map((label) => at(bin, label)));
    return { bins, labels, totals, grid };
  }, [cells, by]);
  const { bins, labels, totals, grid } = table;
  if (!cells.length) return <Missing>No labelled turn fits these filters.</Missing>;
  const sums = grid.map((row) => row.reduce((sum, value) => sum + value, 0));
  const peak = Math.max(...grid.flatMap((row, i) => row.map((value, j) => (kind(labels[j]) === "failed" ? value / (sums[i] || 1) : 0))), 0.01);
  const most = Math.max(1, ...grid.flatMap((row) => row.filter((_, j) => kind(labels[j]) === "failed")));
  const cell = (i, j) => {
    const value = grid[i][j];
    const share = value / (sums[i] || 1);
    const text = unit === "share" ? (value ? Math.round(100 * share) || "<1" : "") : value || "";
    const said = `${words(labels[j])}, ${bins[i].name}: ${value} of ${sums[i]} turns (${percent(share)})`;
    // A tool that was called twice must not outshine one that failed fifty times.
    const heat = kind(labels[j]) === "failed" ? (by === "tool" ? value / most : Math.min(1, share / peak)) : 0;
    return (
      <td class={heat > 0.62 ? "hot" : ""} style={{ "--heat": `${(heat * 100).toFixed(0)}%` }}>
        {value ? <a href={link({ ...bins[i].given, label: labels[j] })} title={said}>{text}</a> : <span class="dim">·</span>}
      </td>
    );
  };
  if (by === "tool")
    return (
      <div class="scroll tall" tabIndex={0} role="region" aria-label="Turns by tool and label">
        <table class="matrix">
          <thead><tr><th scope="col">tool</th>{labels.map((label) => <th scope="col"><Label label={label} /></th>)}<th scope="col">turns</th></tr></thead>
          <tbody>
            {bins.map((bin, i) => (
              <tr><th scope="row"><a class="code" href={link(bin.given)}><Name>{bin.name}</Name></a></th>{labels.map((_, j) => cell(i, j))}<td class="sum">{count(sums[i])}</td></tr>
            ))}
          </tbody>
        </table>
      </div>
    );
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Turns by label">
      <table class="matrix">
        <thead><tr><th scope="col">label</th>{bins.map((bin) => <th scope="col"><a href={link(bin.given)}>{bin.name}</a></th>)}<th scope="col">turns</th></tr></thead>
        <tbody>
          {labels.map((label, j) => (
            <tr class={kind(label)}><th scope="row"><Label label={label} href={link({ label })} /></th>{bins.map((_, i) => cell(i, j))}<td class="sum">{count(totals.get(label))}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Changes({ value, log }) {
  const span = (steps) => (steps.length > 1 ? `${steps[0]}–${steps.at(-1)}` : `${steps[0]}`);
  return (
    <Panel title="What improved, what got worse" note={value ? `share of training turns, steps ${span(value.first)} to ${span(value.last)}` : ""}>
      {log === "validation" && <Missing>The change over training steps is that of the training log.</Missing>}
      {!value ? <Missing>Two steps are needed to compare.</Missing> : (
        <>
          <table class="plain">
            <thead><tr><th scope="col">label</th><th scope="col" class="n">before</th><th scope="col" class="n">after</th><th scope="col" class="n">points</th><th scope="col" class="verdict"><span class="sr">verdict</span></th></tr></thead>
            <tbody>
              {value.rows.map((row) => {
                const change = 100 * (row.last - row.first);
                const sure = row.half !== null && Math.abs(row.last - row.first) > row.half;
                const better = kind(row.label) === "met" ? change > 0 : change < 0;
                return (
                  <tr>
                    <td><Label label={row.label} /></td>
                    <td class="n">{percent(row.first)}</td>
                    <td class="n">{percent(row.last)}</td>
                    <td class={`n ${sure ? (better ? "good" : "worse") : ""}`}>{signed(change, 1)}{row.half !== null && <span class="dim"> ± {(100 * row.half).toFixed(1)}</span>}</td>
                    <td class="verdict">{sure ? <b class={better ? "good" : "worse"}>{better ? "improved" : "got worse"}</b> : <span class="dim">{row.half === null ? "one step each" : "within noise"}</span>}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
          <p class="foot">First and last quarter of the steps; ± is a 95 % interval over steps.</p>
        </>
      )}
    </Panel>
  );
}

function Reached({ rows, log, run }) {
  return (
    <Panel title="What no cue reached" note="failed training turns at steps where no cue for their label was active" actions={<a href={href("cues", { run: run.name })}>Cues</a>}>
      {log === "validation" && <Missing>Validation has no cues; these are the training turns.</Missing>}
      {!rows.length ? <Missing>No failed turn is logged.</Missing> : (
        <table class="plain">
          <thead><tr><th scope="col">label</th><th scope="col" class="n">failed turns</th><th scope="col" class="n">without a cue</th><th scope="col" class="bar"><span class="sr">share</span></th></tr></thead>
          <tbody>
            {rows.map((row) => {
              const share = (row.turns - row.with_cue) / row.turns;
              return (
                <tr>
                  <td><Label label={row.label} href={exported ? undefined : href("trajectories", { run: run.name, label: row.label })} /></td>
                  <td class="n">{count(row.turns)}</td>
                  <td class="n">{row.has_cue ? `${count(row.turns - row.with_cue)} (${percent(share)})` : <span class="dim">there is none</span>}</td>
                  <td class="bar"><i style={{ width: `${100 * share}%`, background: labelColour(row.label) }} /></td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </Panel>
  );
}
