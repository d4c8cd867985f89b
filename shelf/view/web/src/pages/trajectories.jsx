// The list of trajectories.
import { useState } from "preact/hooks";
import { exported, sampled, url } from "../api.js";
import { filtersOf, go, href } from "../route.js";
import { count, number, percent, signed, taskName, times, words } from "../text.js";
import { Label, Rows, useKeys, useNarrow } from "../ui.jsx";
import { FilterBar } from "./filters.jsx";

export const unscored = (row) => row.category.startsWith("unscored/"); // of a file without rewards

export const Mark = ({ row }) =>
  unscored(row) ? <span class="dim">–</span> : row.infra ? <span class="mark lost" title={`lost: ${words(row.infra)}`}>lost</span> : <span class={`mark ${row.score >= 1 ? "yes" : row.score > 0 ? "part" : "no"}`}>{row.score === 0 || row.score === 1 ? row.score : number(row.score)}</span>;

// The labels turn by turn; equal ones in a row are said once.
export function Turns({ row, most = 4 }) {
  if (!row.labels.length) return <span class="dim">{row.infra ? words(row.infra) : "no label"}</span>;
  const runs = [];
  row.labels.forEach((label, at) => {
    const blame = row.blames?.[at] === "inherited" ? "inherited" : null;
    const last = runs.at(-1);
    if (last?.label === label && last.blame === blame) last.times += 1;
    else runs.push({ label, blame, times: 1 });
  });
  return (
    <span class="labels">
      {runs.slice(0, most).map((each) => <span><Label label={each.label} blame={each.blame} />{each.times > 1 && <span class="dim"> ×{each.times}</span>}</span>)}
      {runs.length > most && <span class="dim">+{runs.slice(most).reduce((sum, each) => sum + each.times, 0)}</span>}
    </span>
  );
}

export function Trajectories({ params, run, fresh }) {
  const filters = filtersOf(params);
  const narrow = useNarrow();
  const most = useNarrow(1080) ? 1 : 4;
  const [found, setFound] = useState(null);
  const [chosen, choose] = useState(-1);
  const address = (offset, limit) => url("trajectories", { run: run.name, ...filters, offset, limit });
  const open = (key) => key && go("trajectory", { run: run.name, key, ...filters });
  useKeys({
    j: () => choose((at) => Math.min((found?.total ?? 1) - 1, at + 1)),
    k: () => choose((at) => Math.max(0, at - 1)),
    Enter: () => document.querySelector(".row.chosen a")?.click(),
  });
  return (
    <div class="fill">
      {exported && <p class="dim note">A sample of {sampled(run.name).keys.length} of {times(sampled(run.name).of, "trajectory", "trajectories")}; `seal view` shows all of them. {Object.keys(filters).length > 0 && <a href={href("trajectories", { run: run.name })}>Show the whole sample</a>}</p>}
      <FilterBar params={params} run={run} page="trajectories" fresh={fresh} names={["log", "text", "label", "outcome", "order"]} more={["task", "blame", "tool", "category", "from_step", "to_step", "turn"]}>
        <span class="dim result" aria-live="polite">
          {found && times(found.total, "trajectory", "trajectories")}
          {found?.searched !== null && found?.searched !== undefined && found.searched < 1 && `; ${percent(found.searched)} of the log was searched, narrow the steps to search the rest`}
        </span>
      </FilterBar>
      <div class="list" role="presentation">
        <Rows
          head={!narrow && (
            <>
              <span class="n">step</span><span>task</span><span class="n extra">rollout</span><span class="n">reward</span><span>turns</span><span class="n">w</span><span class="n">A</span><span class="n extra">errors</span><span class="n extra">tokens</span><span class="extra">end</span>
            </>
          )}
          address={address}
          height={narrow ? 58 : 30}
          fresh={fresh}
          label="Trajectories"
          onTotal={setFound}
          chosen={chosen}
          onChoose={choose}
          render={(row) =>
            narrow ? (
              <a class="two" href={href("trajectory", { run: run.name, key: row.key, ...filters })}>
                <span><b>{taskName(row.task, row.source)}</b><Mark row={row} /></span>
                <span><span class="dim">step {row.step}, {row.sample}</span> <Turns row={row} most={1} /></span>
              </a>
            ) : (
              <>
                <span class="n dim">{row.step}</span>
                <a href={href("trajectory", { run: run.name, key: row.key, ...filters })} onClick={(event) => event.stopPropagation()}>{taskName(row.task, row.source)}</a>
                <span class="n dim extra">{row.sample}</span>
                <span class="n"><Mark row={row} /></span>
                <Turns row={row} most={most} />
                <span class="n">{number(row.w)}</span>
                <span class="n">{row.advantage === null ? "–" : signed(row.advantage)}</span>
                <span class="n extra">{row.errors || <span class="dim">0</span>}</span>
                <span class="n dim extra">{count(row.tokens)}</span>
                <span class="dim extra">{row.excluded ? "excluded, " : ""}{words(row.stop || "unknown")}</span>
              </>
            )
          }
        />
      </div>
    </div>
  );
}
