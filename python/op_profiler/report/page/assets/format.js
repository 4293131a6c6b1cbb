// Numbers with their units.

const three = (value) => {
  const digits = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
};

const scaled = (value, steps) => {
  const [unit, size] = steps.find(([, least]) => Math.abs(value) >= least) ?? steps.at(-1);
  return `${three(value / size)} ${unit}`;
};

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Of microseconds. */
export const time = (us) => (isNumber(us) ? scaled(us, [["s", 1e6], ["ms", 1e3], ["µs", 1], ["ns", 1e-3]]) : "–");

/** Microseconds without the unit, for columns that name it. */
export const microseconds = (us) => (isNumber(us) ? three(us) : "–");

/** In microseconds without the unit; where the upper end is not known, the lower one is what it takes at least. */
export const interval = (low, high, text = microseconds) =>
  (isNumber(high) ? `${text(low)} to ${text(high)}` : isNumber(low) ? `at least ${text(low)}` : "–");

export const percent = (share, digits = 1) => (isNumber(share) ? `${(share * 100).toFixed(digits)} %` : "–");

/** Of FLOP a microsecond. */
export const flopRate = (rate) => (isNumber(rate) ? scaled(rate, [["TFLOP/s", 1e6], ["GFLOP/s", 1e3], ["MFLOP/s", 1]]) : "–");

/** Of bytes a microsecond. */
export const byteRate = (rate) => (isNumber(rate) ? scaled(rate, [["TB/s", 1e6], ["GB/s", 1e3], ["MB/s", 1]]) : "–");

export const flops = (count) => (count ? scaled(count, [["GFLOP", 1e9], ["MFLOP", 1e6], ["kFLOP", 1e3], ["FLOP", 1]]) : "none");

export const bytes = (count) => scaled(count, [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]]);

/** Of events, which may be less than one a call. */
export const amount = (count) => count.toLocaleString("en", { maximumSignificantDigits: 4 });

export const several = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

export const date = (text) => (text ? `${text.slice(0, 10)} ${text.slice(11, 16)} UTC` : "not known");

/** Half the width of an interval, of the value. */
export const halfWidth = (value, low, high) =>
  isNumber(low) && isNumber(high) && value ? `± ${percent((high - low) / 2 / value)}` : "";

/** A kind of operator without what many begin with. */
export const kind = (op) => op.replace(/^nn\./, "").replace(/^contrib_/, "").replace("_without_weight_transform", "");

/** Parts of a layer's path: layer1.0.conv1, or /layer1/conv1/Conv. */
export const path = (layer) => layer.split(layer.includes("/") ? "/" : ".").filter(Boolean);

/** All layers that went into an operator, each once. */
export const layers = (operator) => [...new Set((operator.layers ?? []).flat())];

/** The layer of its first call, and how many others it has. */
export const layer = (operator) => {
  const [first, ...others] = layers(operator);
  return first ? first + (others.length ? ` (+${others.length})` : "") : "";
};

/** What people call an operator, with where it is and what it writes. */
export const fullTitle = (operator) => [operator.title, layer(operator), shape(operator.outputs[0])].filter(Boolean).join(" | ");

/** Sizes of a tensor, without its type. */
export const shape = (tensor = "") => tensor.replace(/^\S+ /, "");

/** A value of an attribute or a knob. */
export const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));
