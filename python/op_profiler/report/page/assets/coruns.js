// Operators side by side: the plan over the lanes, beside one after the other.

import { axis, chart, hint, isNarrow, legend, tooltip } from "#chart";
import { h, put } from "#dom";
import * as format from "#format";
import { css, SERIES } from "#theme";

export const section = {
  id: "corun",
  title: "Side by side",
  of: "page",
  there: (data) => (data.coruns ?? []).length > 0,
  render(parent, data) {
    for (const corun of data.coruns) gantt(parent, corun);
  },
};

function gantt(parent, corun) {
  const lanes = [...new Set(corun.bars.flatMap((bar) => bar.lanes))].sort((a, b) => a - b);
  const end = Math.max(...corun.bars.map((bar) => bar.end_us), ...corun.sequential.map((bar) => bar.end_us));
  const several = corun.models.length > 1;
  const kinds = [...new Set(corun.bars.map((bar) => bar.anchor))];
  const group = (bar) => (several ? corun.models[bar.model] : format.kind(bar.anchor));
  const groups = several ? corun.models : kinds.map(format.kind);
  const colour = (bar) => SERIES[groups.indexOf(group(bar))] ?? "#8a8f98";
  const [first, ...others] = corun.verdict;
  put(parent,
    h("h3", {}, `${corun.title}: ${corun.policy}`),
    corun.warnings?.length ? h("div", { class: "notice warning" }, h("ul", {}, corun.warnings.map((text) => h("li", {}, text)))) : null,
    h("p", { class: "verdict" }, first),
    h("ul", { class: "sentences" }, others.map((text) => h("li", {}, text))),
    h("p", { class: "lead" }, `Above one run of the plan, below one operator after the other, over the same time. A bar is an operator on a ${corun.lane}; it is coloured by its ${several ? "model" : "kind"}. Drag or scroll to look closer.`));
  const rows = [...lanes.map((lane) => `plan, ${corun.lane} ${lane}`), ...lanes.map((lane) => `sequential, ${corun.lane} ${lane}`)];
  const bars = [
    ...corun.bars.flatMap((bar) => bar.lanes.map((lane) => ({ bar, row: lanes.indexOf(lane) }))),
    ...corun.sequential.flatMap((bar) => bar.lanes.map((lane) => ({ bar, row: lanes.length + lanes.indexOf(lane) }))),
  ];
  const narrow = isNarrow();
  chart(parent, "The plan and one after the other, over time", 150 + rows.length * 46, {
    grid: { left: narrow ? 12 : 150, right: 20, top: 36, bottom: 82 },
    legend: legend({ data: groups.slice(0, SERIES.length) }),
    tooltip: tooltip({ formatter: ({ data: { bar } }) => hint(bar.name, [
      ["model", several ? corun.models[bar.model] : ""], ["kind", format.kind(bar.anchor)], ["from", format.time(bar.start_us)], ["takes", format.time(bar.end_us - bar.start_us)],
      ["threads", String(bar.threads)], ["stage", String(bar.stage + 1)]]) }),
    dataZoom: [
      { type: "inside", filterMode: "weakFilter" },
      { type: "slider", height: 18, bottom: 8, filterMode: "weakFilter", borderColor: css("--line"), textStyle: { color: css("--soft") }, labelFormatter: (value) => format.time(value), showDataShadow: false },
    ],
    xAxis: axis("", { type: "value", min: 0, max: end, axisLabel: { color: css("--soft"), hideOverlap: true, formatter: (value) => (value ? format.time(value) : "0") } }),
    yAxis: axis("", { type: "category", data: rows, inverse: true, axisTick: { show: false },
      axisLabel: { color: css("--soft"), inside: narrow, verticalAlign: narrow ? "bottom" : "middle", padding: narrow ? [0, 0, 14, 0] : 0 }, z: narrow ? 10 : 0 }),
    series: groups.map((name) => ({
      type: "custom", name, clip: true, encode: { x: [1, 2], y: 0 }, itemStyle: { color: SERIES[groups.indexOf(name)] ?? "#8a8f98" },
      data: bars.filter(({ bar }) => group(bar) === name).map(({ bar, row }) => ({ value: [row, bar.start_us, bar.end_us], bar, itemStyle: { color: colour(bar) } })),
      renderItem(_, api) {
        const [from, to] = [api.coord([api.value(1), api.value(0)]), api.coord([api.value(2), api.value(0)])];
        const height = api.size([0, 1])[1] * (narrow ? 0.4 : 0.66);
        return { type: "rect", shape: { x: from[0], y: from[1] - height / 2 + (narrow ? 8 : 0), width: Math.max(to[0] - from[0] - 0.4, 0.7), height }, style: api.style() };
      },
    })),
  });
}
