// What the interface gives the policy: pass rates with and without it on the tasks of a withdrawal, paired by task.
import { Chart } from "../chart.jsx";
import { number, percent, signed, times } from "../text.js";
import { Missing, Note, Panel } from "../ui.jsx";

const points = (value) => signed(100 * value, 1);
// Where all pairs agree, the interval has no width and says nothing about further tasks.
const says = (found) => found.low < found.high;
const interval = (found) => (says(found) ? `${points(found.low)} to ${points(found.high)}` : "too few pairs for an interval");

export function Lift({ lift, theme }) {
  if (!lift) return <Panel wide title="Lift of the interface"><Missing>Not measured in this run: seal.data.withdrawal names the tasks that measure it.</Missing></Panel>;
  return (
    <Panel wide title="Lift of the interface" note="pass rate with the cues minus that without, in points, paired by task and validation; 95 % interval; tasks of the training side">
      {lift.bad > 0 && <Note tone="bad">{times(lift.bad, "line")} of seal_log/withdrawal cannot be used and {lift.bad > 1 ? "are" : "is"} left out.</Note>}
      {lift.overall ? <Figures {...lift} /> : <Missing>No task was played both with and without the interface yet.</Missing>}
      <Curve steps={lift.steps} theme={theme} />
    </Panel>
  );
}

function Figures({ overall, steps }) {
  const reach = Math.max(0.05, Math.abs(overall.low), Math.abs(overall.high));
  const at = (value) => `${50 + (50 * value) / reach}%`;
  const end = (found) => <span title={`step ${found.step}: ${interval(found)}, ${times(found.pairs, "pair")}`}>{points(found.lift)} <small class="dim">step {found.step}</small></span>;
  return (
    <table class="plain lifts">
      <thead><tr><th scope="col" class="n">pairs</th><th scope="col" class="n">without</th><th scope="col" class="n">with</th><th scope="col" class="n">lift</th><th scope="col" class="range">95 % interval</th><th scope="col" class="n ends">first</th><th scope="col" class="n ends">last</th></tr></thead>
      <tbody>
        <tr>
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
      </tbody>
    </table>
  );
}

// The lift at each validation; one or two are in the table.
function Curve({ steps, theme }) {
  if (steps.length < 3) return null;
  const column = (key) => steps.map((each) => 100 * each[key]);
  const series = [{ name: "lift, points", colour: "var(--run-0)", values: column("lift"), low: column("low"), high: column("high"), bars: true, points: true }];
  return <Chart x={steps.map((each) => each.step)} series={series} height={130} theme={theme} name="Lift of the interface by validation" sync="lift" format={(value) => number(value, 1)} />;
}
