// The table of operators.

import { isNarrow } from "#chart";
import { h, operatorLink } from "#dom";
import * as format from "#format";
import { saveButtons } from "#save";
import { goTo, ranked, shareOf, shareOfPeak, timeOf, view } from "#state";

let shown = null;

export const section = {
  id: "operators",
  title: "Operators",
  there: () => true,
  render(parent, model) {
    const kinds = [...new Set(ranked(model).map((operator) => format.kind(operator.anchor)))];
    const search = h("input", { type: "search", id: "search", placeholder: "Name, layer, kind, shape or schedule  ( / )",
      "aria-label": "Search operators", oninput: filter });
    const kind = h("select", { "aria-label": "Kind of operator", onchange: filter },
      h("option", { value: "" }, "All kinds"), kinds.map((name) => h("option", { value: name }, name)));
    const count = h("span", { class: "label", role: "status" });
    const place = h("div");
    parent.append(h("div", { class: "controls" }, search, kind, count, saveButtons(`${model.name} operators`, SAVED, () => table.getData("active").map(saved))), place);
    const rows = ranked(model).map((operator) => row(model, operator));
    const table = new Tabulator(place, {
      data: rows,
      columns: columns(rows, model.predicted),
      layout: "fitDataStretch",
      autoResize: false, // it would draw all rows anew for nothing, and take the focus from the one that has it
      height: rows.length > 24 ? 720 : undefined,
      initialSort: [{ column: "share", dir: "desc" }],
      columnDefaults: { headerSortTristate: false, resizable: false },
      placeholder: "No operator fits.",
      printAsHtml: true,
      printStyled: true,
      printRowRange: "active",
    });
    table.on("rowClick", (event, one) => {
      if (!event.target.closest("a")) goTo(one.getData().operator);
    });
    table.on("dataFiltered", (_, found) => showCount(count, found.length, rows.length));
    showCount(count, rows.length, rows.length);
    shown = table;

    function filter() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      table.setFilter((one) => (!kind.value || one.kind === kind.value) && words.every((word) => one.text.includes(word)));
    }
  },
  resize: () => shown?.redraw(),
  clear() {
    shown?.destroy();
    shown = null;
  },
};

const showCount = (place, found, all) => {
  place.textContent = found === all ? format.several(all, "operator") : `${found} of ${format.several(all, "operator")}`;
};

function row(model, operator) {
  const us = timeOf(operator);
  const time = operator.times?.[view.threads] ?? {};
  const peak = shareOfPeak(model, operator);
  const half = format.isNumber(time.low_us) && us ? (time.high_us - time.low_us) / 2 / us : null;
  return {
    operator,
    name: operator.title,
    kind: format.kind(operator.anchor),
    shape: format.shape(operator.outputs[0]),
    layer: format.layer(operator),
    layers: format.layers(operator).join(", "),
    calls: operator.calls.length,
    share: shareOf(model, operator),
    us,
    half,
    error: time.error,
    flopRate: us && operator.flops ? operator.flops / us : null,
    byteRate: us ? operator.bytes / us : null,
    peak: peak?.share ?? null,
    limit: peak?.limit ?? "",
    schedule: operator.schedule ? operator.schedule.template : "",
    origin: operator.schedule?.origin ?? "",
    text: [operator.title, operator.name, operator.anchor, operator.key, ...format.layers(operator), ...operator.outputs, ...operator.ops,
      operator.schedule?.template ?? "", operator.schedule?.origin ?? ""].join(" ").toLowerCase(),
  };
}

function columns(rows, predicted) {
  const number = (title, field, text, more = {}) => ({
    title, field, hozAlign: "right", headerHozAlign: "right", sorter: "number", headerSortStartingDir: "desc",
    sorterParams: { alignEmptyValues: "bottom" }, formatter: (cell) => text(cell.getValue(), cell.getData()), ...more,
  });
  const text = (title, field, more = {}) => ({ title, field, sorter: "string", formatter: "plaintext", ...more });
  const narrow = isNarrow();
  const layered = rows.some((one) => one.layers);
  return [
    text("operator", "name", { frozen: !narrow, width: narrow ? 176 : 230, formatter: (cell) => named(cell.getData(), narrow) }),
    ...(layered && !narrow ? [text("layer", "layer", { minWidth: 170, maxWidth: 420, tooltip: (_, cell) => cell.getData().layers, print: false })] : []),
    ...(narrow ? [] : [text("output", "shape", { maxWidth: 240 })]),
    number("share", "share", bar, { width: narrow ? 84 : 110 }),
    number("µs a call", "us", (us, one) => (one.error ? "failed" : format.microseconds(us)), narrow ? { width: 104 } : {}),
    number(predicted ? "± 90 %" : "± 95 %", "half", (half) => (half === null ? "–" : format.percent(half))),
    number("calls", "calls", String),
    number("GFLOP/s", "flopRate", (rate) => (rate === null ? "–" : format.microseconds(rate / 1e3))),
    number("GB/s", "byteRate", (rate) => (rate === null ? "–" : format.microseconds(rate / 1e3))),
    number("of peak", "peak", (share, one) => (share === null ? "–" : `${format.percent(share, 0)} ${one.limit === "memory" ? "mem" : "arith"}`),
      { headerTooltip: "Of the peak that limits it: arithmetic, or reading and writing every tensor once in memory. What lies in caches can be above 100 %." }),
    text("kind", "kind", { print: false }),
    ...(layered ? [text("layers", "layers", { visible: false, print: true, formatterPrint: (cell) => few(cell.getValue()) })] : []),
    text("schedule", "schedule"),
    text("origin", "origin", { print: false }),
  ];
}

/** The name; on a narrow screen with where it is and what it writes below it, for names alone are alike. */
const named = (one, narrow) => (narrow
  ? h("div", {}, operatorLink(one.operator), [one.layer, one.shape].filter(Boolean).map((line) => h("div", { class: "label below" }, line)))
  : operatorLink(one.operator));

const SAVED = ["operator", "layers", "output", "kind", "calls", "share", "us a call", "95 % interval, share", "FLOP", "bytes", "GFLOP/s", "GB/s", "of peak", "limited by", "schedule", "origin", "error", "key"];

const saved = (one) => [one.name, one.layers, one.shape, one.kind, one.calls, one.share, one.us, one.half, one.operator.flops, one.operator.bytes,
  one.flopRate && one.flopRate / 1e3, one.byteRate && one.byteRate / 1e3, one.peak, one.limit, one.schedule, one.origin, one.error, one.operator.key];

/** On paper the first of many layers. */
function few(layers) {
  const [first, ...others] = layers.split(", ");
  return others.length ? `${first} and ${others.length} more` : first;
}

function bar(share) {
  if (share === null) return "–";
  return h("span", { class: "bar" }, h("span", { style: `width:${Math.min(share * 100, 100).toFixed(2)}%` }),
    h("b", {}, format.percent(share)));
}
