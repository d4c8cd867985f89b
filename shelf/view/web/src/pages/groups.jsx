// Groups: the rollouts of a prompt at a step, as a list and side by side.
import { useState } from "preact/hooks";
import { exported, url, useApi } from "../api.js";
import { filtersOf, go, href } from "../route.js";
import { call, labelColour, number, signed, taskName, times, words, WORDS } from "../text.js";
import { Answer, Choice, Label, Missing, Name, Note, Rows, useKeys, useNarrow } from "../ui.jsx";
import { FilterBar } from "./filters.jsx";
import { Pips } from "./firstlook.jsx";
import { Mark, unscored } from "./trajectories.jsx";

export function Groups({ params, run, fresh }) {
  const filters = filtersOf(params);
  const narrow = useNarrow();
  const most = useNarrow(1080) ? 1 : 4;
  const [found, setFound] = useState(null);
  const [chosen, choose] = useState(-1);
  const link = (row) => href("group", { run: run.name, log: params.log, step: row.step, source: row.source, task: row.task, prompt: row.prompt });
  useKeys({
    j: () => choose((at) => Math.min((found?.total ?? 1) - 1, at + 1)),
    k: () => choose((at) => Math.max(0, at - 1)),
    Enter: () => document.querySelector(".row.chosen a")?.click(),
  });
  return (
    <div class="fill">
      <FilterBar params={params} run={run} page="groups" fresh={fresh} names={["log", "task", "label"]} more={["tool", "category", "from_step", "to_step"]}>
        <Choice name="Which groups" value={params.spread ?? ""} options={[["", "all"], ["true", "with signal"]]} onPick={(spread) => go("groups", { ...params, spread }, true)} />
        <span class="dim result" aria-live="polite">{found && times(found.total, "group")}</span>
      </FilterBar>
      <div class="list groups" role="presentation">
        <Rows
          head={!narrow && <><span class="n">step</span><span>task</span><span>passed</span><span class="n extra">mean reward</span><span>rollouts by the label that decided</span></>}
          address={(offset, limit) => url("groups", { run: run.name, ...filters, spread: params.spread, offset, limit })}
          height={narrow ? 58 : 30}
          fresh={fresh}
          label="Groups"
          onTotal={setFound}
          chosen={chosen}
          onChoose={choose}
          render={(row) =>
            narrow ? (
              <a class="two" href={link(row)}>
                <span><b>{taskName(row.task, row.source)}</b></span>
                <span class="dim">step {row.step} <Pips row={row} /></span>
              </a>
            ) : (
              <>
                <span class="n dim">{row.step}</span>
                <a href={link(row)}>{taskName(row.task, row.source)}</a>
                <Pips row={row} />
                <span class="n extra">{number(row.mean)}</span>
                <span class="labels">
                  {row.labels.slice(0, most).map(([label, times]) => <span><Label label={label} /> <span class="dim">{times}</span></span>)}
                  {row.labels.length > most && <span class="dim">+{row.labels.slice(most).reduce((sum, [, times]) => sum + times, 0)}</span>}
                  {row.infra > 0 && <span class="dim">{row.infra} lost</span>}
                </span>
              </>
            )
          }
        />
      </div>
    </div>
  );
}

export function Group({ params, run, fresh }) {
  const { log, step, source, task, prompt } = params;
  const state = useApi(url("group", { run: run.name, log, step, source, task, prompt }), fresh);
  useKeys({ u: () => go("groups", { run: run.name, log }) });
  return <Answer state={state}>{(value) => <SideBySide group={value} run={run} />}</Answer>;
}

function SideBySide({ group, run }) {
  const { members } = group;
  const turns = Math.max(0, ...members.map((member) => member.labels.length), ...members.map((member) => member.evidence.filter((turn) => turn.actions?.length).length));
  const callsOf = (member, turn) => (member.evidence[turn]?.actions ?? []).flatMap((action) => action.calls ?? []);
  const alive = members.filter((member) => !member.infra);
  const counted = alive.filter((member) => !member.excluded && !unscored(member));
  const spread = new Set(counted.map((member) => member.score)).size > 1;
  const shared = Array.from({ length: turns }, (_, turn) => {
    const seen = new Map();
    for (const member of alive) for (const text of new Set(callsOf(member, turn).map(call))) seen.set(text, (seen.get(text) ?? 0) + 1);
    return seen;
  });
  const open = (member) => href("trajectory", { run: run.name, key: member.key });
  return (
    <>
      <div class="crumbs">
        {!exported && <a href={href("groups", { run: run.name, log: group.log === "train" ? "" : group.log })}>Groups</a>}
        <h1>{taskName(group.task, group.source)}</h1>
        <span class="dim">{group.log === "train" ? "step" : "validation at step"} {group.step}</span>
        <Pips row={{ counted: counted.length, passed: counted.filter((member) => member.passed).length }} />
        {!group.signal && members.length > 1 && <span class="pill">no signal: {counted.length < 2 ? "fewer than two rollouts count" : spread ? "no rollout has an advantage" : "the rewards are equal"}</span>}
      </div>
      {members.length === 1 && <Note>This task was played once at this step, so there is nothing to compare.</Note>}
      <p class="legendline"><span class="call common">as most rollouts</span><span class="call odd">differs from most</span><span class="call lacks">most made it, this one did not</span></p>
      <div class="scroll group" tabIndex={0} role="region" aria-label="Rollouts side by side">
        <table class="side">
          <thead>
            <tr>
              <th scope="col" class="corner">rollout</th>
              {members.map((member) => (
                <th scope="col">
                  <a href={open(member)}>{member.sample}</a> <Mark row={member} />
                  <small title={`w: ${WORDS.w}. A: ${WORDS.A}`}>{group.log !== "train" ? "" : member.infra || member.excluded || member.w === 0 ? "does not count" : member.w === null ? "w, A not recorded" : `w ${number(member.w)}  A ${signed(member.advantage)}`}</small>
                </th>
              ))}
            </tr>
          </thead>
          {Array.from({ length: turns }, (_, turn) => (
            <tbody>
              <tr class="ask"><th scope="row">turn {turn + 1}</th><td colSpan={members.length}><span>{group.users[turn] ?? ""}</span></td></tr>
              <tr>
                <th scope="row"><span class="sr">calls of turn {turn + 1}</span></th>
                {members.map((member) => <Cell member={member} link={open(member)} turn={turn} calls={callsOf(member, turn)} seen={shared[turn]} of={alive.length} />)}
              </tr>
            </tbody>
          ))}
          <tbody>
            {members.some((member) => member.infra || member.excluded || member.stop !== "completed") && <tr class="ends"><th scope="row">end</th>{members.map((member) => <td class="dim"><a class="one" href={open(member)}>rollout {member.sample}</a>{member.infra ? words(member.infra) : words(member.stop || "unknown")}{member.excluded ? ", excluded" : ""}</td>)}</tr>}
          </tbody>
        </table>
      </div>
      {!turns && <Missing>No rollout of this group has evidence: its log is of an earlier version, or infrastructure failed all of them.</Missing>}
    </>
  );
}

// What went wrong with a call, in the words of who refused it.
const problem = (each) => {
  if (each.error === "unavailable") return "not an available tool";
  const said = String(each.violations?.[0]?.message ?? each.result ?? each.error).replace(/^Error during execution: |^\{"error": "|"\}$/g, "");
  return said.length > 90 ? `${said.slice(0, 90)}…` : said;
};

function Cell({ member, link, turn, calls, seen, of }) {
  const label = member.labels[turn];
  const one = <a class="one" href={link}>rollout {member.sample}</a>; // where the head of the table has no room
  const diagnosis = member.diagnosis.find((each) => each.turn === turn);
  if (label === undefined && !calls.length) return <td class="dim">{one}{member.infra ? "lost" : "not reached"}</td>;
  const made = new Set(calls.map(call));
  const lacking = [...seen].filter(([text, times]) => times * 2 > of && !made.has(text)).map(([text]) => text);
  return (
    <td style={{ "--edge": labelColour(label ?? "") }} class="edge">
      {one}
      {label ? <Label label={label} blame={diagnosis?.blame} /> : <span class="dim">no label</span>}
      {diagnosis && diagnosis.label !== "pass" && <p class="why">{diagnosis.reason}</p>}
      {calls.map((each) => {
        const text = call(each);
        const common = (seen.get(text) ?? 0) * 2 > of;
        const failed = Boolean(each.error || each.violations?.length);
        return (
          <div class={`call ${common ? "common" : "odd"} ${failed ? "failed" : ""}`} title={`${seen.get(text)} of ${of} rollouts. ${each.result ?? ""}`.slice(0, 600)}>
            <Name>{text}</Name>
            {failed && <em>{problem(each)}</em>}
          </div>
        );
      })}
      {lacking.map((text) => <div class="call lacks"><Name>{text}</Name></div>)}
      {!calls.length && !lacking.length && <span class="dim">no call</span>}
    </td>
  );
}
