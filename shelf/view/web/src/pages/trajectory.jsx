// One trajectory: the dialogue turn by turn, what was called, how the state moved, and why each turn has its label.
import { useMemo } from "preact/hooks";
import { exported, sampled, url, useApi } from "../api.js";
import { filtersOf, go, href } from "../route.js";
import { kind, labelColour, number, seconds, shown, signed, taskName, words } from "../text.js";
import { Answer, Copy, Figures, Label, Missing, Name, Note, useKeys } from "../ui.jsx";
import { Message } from "./message.jsx";
import { Mark } from "./trajectories.jsx";

export function Trajectory({ params, run, fresh }) {
  const state = useApi(url("trajectory", { run: run.name, key: params.key }));
  const replay = useApi(state.value ? url("replay", { run: run.name, key: params.key }) : "");
  return <Answer state={state}>{(value) => <Shown key={value.key} value={value} run={run} params={params} replay={replay} />}</Answer>;
}

// The trajectories before and after this one in the list that it was opened from.
function useList(run, params) {
  const filters = filtersOf(params);
  const address = exported ? "" : url("trajectories", { run: run.name, ...filters, offset: 0, limit: 500 });
  const list = useApi(address).value?.rows ?? [];
  const at = list.findIndex((row) => row.key === params.key);
  return { before: at > 0 ? list[at - 1].key : null, after: at >= 0 ? list[at + 1]?.key ?? null : null, at, of: list.length };
}

function Shown({ value, run, params, replay }) {
  const { record, figures } = value;
  const labels = record.labels ?? [];
  const list = useList(run, params);
  const open = (key) => key && go("trajectory", { ...params, key });
  const sibling = (by) => {
    const at = value.siblings.findIndex((each) => each.key === value.key);
    return value.siblings[at + by]?.key;
  };
  useKeys({
    j: () => open(list.after),
    k: () => open(list.before),
    "]": () => open(sibling(1)),
    "[": () => open(sibling(-1)),
    u: () => go("trajectories", { run: run.name, ...filtersOf(params) }),
    g: () => value.siblings.length > 1 && go("group", { run: run.name, log: value.log, step: figures.step, source: figures.source, task: record.task_id, prompt: record.group }),
  });
  const siblings = exported ? value.siblings.filter((each) => sampled(run.name).keys.includes(each.key)) : value.siblings;
  const turns = useMemo(() => byTurn(value), [value]);
  const command = `seal view ${quote(run.path)} --replay ${value.key}`;
  return (
    <>
      <div class="crumbs">
        {!exported && <a href={href("trajectories", { run: run.name, ...filtersOf(params) })}>Trajectories</a>}
        <h1>{taskName(record.task_id, figures.source)}</h1>
        <span class="dim">{value.log === "train" ? "training step" : "validation at step"} {figures.step}, rollout {record.sample ?? 0}</span>
        {!exported && list.at >= 0 && (
          <span class="actions">
            <button type="button" class="button" disabled={!list.before} onClick={() => open(list.before)} title="Previous in the list (k)">Previous</button>
            <button type="button" class="button" disabled={!list.after} onClick={() => open(list.after)} title="Next in the list (j)">Next</button>
          </span>
        )}
      </div>
      <Figures
        items={[
          ["reward", <Mark row={{ ...figures, infra: record.infra }} />],
          ["weight w", figures.w ? number(figures.w) : <Unrecorded value={value} />, "w"],
          ["advantage A", figures.advantage === null || figures.w === 0 ? <Unrecorded value={value} /> : signed(figures.advantage, 3), "A"],
          ["turns met", `${record.turns_passed ?? "–"} of ${figures.turns || "unknown"}`, "turn"],
          ["calls, errors", `${record.calls ?? "–"}, ${record.errors ?? "–"}`],
          ["tokens", `${record.tokens ?? "–"}${record.trained_share < 1 ? `, ${Math.round(100 * record.trained_share)}% trained` : ""}`],
          ["time", seconds(record.seconds)],
          ["end", words(record.stop || "unknown")],
          ["Ω", record.omega_version === null || record.omega_version === undefined ? "none" : `version ${record.omega_version}`, "Ω, cue"],
        ]}
      />
      {record.infra && <Note tone="bad">Infrastructure failed this rollout ({words(record.infra)}): {record.infra_message || "no message was recorded"}. It has no labels, and its reward means nothing.</Note>}
      {record.excluded && <Note>A budget cut this trajectory and the recipe excludes it from training.</Note>}
      {value.log === "validation" && <Note>A validation rollout. Look at it to understand, but choose nothing from it: tuning on evaluation tasks makes their figures worthless.</Note>}
      <div class="toolbar">
        {siblings.length > 1 && (
          <span class="siblings" role="group" aria-label="Rollouts of this prompt">
            {!exported && <a class="button" href={href("group", { run: run.name, log: value.log, step: figures.step, source: figures.source, task: record.task_id, prompt: record.group })} title="Side by side (g)">Group</a>}
            {siblings.map((each) => (
              <a href={href("trajectory", { ...params, key: each.key })} class={each.key === value.key ? "here" : ""} aria-current={each.key === value.key ? "true" : undefined} title={`rollout ${each.sample}: reward ${each.score}, ${each.labels.map(words).join(", ") || each.infra}`} style={{ "--edge": labelColour(each.labels.find((label) => kind(label) !== "met") ?? each.labels.at(-1) ?? "") }}>{each.sample}</a>
            ))}
          </span>
        )}
        {!exported && value.neighbours.earlier && <a class="button" href={href("trajectory", { run: run.name, key: value.neighbours.earlier })}>Same task, earlier step</a>}
        {!exported && value.neighbours.later && <a class="button" href={href("trajectory", { run: run.name, key: value.neighbours.later })}>Same task, later step</a>}
        <span class="actions">
          <Copy text={command}>Copy replay command</Copy>
          <Copy text={location.href}>Copy link</Copy>
          <Copy text={`${run.path}/${value.file}:${value.line}`}>Copy place in log</Copy>
        </span>
      </div>
      {replay.value?.why && <Note>{replay.value.why} States and cue marks are therefore not shown: the logs do not hold them.</Note>}
      {replay.error && <Note>{exported ? "This trajectory was not replayed for the export." : replay.error}</Note>}
      {replay.value?.other_data && <Note tone="bad">The run used other benchmark data than is installed here: the replayed states may differ from the run's.</Note>}
      <div class={`reading ${turns.length > 1 ? "" : "single"}`}>
        {turns.length > 1 && <nav class="outline" aria-label="Turns">
          <ol>
            {turns.map((turn) => (
              <li><a href={`#turn-${turn.number}`} onClick={(event) => { event.preventDefault(); document.getElementById(`turn-${turn.number}`)?.scrollIntoView({ block: "start" }); }}>
                <span>turn {turn.number + 1}</span>{labels[turn.number] ? <Label label={labels[turn.number]} /> : <span class="dim">{turn.evidence?.stop === "not_reached" ? "not reached" : "no label"}</span>}
              </a></li>
            ))}
          </ol>
        </nav>}
        <div class="turns">
          {turns.map((turn) => (
            <Turn key={turn.number} turn={turn} label={labels[turn.number]} diagnosis={(record.diagnosis ?? []).find((each) => each.turn === turn.number)} replay={replay.value} waiting={!replay.value && !replay.error} />
          ))}
          {!turns.length && <Missing>The log holds no message of this trajectory.</Missing>}
        </div>
      </div>
    </>
  );
}

const quote = (text) => (/^[\w./@:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function Unrecorded({ value }) {
  const { record, log } = value;
  if (log !== "train") return <span class="dim">training only</span>;
  return <span class="dim" title="Logs of this version record it for each trajectory that counts">{record.infra || record.excluded || record.w === 0 ? "does not count" : "not recorded"}</span>;
}

function byTurn(value) {
  const evidence = value.record.evidence ?? [];
  const messages = value.messages.map((message, at) => ({ ...message, at }));
  const size = Math.max(evidence.length, 1 + Math.max(-1, ...messages.map((message) => message.turn ?? 0)));
  return Array.from({ length: messages.length || evidence.length ? size : 0 }, (_, number_) => ({
    number: number_,
    evidence: evidence[number_],
    messages: messages.filter((message) => (message.turn ?? 0) === number_),
  }));
}

function Turn({ turn, label, diagnosis, replay, waiting }) {
  const { evidence } = turn;
  const played = replay?.turns?.find((each) => each.turn === turn.number);
  const actions = evidence?.actions ?? [];
  const heard = turn.messages.filter((message) => message.role !== "assistant").map((message) => message.content).join("\n");
  if (evidence?.stop === "not_reached" && !turn.messages.length)
    return <section class="turn" id={`turn-${turn.number}`}><header><h2>Turn {turn.number + 1}</h2><span class="dim">the episode ended before this turn</span></header></section>;
  return (
    <section class="turn" id={`turn-${turn.number}`} style={{ "--edge": labelColour(label ?? "") }}>
      <header>
        <h2>Turn {turn.number + 1}</h2>
        {label ? <Label label={label} /> : <span class="dim">no label</span>}
        {diagnosis?.blame && <span class="pill">{diagnosis.blame === "own" ? "own fault" : "inherited fault"}</span>}
      </header>
      {diagnosis && (
        <p class="rule">
          {diagnosis.reason} <span class="dim">rule {diagnosis.rule}{(diagnosis.signals ?? []).filter((signal) => signal !== diagnosis.label).length > 0 && `; also ${diagnosis.signals.filter((signal) => signal !== diagnosis.label).map(words).join(", ")}`}</span>
        </p>
      )}
      <Evidence evidence={evidence} played={played} />
      <div class="messages">
        {turn.messages.map((message) => (
          <Message key={message.at} message={message} action={message.action === null ? null : actions[message.action]} plain={replay?.plain?.[message.at]} answer={heard} />
        ))}
      </div>
      <State played={played} waiting={waiting} />
    </section>
  );
}

const said = (value) => (value === true ? <b class="good">as the reference</b> : value === false ? <b class="worse">differs</b> : "not compared");

function Evidence({ evidence, played }) {
  if (!evidence) return null;
  const items = [
    ["reference calls", evidence.expected_calls === 0 ? "none: nothing should be called" : `${evidence.expected_calls}${evidence.needed?.length ? `: ${evidence.needed.join(", ")}` : ""}`],
    !(played && (evidence.state_match ?? null) === null) && ["state", said(evidence.state_match)], // else below it
    ["responses", evidence.response_match === false && evidence.absent?.length ? <b class="worse">missing the results of {evidence.absent.join(", ")}</b> : said(evidence.response_match)],
    ["ended by", words(evidence.stop ?? "unknown")],
    evidence.feedback_before && ["before", "an error was shown in an earlier turn and no call has succeeded since"],
    evidence.checker_error && ["checker", evidence.checker_error],
    evidence.reference_error && ["reference", evidence.reference_error],
    evidence.infra_error && ["infrastructure", evidence.infra_error],
  ].filter(Boolean);
  return (
    <dl class="evidence">
      {items.map(([name, value]) => <div><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

function State({ played, waiting }) {
  if (waiting) return <p class="missing" aria-busy="true">Replaying the calls on the simulators…</p>;
  if (!played) return null;
  const wrong = played.state.rows.filter((row) => !row.equal).length;
  return (
    <details class="state" open={wrong > 0 || played.state.rows.length <= 8}>
      <summary>
        State after this turn: {wrong ? <b class="worse">{wrong} value{wrong > 1 ? "s" : ""} differ from the reference</b> : <b class="good">equal to the reference</b>}
        {played.state.rows.length > wrong && <span class="dim">, {played.state.rows.length - wrong} changed as expected</span>}
      </summary>
      {played.reference.length > 0 && <div class="reference"><span class="dim">the reference calls</span>{played.reference.map((each) => <code>{each}</code>)}</div>}
      {played.other_results.length > 0 && <Note tone="bad">{played.other_results.length} result{played.other_results.length > 1 ? "s" : ""} of the replay differ from the log: the tools, the data or the date have changed since.</Note>}
      {played.state.rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`State after turn ${played.turn + 1}`}>
          <table class="plain diff">
            <thead><tr><th scope="col">value</th><th scope="col">before</th><th scope="col">after</th><th scope="col">reference after</th></tr></thead>
            <tbody>
              {played.state.rows.map((row) => (
                <tr class={row.equal ? "" : "wrong"}>
                  <th scope="row"><code><Name>{row.path}</Name></code></th>
                  <td>{shown(row.before)}</td>
                  <td>{JSON.stringify(row.before) === JSON.stringify(row.after) ? <span class="dim">unchanged</span> : shown(row.after)}</td>
                  <td>{row.equal ? <span class="dim">the same</span> : shown(row.expected)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {played.state.left_out > 0 && <p class="foot">{played.state.left_out} more differences are left out.</p>}
    </details>
  );
}
