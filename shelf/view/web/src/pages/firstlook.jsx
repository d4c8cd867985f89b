// Where to look first: a group with signal, and one task before and after training.
import { exported, url, useApi } from "../api.js";
import { href } from "../route.js";
import { call, kind, labelColour, taskName, words } from "../text.js";
import { Label, Name, Panel } from "../ui.jsx";
import { Message } from "./message.jsx";

export const Pips = ({ row }) => {
  const size = Math.min(row.counted, 16);
  const passed = Math.round((row.passed * size) / row.counted);
  return (
    <span class="pips" title={`${row.passed} of ${row.counted} that count passed`}>
      {Array.from({ length: size }, (_, at) => <i class={at < passed ? "yes" : ""} />)}
      <span class="dim">{row.passed}/{row.counted}</span>
    </span>
  );
};

export function FirstLook({ run }) {
  const { group, learnt } = useApi(url("examples", { run: run.name }), run.signature).value ?? {};
  if (!group && !learnt) return null;
  return (
    <div class="grid first">
      {group && !exported && <Picked group={group} run={run} />}
      {learnt && <Learnt {...learnt} run={run} />}
    </div>
  );
}

function Picked({ group, run }) {
  const link = href("group", { run: run.name, step: group.step, source: group.source, task: group.task, prompt: group.prompt });
  const failed = group.pair[1];
  const turn = Math.max(0, (failed?.labels ?? []).findIndex((label) => kind(label) !== "met"));
  const calls = (member) => (member.evidence[turn]?.actions ?? []).flatMap((action) => action.calls ?? []);
  return (
    <Panel title="Look at this group first" note={`step ${group.step}, ${taskName(group.task, group.source)}${group.turns > 1 ? `, turn ${turn + 1} of ${group.turns}` : ""}`}>
      <p class="asked">{group.users[turn]}</p>
      <p class="picked"><Pips row={group} /></p>
      {group.pair.map((member) => (
        <div class="tried">
          <Label label={member.labels[turn]} />
          <span>{calls(member).map((each) => <code><Name>{call(each)}</Name></code>)}{!calls(member).length && <span class="dim">no call</span>}</span>
        </div>
      ))}
      <a class="button primary" href={link}>All {group.size} rollouts side by side</a>
    </Panel>
  );
}

function Learnt({ before, after, turn, run }) {
  const label = before.record.labels[turn];
  return (
    <Panel title="One task, before and after training" note={`${taskName(before.record.task_id, before.figures.source)}${before.figures.turns > 1 ? `, turn ${turn + 1} of ${before.figures.turns}` : ""}; validation, without cues`}>
      <div class="pair">
        {[[before, <Label label={label} />, label], [after, <Label label="pass" />, "pass"]].map(([shown, verdict, edge]) => (
          <section style={{ "--edge": labelColour(edge) }}>
            <header><a href={href("trajectory", { run: run.name, key: shown.key })}>step {shown.figures.step}</a> {verdict}</header>
            <div class="messages">{shown.messages.filter((message) => message.turn === turn && !["system", "environment"].includes(message.speaker)).map((message) => <Message message={message} action={shown.record.evidence?.[turn]?.actions?.[message.action]} />)}</div>
            <p class="rule">{shown.record.diagnosis?.find((each) => each.turn === turn && words(each.label) !== "pass")?.reason}</p>
          </section>
        ))}
      </div>
    </Panel>
  );
}
