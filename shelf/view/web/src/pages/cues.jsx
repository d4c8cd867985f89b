// Omega over the steps: each cue's words, when and why it came and went.
import { useEffect } from "preact/hooks";
import { url, useApi } from "../api.js";
import { href } from "../route.js";
import { number, percent, times, words } from "../text.js";
import { Answer, Label, Missing, Note, Panel } from "../ui.jsx";
import { Lift } from "./lifts.jsx";
import { CueBars } from "./overview.jsx";

const KINDS = { schema: "in the system text: what the tools' documents imply", feedback: "in the answer to a failed action", guideline: "in the system text: one sentence of advice" };
const FILLED = "Words in braces are filled in from the failed action, the tools or the prompt mode.";
const why = (figures) => {
  const { prevalence, turns, count, mean_reward, score, ...rest } = figures;
  const parts = [];
  if (prevalence !== undefined) parts.push(`${percent(prevalence, prevalence < 0.1 ? 1 : 0)} of ${turns !== undefined ? `${turns} turns` : "the turns"}`);
  if (count !== undefined) parts.push(`seen ${times(count, "time")}`);
  if (mean_reward !== undefined) parts.push(`mean reward ${number(mean_reward)}`);
  if (score !== undefined) parts.push(`score ${number(score, 3)}`);
  for (const [name, found] of Object.entries(rest)) parts.push(`${words(name)} ${Number.isInteger(found) ? found : number(found, 3)}`);
  return parts.join(", ");
};
export function Cues({ params, run, fresh, theme }) {
  const state = useApi(url("omega", { run: run.name }), fresh);
  useEffect(() => {
    if (params.cue) document.getElementById(`cue-${params.cue}`)?.scrollIntoView({ block: "start" });
  }, [params.cue, state.value !== undefined]);
  return <Answer state={state}>{(value) => <Shown value={value} run={run} params={params} theme={theme} />}</Answer>;
}

const fullName = (cue) => (cue.scope === "*" ? cue.name : `${cue.scope}/${cue.name}`);

function Shown({ value, run, params, theme }) {
  const changes = value.step.filter((_, at) => at > 0 && value.versions[at] !== value.versions[at - 1]).length;
  return (
    <>
      {value.other_wording && <Note tone="bad">The run's cues were worded differently from this version's: the texts below are this version's, the steps and causes are the run's.</Note>}
      <Panel wide title="Ω over the steps" note={value.step.length ? `${times(value.cues.length, "cue")}, Ω changed ${times(changes, "time")} between steps ${value.step[0]} and ${value.step.at(-1)}` : ""}>
        {value.cues.length ? <CueBars cues={Object.fromEntries(value.cues.map((cue) => [fullName(cue), cue.steps]))} first={value.step[0]} last={value.step.at(-1)} link={(name) => href("cues", { run: run.name, cue: name })} /> : <Missing>{value.step.length ? (value.versions.every((version) => version === null) ? "This run was played without an interface." : "No cue was active, and none came or went, at any logged step.") : "No training step is logged yet."}</Missing>}
      </Panel>
      <h2 class="section">What they say, and when they came and went</h2>
      {value.cues.some((cue) => /[{]/.test((cue.text ?? "") + cue.compact)) && <p class="foot spaced">{FILLED}</p>}
      <div class="grid two">
      {value.cues.map((cue) => (
        <section class={`panel cue ${params.cue === fullName(cue) ? "chosen" : ""}`} id={`cue-${fullName(cue)}`}>
          <header>
            <h2>{cue.name}</h2>
            {cue.scope !== "*" && <span class="pill">only {cue.scope}</span>}
            {cue.label ? <Label label={cue.label} href={href("trajectories", { run: run.name, label: cue.label })} /> : <span class="dim">a cue that this version does not have</span>}
            <span class="dim">{KINDS[cue.kind] ?? ""}</span>
          </header>
          {cue.text !== null && (
            <dl class="words">
              {cue.text && cue.text !== cue.compact && <div><dt>full</dt><dd>{cue.text}</dd></div>}
              {cue.compact && <div><dt>{cue.text === cue.compact ? "words" : "compact"}</dt><dd>{cue.compact}</dd></div>}
            </dl>
          )}
          {cue.events.length ? (
            <table class="plain">
              <thead><tr><th scope="col" class="n">after step</th><th scope="col">came or went</th><th scope="col">because of {cue.label ? words(cue.label) : "its label"}</th></tr></thead>
              <tbody>
                {cue.events.map((event) => (
                  <tr>
                    <td class="n">{event.step}</td>
                    <td>{event.on ? <b>came on</b> : "went off"}</td>
                    <td>{why(event.figures) || <span class="dim">no figures recorded</span>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : (
            <p class="foot">On from the first step.</p>
          )}
        </section>
      ))}
      </div>
      <h2 class="section">What they give</h2>
      <Lift lift={value.lift} theme={theme} />
      {value.unused.length > 0 && (
        <details class="panel wide">
          <summary>{times(value.unused.length, "cue")} never came on</summary>
          <dl class="words">{value.unused.map((cue) => <div><dt>{cue.name} <Label label={cue.label} /></dt><dd>{cue.text || cue.compact}</dd></div>)}</dl>
        </details>
      )}
    </>
  );
}
