// The same model on several devices, and the operators on which they disagree most.

import { h, put, table } from "#dom";
import * as format from "#format";
import { data, runOf, timeOf, view } from "#state";

const MOST = 20;
const SAME = ["name", "source", "batch_size", "precision", "executor", "label", "compiler", "content"];

export const section = {
  id: "devices",
  title: "Devices",
  there: (model) => alike(model).length > 1,
  render(parent, model) {
    const models = alike(model);
    const labels = models.map((one, i) => label(one, models, i));
    const times = models.map((one) => new Map(one.operators.map((operator) => [operator.key, timeOf(operator)])));
    const wholes = models.map((one) => runOf(one, view.threads)?.whole?.median_us);
    put(parent,
      h("p", { class: "lead" }, "The same model as it was measured on each device. Below are the operators whose share of a run differs most between devices."),
      table(["device", "whole model", "over the fastest"], models.map((_, i) => [labels[i], format.time(wholes[i]), over(wholes[i], wholes)]), [1, 2]));
    const rows = disagreements(model, times).slice(0, MOST);
    if (rows.length) {
      put(parent, table(
        ["operator", "layer", ...labels.map((one) => `${one}, µs`), ...labels.map((one) => `${one}, of a run`), "shares differ by"],
        rows.map((row) => [row.operator.title, format.layer(row.operator), ...row.us.map(format.microseconds), ...row.shares.map((one) => format.percent(one)), format.percent(row.apart)]),
        [...Array(2 * models.length + 1).keys()].map((i) => i + 2)));
    } else put(parent, h("p", {}, "No operator has a time on all of them at this number of threads."));
  },
};

/** The models of the page that are this one, one a device. */
function alike(model) {
  const found = new Map();
  for (const one of [model, ...(data.models ?? [])])
    if (SAME.every((name) => one[name] === model[name]) && !found.has(one.device.key)) found.set(one.device.key, one);
  const order = (one) => (data.models ?? []).indexOf(one);
  return [...found.values()].sort((a, b) => order(a) - order(b));
}

/** The processor; where several have one name, the beginning of the device's key too. */
function label(model, models, i) {
  const twice = models.some((other, j) => j !== i && other.device.processor === model.device.processor);
  return model.device.processor + (twice ? ` (${model.device.key.slice(0, 6)})` : "");
}

function over(us, all) {
  const least = Math.min(...all.filter(format.isNumber));
  return format.isNumber(us) ? `${(us / least).toFixed(2)} times` : "–";
}

/** Operators with a time on every device, those first whose shares of a run are farthest apart. */
function disagreements(model, times) {
  const common = model.operators.filter((operator) => times.every((known) => format.isNumber(known.get(operator.key))));
  const sums = times.map((known) => common.reduce((sum, operator) => sum + known.get(operator.key) * operator.calls.length, 0));
  return common.map((operator) => {
    const us = times.map((known) => known.get(operator.key));
    const shares = us.map((one, i) => (one * operator.calls.length) / sums[i]);
    return { operator, us, shares, apart: Math.max(...shares) - Math.min(...shares) };
  }).sort((a, b) => b.apart - a.apart);
}
