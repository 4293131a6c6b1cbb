// Two runs beside each other: what changed, with its interval, and what only one side has.

import { axis, chart, hint, isNarrow, legend, tooltip } from "#chart";
import { choice, h, put } from "#dom";
import * as format from "#format";
import { saveButtons } from "#save";
import { css } from "#theme";

const MOST_DRAWN = 24;
const WIDEST = 0.2;
const COLOURS = { slower: "#d55e00", faster: "#0072b2", "no change seen": "#8a8f98" };

let shown = null;

export const section = {
  id: "comparison",
  title: "Changes",
  of: "page",
  there: (data) => Boolean(data.comparison),
  render(parent, data) {
    const { verdict, method, notes, runs, rows, layers } = data.comparison;
    put(parent,
      runs.filter((run) => run.warnings?.length).map((run) => h("div", { class: "notice warning" }, h("strong", {}, `Take care: ${run.title}`), h("ul", {}, run.warnings.map((text) => h("li", {}, text))))),
      h("p", { class: "verdict" }, verdict.charAt(0).toUpperCase() + verdict.slice(1)),
      h("ul", { class: "sentences" }, runs.map((run) => h("li", {}, `${run.title}: ${run.between}`)), [...notes, method].map((text) => h("li", {}, text))));
    drawn(parent, rows, runs);
    byLayer(parent, layers, runs);
    tabled(parent, rows, runs);
    for (const run of runs.filter((one) => one.only?.length)) {
      parent.append(h("h3", {}, "Only one side has"), h("ul", {}, run.only.map((text) => h("li", {}, text))));
    }
  },
  resize: () => shown?.redraw(),
  clear() {
    shown?.destroy();
    shown = null;
  },
};

const kind = (row) => (row.real ? (row.change > 0 ? "slower" : "faster") : "no change seen");

const title = (row, runs) => `${runs.length > 1 ? `${runs[row.model].title}: ` : ""}${row.name ?? "the whole model"}`;

/** Whole models, what really changed, and what takes most of the time: changes with their intervals. */
function drawn(parent, rows, runs) {
  const known = rows.filter((row) => format.isNumber(row.low));
  const order = (row) => [row.name === null ? 2 : row.real ? 1 : 0, row.share ?? 0];
  const compare = (a, b) => order(b)[0] - order(a)[0] || order(b)[1] - order(a)[1];
  const lines = [...known].sort(compare).slice(0, MOST_DRAWN).sort((a, b) => rows.indexOf(b) - rows.indexOf(a));
  if (!lines.length) return;
  const narrow = isNarrow();
  const counts = new Set(lines.map((row) => row.threads));
  const kinds = Object.keys(COLOURS).filter((name) => lines.some((row) => kind(row) === name));
  const of = (name) => lines.map((row, i) => ({ row, i })).filter(({ row }) => kind(row) === name);
  const least = Math.min(0, ...lines.map((row) => row.low)), most = Math.max(0, ...lines.map((row) => row.high));
  const room = Math.max(most - least, 0.02) * 0.06;
  parent.append(h("p", { class: "lead" }, "A point is a change, the line its interval; one that leaves out zero is real. To the left it became faster, to the right slower."));
  chart(parent, "Changes with their intervals", 90 + lines.length * 24, {
    grid: { left: narrow ? 130 : 380, right: 24, top: 34, bottom: 44 },
    legend: legend({ data: kinds }),
    tooltip: tooltip({ formatter: ({ data: { row } }) => hint(title(row, runs), [["threads", String(row.threads)], ["before", format.time(row.before_us)], ["after", format.time(row.after_us)],
      ["change", signed(row.change)], ["interval", `${signed(row.low)} to ${signed(row.high)}`], ["", row.words]]) }),
    xAxis: axis("change of the time", { type: "value", min: least - room, max: most + room, nameGap: 26, axisLabel: { color: css("--soft"), hideOverlap: true, formatter: (value) => signed(value) } }),
    yAxis: axis("", { type: "category", axisTick: { show: false }, data: lines.map((row) => [title(row, runs), row.layer, counts.size > 1 ? format.several(row.threads, "thread") : ""].filter(Boolean).join(", ")),
      axisLabel: { color: css("--soft"), width: narrow ? 118 : 366, overflow: "truncate" } }),
    series: kinds.flatMap((name) => [
      { type: "custom", name, itemStyle: { color: COLOURS[name] }, encode: { x: [1, 2], y: 0 }, data: of(name).map(({ row, i }) => ({ value: [i, row.low, row.high], row })),
        renderItem: (_, api) => {
          const [from, to] = [api.coord([api.value(1), api.value(0)]), api.coord([api.value(2), api.value(0)])];
          return { type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style: { stroke: COLOURS[name], lineWidth: 2.5 } };
        } },
      { type: "scatter", name, symbolSize: 9, itemStyle: { color: COLOURS[name] }, data: of(name).map(({ row, i }) => ({ value: [row.change, i], row })),
        markLine: name === kinds[0] ? { silent: true, symbol: "none", data: [{ xAxis: 0, lineStyle: { color: css("--ink"), type: "solid", opacity: 0.6 }, label: { show: false } }] } : undefined },
    ]),
  });
}

/** The layers whose time in one run of the model differs most, in microseconds and percent. */
function byLayer(parent, layers, runs) {
  const difference = (one) => one.after_us - one.before_us;
  const lines = [...layers].sort((a, b) => Math.abs(difference(b)) - Math.abs(difference(a))).slice(0, MOST_DRAWN).reverse();
  if (!lines.length) return;
  const change = (one) => ({ ...one, change: difference(one) });
  const percent = (one) => (one.before_us ? signed(difference(one) / one.before_us) : "");
  const micro = (us) => `${us < 0 ? "−" : "+"}${format.time(Math.abs(us))}`;
  const narrow = isNarrow();
  const counts = new Set(lines.map((one) => one.threads));
  const kinds = Object.keys(COLOURS).filter((name) => lines.some((one) => kind(change(one)) === name));
  parent.append(h("h3", {}, "Differences by layer"), h("p", { class: "lead" },
    `A bar is by how much a layer takes longer or shorter in one run of the model${layers.length > lines.length ? `; the ${lines.length} largest of ${layers.length}` : ""}.`));
  chart(parent, "Differences by layer", 90 + lines.length * 24, {
    grid: { left: narrow ? 130 : 380, right: narrow ? 24 : 150, top: 34, bottom: 44 },
    legend: legend({ data: kinds }),
    tooltip: tooltip({ formatter: ({ data: { one } }) => hint(one.layer, [["threads", String(one.threads)], ["before", format.time(one.before_us)], ["after", format.time(one.after_us)],
      ["difference", micro(difference(one))], ["change", percent(one)]]) }),
    xAxis: axis("difference of one run", { type: "value", nameGap: 26, axisLabel: { color: css("--soft"), hideOverlap: true, formatter: (us) => (us ? micro(us) : "0") } }),
    yAxis: axis("", { type: "category", axisTick: { show: false },
      data: lines.map((one) => [runs.length > 1 ? runs[one.model].title : "", one.layer, counts.size > 1 ? format.several(one.threads, "thread") : ""].filter(Boolean).join(", ")),
      axisLabel: { color: css("--soft"), width: narrow ? 118 : 366, overflow: "truncate" } }),
    series: kinds.map((name) => ({ type: "bar", stack: "difference", name, itemStyle: { color: COLOURS[name] },
      label: { show: !narrow, position: "right", color: css("--ink"), formatter: ({ data: { one } }) => (one ? `${micro(difference(one))} (${percent(one)})` : "") },
      data: lines.map((one) => (kind(change(one)) === name ? { value: difference(one), one } : { value: null })) })),
  });
}

function tabled(parent, rows, runs) {
  const search = h("input", { type: "search", id: "search", placeholder: "Operator, shape or remark  ( / )", "aria-label": "Search changes", oninput: filter });
  const count = h("span", { class: "label", role: "status" });
  const place = h("div");
  let only = "all";
  parent.append(h("div", { class: "controls" }, search,
    choice("Show", [["all", "all"], ["real", "real changes"]], only, (value) => { only = value; filter(); }), count,
    saveButtons(`${runs[0].title} changes`, SAVED, () => table.getData("active").map((row) => SAVED_FIELDS.map((field) => row[field])))), place);
  const all = rows.map((row, order) => ({ ...row, order, title: title(row, runs), text: [title(row, runs), row.layer, row.output, row.words].join(" ").toLowerCase() }));
  const table = new Tabulator(place, {
    data: all,
    columns: columns(),
    layout: "fitDataStretch",
    autoResize: false,
    height: all.length > 24 ? 720 : undefined,
    columnDefaults: { headerSortTristate: true, resizable: false },
    rowFormatter: (row) => { if (row.getData().real) row.getElement().classList.add(kind(row.getData())); },
    placeholder: "No row fits.",
    printAsHtml: true,
    printStyled: true,
    printRowRange: "active",
  });
  const showCount = (found) => { count.textContent = found === all.length ? format.several(found, "row") : `${found} of ${format.several(all.length, "row")}`; };
  table.on("dataFiltered", (_, found) => showCount(found.length));
  showCount(all.length);
  shown = table;

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    table.setFilter((row) => (only === "all" || row.real) && words.every((word) => row.text.includes(word)));
  }
}

function columns() {
  const number = (name, field, text, more = {}) => ({ title: name, field, hozAlign: "right", headerHozAlign: "right", sorter: "number", headerSortStartingDir: "desc",
    sorterParams: { alignEmptyValues: "bottom" }, formatter: (cell) => text(cell.getValue(), cell.getData()), ...more });
  const text = (name, field, more = {}) => ({ title: name, field, sorter: "string", formatter: "plaintext", ...more });
  const narrow = isNarrow();
  return [
    text("operator", "title", { frozen: !narrow, width: narrow ? 196 : 230, tooltip: true, formatter: (cell) => named(cell.getData(), narrow) }),
    ...(narrow ? [] : [text("layer", "layer", { minWidth: 150, maxWidth: 420, tooltip: true })]),
    number("change", "change", (change) => (format.isNumber(change) ? signed(change) : "–")),
    number("interval", "low", (_, row) => (format.isNumber(row.low) ? `${signed(row.low)} to ${signed(row.high)}` : "–")),
    { title: "-20 % to +20 %", field: "high", headerSort: false, width: 140, formatter: (cell) => interval(cell.getData()) },
    text("remark", "words", { width: 230, tooltip: true }),
    number("threads", "threads", String),
    number("share", "share", (share) => format.percent(share)),
    number("before, µs", "before_us", format.microseconds),
    number("after, µs", "after_us", format.microseconds),
    text("output", "output"),
  ];
}

/** On a narrow screen with where it is and what it writes below it. */
const named = (row, narrow) => h("div", {}, row.title, narrow ? [row.layer, row.output].filter(Boolean).map((line) => h("div", { class: "label below" }, line)) : null);

const SAVED = ["operator", "layer", "output", "threads", "share", "before, us", "after, us", "change", "interval from", "to", "remark"];
const SAVED_FIELDS = ["title", "layer", "output", "threads", "share", "before_us", "after_us", "change", "low", "high", "words"];

/** The interval on a line from -20 to 20 %. */
function interval(row) {
  if (!format.isNumber(row.low)) return "–";
  const place = (value) => 50 + 50 * Math.max(-1, Math.min(1, value / WIDEST));
  const [low, middle, high] = [row.low, row.change, row.high].map(place);
  return h("span", { class: "interval", role: "img", "aria-label": `${signed(row.low)} to ${signed(row.high)}` },
    h("i", { style: `left:${low}%;width:${Math.max(high - low, 0.5)}%` }), h("b", { style: `left:${middle}%` }));
}

const signed = (share) => `${["−", "", "+"][Math.sign(Math.round(share * 1000)) + 1]}${format.percent(Math.abs(share))}`;
