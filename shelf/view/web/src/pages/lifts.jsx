// What each cue gives the policy: pass rates with and without it on the tasks of a withdrawal, paired by task.
import { Chart } from "../chart.jsx";
import { number, percent, signed, times } from "../text.js";
import { Missing, Note, Panel } from "../ui.jsx";

const points = (value) => signed(100 * value, 1);
// Where all pairs agree, the interval has no width and says nothing about further tasks.
const says = (found) => found.low < found.high;
const interval = (found) => (says(found) ? `${points(found.low)} to ${points(found.high)}` : "too few pairs for an interval");
const WHOLE = "the whole interface";

export function Lifts({ lifts, link, theme }) {
  if (!lifts) return <Panel wide title="Lift of the cues"><Missing>Not measured in this run: seal.data.withdrawal names the tasks that measure it.</Missing></Panel>;
  const whole = lifts.rows.find((row) => row.cue === null);
  const reach = Math.max(0.05, ...lifts.rows.flatMap((row) => [Math.abs(row.overall.low), Math.abs(row.overall.high)]));
  return (
    <Panel wide title="Lift of the cues" note="pass rate with a cue less that without it, in points, paired by task and validation; 95 % intervals; tasks of the training side">
      {lifts.bad > 0 && <Note tone="bad">{times(lifts.bad, "line")} of seal_log/withdrawal cannot be used and {lifts.bad > 1 ? "are" : "is"} left out.</Note>}
      {lifts.rows.length ? (
        <table class="plain lifts">
          <thead><tr><th scope="col">cue</th><th scope="col" class="n">pairs</th><th scope="col" class="n">without</th><th scope="col" class="n">with</th><th scope="col" class="n">lift</th><th scope="col" class="range">95 % interval</th><th scope="col" class="n ends">first</th><th scope="col" class="n ends">last</th></tr></thead>
          <tbody>{lifts.rows.map((row) => <Row row={row} reach={reach} address={row.cue === null ? null : link(row.cue)} />)}</tbody>
        </table>
      ) : (
        <Missing>No task was played both with and without a cue yet.</Missing>
      )}
      {whole && <Curve row={whole} name={WHOLE} theme={theme} />}
    </Panel>
  );
}

function Row({ row, reach, address }) {
  const { overall, steps } = row;
  const at = (value) => `${50 + (50 * value) / reach}%`;
  const end = (found) => <span title={`step ${found.step}: ${interval(found)}, ${times(found.pairs, "pair")}`}>{points(found.lift)} <small class="dim">step {found.step}</small></span>;
  return (
    <tr>
      <th scope="row">{row.cue === null ? <b>{WHOLE}</b> : address ? <a href={address}>{row.cue}</a> : row.cue}</th>
      <td class="n">{overall.pairs}</td>
      <td class="n">{percent(overall.without)}</td>
      <td class="n">{percent(overall.with)}</td>
      <td class="n"><b>{points(overall.lift)}</b></td>
      <td class="range">
        <span class="span" aria-hidden="true">{says(overall) && <i style={{ left: at(overall.low), right: `${50 - (50 * overall.high) / reach}%` }} />}<b style={{ left: at(overall.lift) }} /></span>
        <span class="dim">{interval(overall)}</span>
      </td>
      <td class="n ends">{end(steps[0])}</td>
      <td class="n ends">{steps.length > 1 ? end(steps.at(-1)) : "–"}</td>
    </tr>
  );
}

// The lift at each validation; one or two are in the table.
function Curve({ row: { steps }, name, theme }) {
  if (steps.length < 3) return null;
  const column = (key) => steps.map((each) => 100 * each[key]);
  const series = [{ name: `lift of ${name}, points`, colour: "var(--run-0)", values: column("lift"), low: column("low"), high: column("high"), bars: true, points: true }];
  return <Chart x={steps.map((each) => each.step)} series={series} height={130} theme={theme} name={`Lift of ${name} by validation`} sync="lift" format={(value) => number(value, 1)} />;
}

export function LiftOf({ cue, lifts, theme }) {
  const row = lifts?.rows.find((each) => each.cue === cue.name);
  if (!row) return lifts ? <p class="foot">No task of the withdrawal went without it yet, so its lift is unknown.</p> : null;
  const { overall } = row;
  return (
    <div class="lift">
      <p>
        Lift <b>{points(overall.lift)} points</b> <span class="dim">({interval(overall)}): {percent(overall.with)} of {times(overall.pairs, "task")} passed with it, {percent(overall.without)} without{cue.scope !== "*" && ", over all categories"}.</span>
      </p>
      <Curve row={row} name={cue.name} theme={theme} />
    </div>
  );
}
