// The address: #/page?name=value. What a page shows follows from it alone, so that a view can be sent as a link.
import { useEffect, useState } from "preact/hooks";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { page: path || "overview", params: Object.fromEntries(new URLSearchParams(query)) };
}

export function href(page, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params))
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, value);
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

export function go(page, params, replace = false) {
  const to = href(page, params);
  if (replace) {
    history.replaceState(null, "", to);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = to;
}

export function useRoute() {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => set(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export const FILTERS = [
  "log", "step", "from_step", "to_step", "category", "source", "task", "label", "blame", "tool", "turn",
  "outcome", "stop", "omega", "text", "order",
];

export function filtersOf(params) {
  return Object.fromEntries(FILTERS.filter((name) => params[name]).map((name) => [name, params[name]]));
}
