// Two runs of one model on one device, beside each other: their times as they were stored.

import { axis, chart, hint, isNarrow, tooltip } from "#chart";
import { h, operatorLink, put, table } from "#dom";
import * as format from "#format";
import { data, goTo, runName, runOf, timeOf, totalOf, view } from "#state";
import { css, SERIES } from "#theme";

const SAME = ["name", "batch_size", "precision", "predicted"];
const MOST = 20;

export const section = {
  id: "runs",
  title: "Other runs of this model",
  there: (model) => others(model).length > 0,
  render(parent, model) {
    parent.append(h("p", { class: "lead" }, "These times were measured at different moments. They show where to look, but a difference may be noise: op-profiler compare --rerun separates changes from noise."));
    for (const other of others(model)) beside(parent, model, other);
  },
};

/** Further runs of this model on its device that the page has. */
const others = (model) => (data.models ?? []).filter((one) => one !== model && one.key && one.device.key === model.device.key && SAME.every((name) => one[name] === model[name]));

function beside(parent, model, other) {
  const [mine, its] = [runName(model), runName(other)];
  const wholes = [model, other].map((one) => runOf(one, view.threads)?.whole.median_us);
  const there = new Map(other.operators.map((operator) => [operator.key, operator]));
  const both = model.operators.map((operator) => ({ operator, counterpart: there.get(operator.key) }))
    .filter(({ operator, counterpart }) => counterpart && timeOf(operator) && timeOf(counterpart))
    .map((row) => ({ ...row, apart: totalOf(row.counterpart) - totalOf(row.operator) }))
    .sort((a, b) => Math.abs(b.apart) - Math.abs(a.apart)).slice(0, MOST);
  put(parent, h("h3", {}, `${mine} beside ${its}`), table(["", mine, its, "second / first"], [["whole model", ...wholes.map(format.time), over(...wholes)]], [1, 2, 3]));
  if (!both.length) {
    put(parent, h("p", {}, "They have no operator in common at this number of threads."));
    return;
  }
  drawn(parent, both, mine, its);
  put(parent, table(["operator", "layer", "output", `${mine}, µs a call`, `${its}, µs a call`, "second / first", "of a run, µs"],
    both.map(({ operator, counterpart, apart }) => [operatorLink(operator), format.layer(operator), format.shape(operator.outputs[0]), format.microseconds(timeOf(operator)),
      format.microseconds(timeOf(counterpart)), over(timeOf(operator), timeOf(counterpart)), `${apart > 0 ? "+" : "−"}${format.microseconds(Math.abs(apart))}`]), [3, 4, 5, 6]));
}

const over = (first, second) => (first && second ? (second / first).toFixed(2) : "–");

function drawn(parent, rows, mine, its) {
  const shown = [...rows].reverse();
  const narrow = isNarrow();
  chart(parent, "How much longer operators take in the second run", 60 + shown.length * 24, {
    grid: { left: narrow ? 130 : 360, right: 24, top: 8, bottom: 44 },
    tooltip: tooltip({ formatter: ({ data: { row } }) => hint(format.fullTitle(row.operator), [[mine, format.time(totalOf(row.operator))], [its, format.time(totalOf(row.counterpart))]]) }),
    xAxis: axis("longer in the second run", { type: "value", nameGap: 26, axisLabel: { color: css("--soft"), hideOverlap: true, formatter: (us) => (us ? format.time(us) : "0") } }),
    yAxis: axis("", { type: "category", axisTick: { show: false }, data: shown.map(({ operator }) => format.fullTitle(operator)), axisLabel: { color: css("--soft"), width: narrow ? 118 : 346, overflow: "truncate" } }),
    series: [{ type: "bar", cursor: "pointer", data: shown.map((row) => ({ value: row.apart, row, itemStyle: { color: row.apart > 0 ? SERIES[5] : SERIES[0] } })) }],
  }, { click: ({ data: { row } }) => goTo(row.operator) });
}
