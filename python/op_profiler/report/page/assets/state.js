// What the page shows at the moment.

const listeners = [];

/** The data in the page. */
export const data = JSON.parse(document.getElementById("data").textContent);

export const view = { model: 0, threads: 0 };

/** What an address calls a model; one that was predicted has no key. */
const identity = (model) => model.key || model.title;

/** Where the page shows an operator of the model that is shown, or that model alone. */
export const addressOf = (operator) => `#${new URLSearchParams({ model: identity(current()), ...(operator ? { op: operator.key } : {}) })}`;

/** Which run of a model it is. */
export const runName = (model) => [model.label || `run ${model.key.slice(0, 6)}`, model.compiler].filter(Boolean).join(", ");

/** Show the operator's page. */
export const goTo = (operator) => { location.hash = addressOf(operator); };

/** The model and the operator of an address; without a model the one that is shown. */
export function addressed(hash) {
  const asked = new URLSearchParams(hash.slice(1));
  const place = asked.has("model") ? (data.models ?? []).findIndex((one) => identity(one) === asked.get("model")) : view.model;
  return { model: place, key: asked.get("op") };
}

export const current = () => data.models?.[view.model];

/** Thread counts of the model that is shown, rising. */
export const counts = (model = current()) => (model?.runs ?? []).map((run) => run.threads);

export const runOf = (model, threads) => (model.runs ?? []).find((run) => run.threads === threads);

export const rooflineOf = (model, threads) => (model.rooflines ?? []).find((one) => one.threads === threads);

/** Change what is shown, and notify all listeners. */
export function show(changes) {
  Object.assign(view, changes);
  const there = counts();
  if (!there.includes(view.threads)) view.threads = there.at(-1) ?? 0;
  listeners.forEach((listener) => listener());
}

export const onChange = (listener) => listeners.push(listener);

/** Time of one call; null where there is none. */
export const timeOf = (operator, threads = view.threads) => operator.times?.[threads]?.median_us ?? null;

/** Of all its calls in one run. */
export const totalOf = (operator, threads = view.threads) => (timeOf(operator, threads) ?? 0) * operator.calls.length;

const sums = new WeakMap();

/** Of the sum over all operators. */
export function shareOf(model, operator, threads = view.threads) {
  const known = sums.get(model) ?? new Map();
  sums.set(model, known);
  if (!known.has(threads)) known.set(threads, model.operators.reduce((sum, one) => sum + totalOf(one, threads), 0));
  return timeOf(operator, threads) === null || !known.get(threads) ? null : totalOf(operator, threads) / known.get(threads);
}

/** Share of the peak that limits an operator: of arithmetic or of memory, whichever is nearer. */
export function shareOfPeak(model, operator, threads = view.threads) {
  const [line, us] = [rooflineOf(model, threads), timeOf(operator, threads)];
  if (!line || !us) return null;
  const memory = line.roofs.find((roof) => roof.level === "memory");
  const shares = { arithmetic: operator.flops / us / line.flops_per_us, memory: operator.bytes / us / memory.bytes_per_us };
  const limit = shares.arithmetic >= shares.memory ? "arithmetic" : "memory";
  return { share: shares[limit], limit, ...shares };
}

/** Operators, those that take most of the time first. */
export const ranked = (model) => [...model.operators].sort((a, b) => totalOf(b) - totalOf(a));
