// The page of one operator, over the rest.

import { axis, chart, clear, hint, legend, tooltip } from "#chart";
import { facts, h, operatorLink, table, unknown } from "#dom";
import { explanation } from "#explain";
import { copyButton } from "#save";
import * as format from "#format";
import { addressed, addressOf, counts, current, goTo, ranked, rooflineOf, shareOf, shareOfPeak, timeOf, view } from "#state";
import { css, SERIES } from "#theme";

let dialog = null;

export function openOperator(operator) {
  closeOperator();
  const model = current();
  const body = h("div", { class: "body" });
  dialog = h("dialog", { "aria-label": operator.title }, head(model, operator), body);
  dialog.addEventListener("close", () => { if (addressed(location.hash).key) history.pushState(null, "", view.model ? addressOf() : " "); closeOperator(); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && !/^(INPUT|SUMMARY)$/.test(event.target.tagName)) neighbour(model, operator, step);
  });
  document.body.append(dialog);
  dialog.showModal();
  for (const part of [times, why, spread, threads, states, counters, schedule, code, tuning, estimates, description]) part(body, model, operator);
}

export function closeOperator() {
  if (!dialog) return;
  const closing = dialog;
  dialog = null;
  clear(closing);
  closing.remove();
}

function neighbour(model, operator, step) {
  const all = ranked(model);
  const next = all[all.indexOf(operator) + step];
  if (next) goTo(next);
}

function head(model, operator) {
  const all = ranked(model);
  const place = all.indexOf(operator);
  const move = (step, text, label) => h("button", { type: "button", class: "icon", "aria-label": label, title: label,
    disabled: !all[place + step], onclick: () => neighbour(model, operator, step) }, text);
  return h("div", { class: "head" },
    h("div", { class: "name" },
      h("div", { class: "label" }, [format.layer(operator), format.shape(operator.outputs[0]), `${place + 1} of ${all.length} by time`].filter(Boolean).join(" · ")),
      h("h2", {}, operator.title)),
    h("div", { class: "buttons" }, move(-1, "←", "The one before, which takes more time"), move(1, "→", "The next one, which takes less time"),
      copyButton(() => location.href, "Link", "Copy the link to this operator"),
      h("button", { type: "button", class: "icon", "aria-label": "Close", title: "Close (Esc)", onclick: () => dialog.close() }, "✕")));
}

const part = (body, title, ...children) => {
  const section = h("section", {}, h("h3", {}, title), children);
  body.append(section);
  return section;
};

function times(body, model, operator) {
  const us = timeOf(operator);
  const time = operator.times?.[view.threads];
  const peak = shareOfPeak(model, operator);
  const card = (label, figure, more = "") => h("div", { class: "card" }, h("div", { class: "label" }, label), h("div", { class: "figure" }, figure), h("div", { class: "label" }, more));
  body.append(h("div", { class: "cards" },
    card(`a call, ${format.several(view.threads, "thread")}`, time?.error ? "failed" : format.time(us), format.halfWidth(us, time?.low_us, time?.high_us)),
    card("share of the model", format.percent(shareOf(model, operator)), format.several(operator.calls.length, "call")),
    operator.flops ? card("arithmetic", us ? format.flopRate(operator.flops / us) : "–", peak ? `${format.percent(peak.arithmetic, 0)} of the peak` : "peak not known") : null,
    card("memory", us ? format.byteRate(operator.bytes / us) : "–", peak ? `${format.percent(peak.memory, 0)} of the peak` : "peak not known")));
  if (time?.error) body.append(h("div", { class: "notice warning" }, h("strong", {}, "It failed"), h("p", {}, time.error)));
  const remarks = [time?.foreign_load ? "Others used the machine while it was measured." : "", time?.disturbed_by ? `Its rounds were disturbed: ${time.disturbed_by}.` : "", time?.settled === false ? "Its interval did not become narrow." : ""].filter(Boolean);
  if (remarks.length) body.append(h("div", { class: "notice warning" }, remarks.join(" ")));
}

function why(body, model, operator) {
  if (!model.predicted) part(body, "Why it takes this long", explanation(model, operator));
}

function spread(body, model, operator) {
  const rounds = operator.times?.[view.threads]?.rounds_us ?? [];
  if (model.predicted) return;
  const place = part(body, "Samples");
  if (rounds.length < 2) {
    place.append(unknown("The samples of the rounds are not in the dataset."));
    return;
  }
  const time = operator.times[view.threads];
  place.append(h("p", { class: "label" }, `A point is a round: the mean over ${format.several(operator.calls.length, "call")}. The band is the 95 % interval of the median.`));
  const pair = h("div", { class: "pair" });
  place.append(pair);
  chart(pair, "Time of a call over the rounds", 220, {
    grid: { left: 62, right: 10, top: 14, bottom: 44 },
    tooltip: tooltip({ trigger: "axis", formatter: ([one]) => hint(`round ${one.dataIndex + 1}`, [["a call", format.time(one.value)]]) }),
    xAxis: axis("round", { type: "category", data: rounds.map((_, i) => i + 1), nameGap: 26 }),
    yAxis: axis("µs", { scale: true, nameGap: 46 }),
    series: [{
      type: "scatter", data: rounds, symbolSize: 5, itemStyle: { color: SERIES[0] },
      markArea: format.isNumber(time.low_us) ? { silent: true, itemStyle: { color: SERIES[1], opacity: 0.22 }, data: [[{ yAxis: time.low_us }, { yAxis: time.high_us }]] } : undefined,
      markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: SERIES[1], type: "solid" }, data: [{ yAxis: time.median_us }] },
    }],
  });
  const bins = histogram(rounds);
  chart(pair, "Histogram of the rounds", 220, {
    grid: { left: 46, right: 10, top: 14, bottom: 44 },
    tooltip: tooltip({ trigger: "axis", formatter: ([one]) => hint(`${format.microseconds(bins[one.dataIndex].from)} to ${format.microseconds(bins[one.dataIndex].to)} µs`, [["rounds", String(one.value)]]) }),
    xAxis: axis("µs a call", { type: "category", data: bins.map((bin) => format.microseconds((bin.from + bin.to) / 2)), nameGap: 26 }),
    yAxis: axis("rounds", { minInterval: 1, nameGap: 30 }),
    series: [{ type: "bar", data: bins.map((bin) => bin.count), barCategoryGap: "4%", itemStyle: { color: SERIES[0] } }],
  });
}

/** Bins of equal width, after Freedman and Diaconis (1981), at most 30. */
function histogram(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
  const [low, high] = [sorted[0], sorted.at(-1)];
  const width = 2 * (at(0.75) - at(0.25)) / Math.cbrt(sorted.length);
  const count = width > 0 ? Math.min(Math.max(Math.ceil((high - low) / width), 1), 30) : 1;
  const step = (high - low) / count || 1;
  const bins = Array.from({ length: count }, (_, i) => ({ from: low + i * step, to: low + (i + 1) * step, count: 0 }));
  for (const value of sorted) bins[Math.min(Math.floor((value - low) / step), count - 1)].count += 1;
  return bins;
}

function threads(body, model, operator) {
  const all = counts(model).filter((n) => timeOf(operator, n) !== null);
  if (all.length < 2) return;
  const turn = operator.turnaround;
  const place = part(body, "Threads");
  const [first, last] = [timeOf(operator, all[0]), timeOf(operator, all.at(-1))];
  place.append(h("p", {}, turn?.threads
    ? `From ${format.several(turn.threads, "thread")} on, more do not pay${turn.reason ? ` (${turn.reason})` : ""}.`
    : `There is no turnaround point: ${turn?.reason ?? "not known"}.`,
  ` ${format.several(all.at(-1), "thread")} are ${(first / last).toFixed(2)} times as fast as ${all[0]}.`));
  chart(place, "Time over threads", 220, {
    grid: { left: 62, right: 16, top: 30, bottom: 44 },
    legend: legend(),
    tooltip: tooltip({ trigger: "axis", valueFormatter: (value) => format.time(value) }),
    xAxis: axis("threads", { type: "category", data: all, nameGap: 26 }),
    yAxis: axis("µs a call", { min: 0, nameGap: 46 }),
    series: [
      { name: "measured", type: "line", data: all.map((n) => timeOf(operator, n)), symbolSize: 8, itemStyle: { color: SERIES[0] }, lineStyle: { color: SERIES[0] },
        markPoint: turn?.threads ? { symbol: "circle", symbolSize: 18, itemStyle: { color: "transparent", borderColor: SERIES[5], borderWidth: 2 }, label: { show: false },
          data: [{ coord: [String(turn.threads), timeOf(operator, turn.threads)] }] } : undefined },
      { name: "if threads were free", type: "line", data: all.map((n) => first * all[0] / n), symbol: "none", lineStyle: { color: css("--soft"), type: "dashed" }, itemStyle: { color: css("--soft") } },
    ],
  });
}

function states(body, model, operator) {
  if (model.predicted) return;
  const place = part(body, "Hot, cold, and in the model");
  const inModel = timeOf(operator);
  const others = (operator.alone ?? []).filter((one) => one.threads === view.threads && !one.of_anchor);
  const tuned = vendorOf(model, operator);
  if (!others.length && !tuned.length) {
    place.append(unknown(`It was measured in the model only: ${format.time(inModel)}. For hot and cold caches collect the model again with --cache hot and --cache cold; for the vendor's kernel with --vendor true.`));
    return;
  }
  place.append(table(["how", "µs a call", "against in the model"], [
    ["in the model, as its neighbours leave the caches", format.microseconds(inModel), "1.00"],
    ...others.map((one) => [`in isolation, ${one.what}`, ...aloneCells(one, inModel)]),
    ...tuned.map((one) => [`${one.what} (${one.origin}, ${one.cache} caches; its heavy op in isolation)`, ...aloneCells(one, inModel)]),
  ], [1, 2]));
}

function counters(body, model, operator) {
  if (model.predicted) return;
  const time = operator.times?.[view.threads] ?? {};
  const place = part(body, "Counters");
  const counted = Object.entries(time.counted ?? {});
  const missing = Object.entries(time.not_counted ?? {});
  if (!counted.length && !missing.length) {
    place.append(unknown("Its events were not counted (collect with --counters)."));
    return;
  }
  const shares = counted.filter(([name]) => name.endsWith(SHARE));
  if (shares.length) {
    place.append(h("p", { class: "label" }, "Of what the GPU can do at most, from cold caches"), table(["what", "%"],
      shares.map(([name, percent]) => [event(name.slice(0, -SHARE.length)), percent.toFixed(1)]), [1]));
  }
  const instructions = time.counted?.instructions;
  const events = counted.filter(([name]) => !name.endsWith(SHARE));
  if (events.length) {
    place.append(h("p", { class: "label" }, "Of one call in the model, all threads together"), table(["event", "a call", "per 1,000 instructions"],
      events.map(([name, count]) => [event(name), format.amount(count), instructions ? format.amount(1000 * count / instructions) : "–"]), [1, 2]));
  }
  for (const reason of new Set(missing.map(([, why]) => why))) {
    const names = missing.filter(([, why]) => why === reason).map(([name]) => event(name));
    place.append(unknown(`Not counted: ${names.join(", ")}. Why: ${reason}.`));
  }
}

const SHARE = "_percent";
const event = (name) => name.replaceAll("_", " ");

/** A time and its ratio; of a disturbed one a mark in place of the ratio. */
const aloneCells = (one, inModel) => [format.microseconds(one.median_us), one.disturbed ? "disturbed" : (one.median_us / inModel).toFixed(2)];

const vendorOf = (model, operator) => (operator.alone ?? []).filter((one) => one.of_anchor && one.threads === view.threads);

function schedule(body, model, operator) {
  if (model.predicted) return;
  const place = part(body, "Schedule and loops");
  const known = operator.schedule;
  place.append(known ? facts([["template", known.template], ["origin", known.origin],
    ...Object.entries(known.factors ?? {}).map(([name, value]) => [name.replace("_", " "), factor(value)]),
    ["knobs", Object.entries(known.knobs ?? {}).map(([name, value]) => `${name}=${format.plain(value)}`).join(", ")]])
    : unknown("What schedule it has is not known."));
  if (operator.loops?.length) {
    const beside = assembly(operator);
    place.append(h("div", { class: beside ? "pair" : "" },
      h("div", { class: "loops", role: "list", "aria-label": "Loop nest" }, operator.loops.map((loop) =>
        h("div", { role: "listitem", class: `loop ${loop.kind}`, style: `--depth:${loop.depth}` },
          h("span", { class: "kind" }, loop.kind), h("code", {}, loop.name), h("span", { class: "extent" }, `× ${loop.extent}`),
          loop.body ? h("code", { class: "store" }, loop.body) : null))),
      beside));
  } else {
    place.append(unknown("The loops of its kernel are not in the dataset: it was collected by an older version, or the kernel is too long to be kept. Collect the model again (--remeasure all) to have them."));
  }
}

/** The hottest loop of the machine code, as explain read it; null if it did not. */
function assembly(operator) {
  const found = operator.explained?.found.code;
  if (!found?.assembly?.length) return null;
  const count = found.assembly.length === found.instructions ? `${found.instructions} instructions` : `the first ${found.assembly.length} of ${found.instructions} instructions`;
  return h("div", { class: "assembly" }, h("div", { class: "label" }, `Hottest loop in machine code: ${count}`),
    h("pre", { tabindex: 0, "aria-label": "Assembly of the hottest loop" }, found.assembly.join("\n")));
}

const factor = (value) => (value !== null && typeof value === "object" ? Object.entries(value).map(([axisName, size]) => `${axisName} ${size}`).join(", ") : String(value));

function code(body, model, operator) {
  if (operator.code) part(body, "Lowered code (TIR)", h("details", {}, h("summary", {}, `${format.several(operator.code.split("\n").length, "line")}, before loops are unrolled`), h("pre", { tabindex: 0 }, operator.code)));
}

function tuning(body, model, operator) {
  if (model.predicted) return;
  const found = model.tunings?.[operator.tuning];
  const place = part(body, "Best trials");
  if (!found) {
    place.append(unknown("No search for a schedule of its heavy op is in the dataset (collect with --iftune true)."));
    return;
  }
  for (const search of found.searches) {
    place.append(h("p", { class: "label" }, `${format.several(search.trials, "trial")} with ${format.several(search.threads, "thread")} and ${search.cache} caches, ${search.failed} of them failed; the heavy op in isolation`),
      table(["µs", "template", "what it does"], search.best.map((trial) => [format.microseconds(trial.us), trial.template,
        Object.entries(trial.factors ?? {}).map(([name, value]) => `${name} ${factor(value)}`).join("; ")]), [0]));
  }
  place.append(h("p", {}, h("a", { href: "#tuning", onclick: () => dialog.close() }, "All of the search")));
}

function estimates(body, model, operator) {
  const all = Object.entries(operator.estimates ?? {});
  const place = part(body, "Prediction");
  if (!all.length) {
    place.append(unknown(model.unknown?.prediction ?? "There is no prediction for it."));
    return;
  }
  place.append(h("p", { class: "label" }, model.predictor), table(["threads", "predicted, µs", "90 % interval, µs", "source", "measured, µs", "predicted / measured"],
    all.map(([n, one]) => [n, format.microseconds(one.us), format.interval(one.low_us, one.high_us), one.tier,
      model.predicted ? "–" : format.microseconds(timeOf(operator, n)), !model.predicted && one.us && timeOf(operator, n) ? (one.us / timeOf(operator, n)).toFixed(2) : "–"]), [0, 1, 2, 4, 5]));
}

function description(body, model, operator) {
  part(body, "What it computes", facts([
    ["layers", format.layers(operator).join(", ") || "not known"],
    ["called in", operator.source_lines?.join(", ")],
    ["ops", operator.ops.join(" → ")],
    ["reads", operator.inputs.join("; ")], ["weights", operator.params.join("; ")], ["writes", operator.outputs.join("; ")],
    ["arithmetic", format.flops(operator.flops)], ["moves", format.bytes(operator.bytes)],
    ["layouts", Object.entries(operator.layouts).map(([name, value]) => `${name} ${value}`).join(", ")],
    ["called at", operator.calls.map((position) => position + 1).join(", ")],
    ["kernel", operator.name], ["workload key", h("span", {}, h("code", {}, operator.key), " ", copyButton(() => operator.key))]]),
  ...operator.ops.map((op, i) => [op, Object.entries(operator.attrs[i] ?? {})]).filter(([, attrs]) => attrs.length)
    .map(([op, attrs]) => h("details", {}, h("summary", {}, `Attributes of ${op}`), facts(attrs.map(([name, value]) => [name, format.plain(value)])))),
  readers(model, operator));
}

/** Who it reads from, and who reads it. */
function readers(model, operator) {
  if (!model.reads) return null;
  const owners = [];
  for (const one of model.operators) for (const position of one.calls) owners[position] = one;
  const mine = new Set(operator.calls);
  const before = new Set(operator.calls.flatMap((position) => model.reads[position] ?? []).map((position) => owners[position]));
  const after = new Set(model.reads.flatMap((sources, position) => (sources.some((source) => mine.has(source)) ? [owners[position]] : [])));
  const list = (title, all) => (all.size ? h("div", {}, h("dt", {}, title), h("dd", {}, [...all].flatMap((one, i) => [i ? ", " : "", operatorLink(one)]))) : null);
  return h("dl", { class: "facts" }, list("reads the output of", before), list("its output is read by", after));
}
