// How figures and names are written.
export const percent = (value, digits = 0) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`);
export const number = (value, digits = 2) => (value === null || value === undefined ? "–" : Number(value).toFixed(digits));
export const signed = (value, digits = 2) =>
  value === null || value === undefined ? "–" : `${Number(value.toFixed(digits)) === 0 ? "" : value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
export const times = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
export const count = (value) => (value ?? 0).toLocaleString("en");
export const words = (label) => label.replaceAll("_", " ");

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function taskName(task, source) {
  const prefix = source?.split("@")[1];
  return task.replace(/^multi_turn_/, "") + (prefix ? `@${prefix}` : "");
}

const written = (value) => {
  if (typeof value === "string") return JSON.stringify(value);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(written).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${written(each)}`).join(", ")}}`;
  return String(value);
};
export const call = ({ name, arguments: given }) =>
  `${name}(${given && typeof given === "object" ? Object.entries(given).map(([key, value]) => `${key}=${written(value)}`).join(", ") : written(given ?? "")})`;
export const shown = (value) => (value === undefined ? "absent" : typeof value === "string" ? value : JSON.stringify(value));

const KINDS = { pass: "met", correct_abstention: "met", checker_error: "excluded", gt_error: "excluded", budget_cut: "excluded" };
export const kind = (label) => KINDS[label] ?? "failed";

const COLOURS = {
  pass: 1, correct_abstention: 2, state_mismatch: 3, missing_tool_call: 4, empty_turn_model_response: 4, invalid_tool_call: 5,
  recovery_failure: 6, argument_mismatch: 7, response_mismatch: 8, spurious_tool_call: 9, instance_mismatch: 10,
};
export const runColour = (at) => `var(--run-${at % 8})`;

const own = []; // labels of extensions, in the order in which the pages ask
export function labelColour(label) {
  if (!label || COLOURS[label] || KINDS[label]) return `var(--label-${COLOURS[label] ?? 0})`;
  if (!own.includes(label)) own.push(label);
  return runColour(own.indexOf(label));
}

// The words that every page uses, in its help and where they stand; docs/glossary.md has all of them.
export const WORDS = {
  turn: "a user message with everything up to the next one; it is met if state and results equal the reference's",
  label: "what went wrong in a turn, or pass",
  "own, inherited": "whose fault a failed turn is: its own, or that of an earlier turn which left the wrong state",
  "Ω, cue": "the words that only training rollouts see, switched by label",
  ρ: "utility of a label: how strongly turns with it count; 1 is neutral",
  w: "weight of a rollout, the mean ρ of its labels, clipped",
  A: "advantage: the rollout's reward against its group's, before it is weighted",
  group: "the rollouts of one prompt in a step; it has signal if an advantage is not 0",
  lift: "pass rate with a cue less that without",
};
export const STAGES = { train: "rolling out", update: "updating", save: "saving", sync: "syncing weights", validate: "validating" };
