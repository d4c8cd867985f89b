// Curves over steps, drawn by uPlot, with a legend of our own that follows the cursor.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

const resolve = (colour) => {
  const name = /^var\((.+)\)$/.exec(colour)?.[1];
  return name ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : colour;
};
const alpha = (colour, share) => `${resolve(colour)}${Math.round(share * 255).toString(16).padStart(2, "0")}`;

export function movingMean(values, half) {
  return values.map((own, at) => {
    if (own === null || own === undefined) return null;
    const near = values.slice(Math.max(0, at - half), at + half + 1).filter((value) => value !== null && value !== undefined);
    return near.length ? near.reduce((sum, value) => sum + value, 0) / near.length : null;
  });
}

// series: {name, colour, values, low?, high?, faint?, dash?, fill?, points?, bars?, quiet?} over the steps `x`.
// low and high draw a band, or with `bars` one interval per point. stacked: values are shares of a whole, one on the other.
export function Chart({ x, series, height = 190, stacked = false, min = null, max = null, format = (value) => value.toFixed(3), theme, name, sync = "step", percents = false }) {
  const box = useRef(null);
  const [at, setAt] = useState(null);
  const shape = series.map((each) => each.name).join("|") + stacked + theme;
  const plot = useRef(null);

  const drawn = stacked ? stack(series) : series;
  const columns = [x];
  for (const each of drawn) {
    columns.push(each.values);
    if (each.low && !each.bars) columns.push(each.low, each.high);
  }

  useLayoutEffect(() => {
    const text = resolve("var(--dim)");
    const grid = resolve("var(--line)");
    const lines = [{}];
    const bands = [];
    for (const each of drawn) {
      const colour = resolve(each.colour);
      lines.push({
        stroke: each.faint ? alpha(each.colour, 0.4) : colour,
        width: stacked ? 0 : each.faint ? 1 : 1.75,
        dash: each.dash,
        fill: stacked || each.fill ? (stacked ? colour : alpha(each.colour, 0.2)) : undefined,
        points: { show: Boolean(each.points) || x.length < 2, size: 6, fill: colour, stroke: colour },
        spanGaps: !stacked,
      });
      if (each.low && !each.bars) {
        const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
        lines.push(edge, edge);
        bands.push({ series: [lines.length - 1, lines.length - 2], fill: alpha(each.colour, 0.16) });
      }
    }
    const font = "11px system-ui, sans-serif";
    const intervals = drawn.filter((each) => each.bars);
    plot.current = new uPlot(
      {
        width: box.current.clientWidth,
        height,
        padding: [8, 8, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { show: !stacked, size: 7 }, sync: { key: sync }, drag: { x: false, y: false } },
        scales: {
          x: {
            time: false,
            range: (u) => {
              const [low, high] = [u.data[0][0] ?? 0, u.data[0].at(-1) ?? 0];
              const room = low === high ? 1 : intervals.length ? (high - low) * 0.04 : 0;
              return [low - room, high + room];
            },
          },
          y: {
            range: (_, low, high) => {
              for (const each of intervals)
                each.values.forEach((value, i) => {
                  if (value === null || value === undefined) return;
                  low = Math.min(low, each.low[i] ?? value);
                  high = Math.max(high, each.high[i] ?? value);
                });
              const room = (high - low || Math.abs(high) || 1) * 0.08;
              return [min ?? low - room, max ?? high + room];
            },
          },
        },
        axes: [
          { stroke: text, font, grid: { show: false }, ticks: { stroke: grid, size: 4 }, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
          { stroke: text, font, grid: { stroke: grid, width: 1 }, ticks: { show: false }, size: 46, values: (_, ticks) => ticks.map((tick) => (percents ? `${+(100 * tick).toFixed(3)} %` : tick !== 0 && Math.abs(tick) < 0.001 ? Number(tick.toPrecision(3)).toExponential() : +tick.toFixed(6))) },
        ],
        series: lines,
        bands,
        hooks: {
          setCursor: [(u) => setAt(u.cursor.idx ?? null)],
          draw: [
            (u) => {
              const { ctx } = u;
              ctx.save();
              ctx.lineWidth = devicePixelRatio * 1.25;
              intervals.forEach((each, order) => {
                ctx.strokeStyle = resolve(each.colour);
                each.values.forEach((value, i) => {
                  if (value === null || value === undefined || each.low[i] === undefined) return;
                  const shift = (order - (intervals.length - 1) / 2) * 3 * devicePixelRatio;
                  const across = u.valToPos(x[i], "x", true) + shift;
                  ctx.beginPath();
                  ctx.moveTo(across, u.valToPos(each.low[i], "y", true));
                  ctx.lineTo(across, u.valToPos(each.high[i], "y", true));
                  ctx.stroke();
                });
              });
              ctx.restore();
            },
          ],
        },
      },
      columns,
      box.current,
    );
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height }));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape, height]);
  useEffect(() => plot.current?.setData(columns), [x, series]);

  const place = at === null || at >= x.length ? x.length - 1 : at;
  const said = series.filter((each) => !each.quiet);
  const value = (each) => {
    const found = each.values[place];
    if (found === null || found === undefined) return "–";
    return each.low && each.low[place] !== undefined && each.low[place] !== null ? `${format(found)} (${format(each.low[place])} to ${format(each.high[place])})` : format(found);
  };
  const summary = said.map((each) => `${each.name} ${value(each)}`).join(", ");
  return (
    <div class="chart">
      <div ref={box} class="plot" style={{ height: `${height}px` }} role="img" aria-label={`${name}. Step ${x[place] ?? "none"}: ${summary}`} />
      <ul class="legend">
        <li class="dim">step {x[place] ?? "–"}</li>
        {said.map((each) => (
          <li>
            <i style={{ background: each.colour }} class={each.dash || each.faint ? "faint" : ""} />
            {each.name} <b>{value(each)}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}

function stack(series) {
  const sums = [];
  const drawn = series.map((each) => ({ ...each, values: each.values.map((value, i) => (sums[i] = (sums[i] ?? 0) + (value ?? 0))) }));
  return drawn.reverse();
}
