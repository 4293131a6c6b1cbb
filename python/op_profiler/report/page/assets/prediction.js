// What a predictor says beside what was measured.

import { axis, chart, hint, isNarrow, legend, tooltip } from "#chart";
import { h, table, unknown } from "#dom";
import * as format from "#format";
import { goTo, runOf, timeOf, view } from "#state";
import { css, SERIES } from "#theme";

const TIERS = ["measured", "sampled", "interpolated", "regressed"];

export const section = {
  id: "prediction",
  title: "Prediction and measurement",
  there: (model) => !model.predicted,
  render(parent, model) {
    if (!model.predictions?.length) {
      parent.append(unknown(model.unknown?.prediction ?? "There is no prediction."));
      return;
    }
    const points = model.operators.map((operator) => ({ operator, estimate: operator.estimates?.[view.threads], us: timeOf(operator) }))
      .filter(({ estimate, us }) => estimate?.us && us);
    parent.append(h("p", { class: "lead" }, model.predictor), whole(model));
    if (!points.length) {
      parent.append(unknown(`No operator has both a time and a prediction at ${format.several(view.threads, "thread")}.`));
      return;
    }
    const inside = points.filter(({ estimate, us }) => us >= estimate.low_us && us <= estimate.high_us).length;
    parent.append(h("p", { class: "label" }, `${inside} of ${points.length} operators lie inside their 90 % interval. On the line both are equal.`));
    scatter(parent, points);
  },
};

function whole(model) {
  return table(["threads", "predicted, µs", "90 % interval, µs", "measured, µs", "predicted / measured", "of the sum by source", "without an estimate"],
    model.predictions.map((one) => {
      const us = runOf(model, one.threads)?.whole.median_us;
      return [one.threads, format.microseconds(one.us), format.interval(one.low_us, one.high_us), format.microseconds(us),
        one.us && us ? (one.us / us).toFixed(2) : "–", Object.entries(one.tiers).map(([tier, share]) => `${tier} ${format.percent(share, 0)}`).join(", "), (one.without_estimate ?? []).length];
    }), [0, 1, 2, 3, 4, 6]);
}

function scatter(parent, points) {
  const values = points.flatMap(({ estimate, us }) => [us, estimate.us]);
  const [least, most] = [Math.min(...values) / 1.6, Math.max(...values) * 1.6];
  const tiers = TIERS.filter((tier) => points.some(({ estimate }) => estimate.tier === tier));
  const colour = (tier) => SERIES[TIERS.indexOf(tier)];
  const label = { color: css("--soft"), formatter: (value) => format.time(value), hideOverlap: true };
  chart(parent, "Predicted over measured time of every operator", isNarrow() ? 400 : 500, {
    grid: { left: 74, right: 24, top: 40, bottom: 52 },
    legend: legend({ data: tiers }),
    tooltip: tooltip(),
    xAxis: axis("measured", { type: "log", min: least, max: most, axisLabel: label }),
    yAxis: axis("predicted", { type: "log", min: least, max: most, nameGap: 56, axisLabel: label }),
    series: [
      { type: "line", data: [[least, least], [most, most]], symbol: "none", silent: true, lineStyle: { color: css("--soft"), type: "dashed" } },
      ...tiers.flatMap((tier) => {
        const mine = points.filter(({ estimate }) => estimate.tier === tier);
        return [
          { type: "custom", name: tier, silent: true, itemStyle: { color: colour(tier) }, data: mine.map(({ estimate, us }) => [us, estimate.low_us, estimate.high_us]), encode: { x: 0, y: [1, 2] },
            renderItem: (_, api) => {
              const [from, to] = [api.coord([api.value(0), Math.max(api.value(1), least)]), api.coord([api.value(0), Math.min(api.value(2), most)])];
              return { type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style: { stroke: colour(tier), lineWidth: 1.5, opacity: 0.45 } };
            } },
          { type: "scatter", name: tier, symbolSize: 9, cursor: "pointer", itemStyle: { color: colour(tier) }, data: mine.map(({ operator, estimate, us }) => ({ value: [us, estimate.us], operator, estimate })),
            tooltip: { formatter: ({ data }) => hint(data.operator.title, [["output", data.operator.outputs[0]], ["measured", format.time(data.value[0])], ["predicted", format.time(data.value[1])],
              ["90 % interval", format.interval(data.estimate.low_us, data.estimate.high_us, format.time)], ["source", data.estimate.tier]]) } },
        ];
      }),
    ],
  }, { click: ({ data }) => { if (data?.operator) goTo(data.operator); } });
}
