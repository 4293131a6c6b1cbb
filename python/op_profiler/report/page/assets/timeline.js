// One run of the model, call after call.

import { axis, chart, clear, hint, isNarrow, tooltip } from "#chart";
import { colouring, ramp, ways } from "#colouring";
import { choice, h, unknown } from "#dom";
import * as format from "#format";
import { goTo, runOf, view } from "#state";
import { css, kindColours } from "#theme";

let colour = "kind";

export const section = {
  id: "timeline",
  title: "One run",
  there: (model) => !model.predicted,
  render(parent, model) {
    const times = runOf(model, view.threads)?.one_run_us ?? [];
    if (!times.some((us) => us !== null)) {
      parent.append(unknown("There are no times of single calls: the samples of the operators are not in the dataset."));
      return;
    }
    const owners = [];
    for (const operator of model.operators) for (const position of operator.calls) owners[position] = operator;
    const kinds = [...kindColours(model, view.threads).keys()];
    const offered = ways(model, ["kind", "efficiency", "loss"]);
    if (!offered.some(([way]) => way === colour)) colour = "kind";
    const { of } = colouring(colour, model);
    let now = 0;
    const bars = [];
    times.forEach((us, position) => {
      const operator = owners[position];
      if (us === null || !operator) return;
      bars.push({ value: [kinds.indexOf(operator.anchor), now, now + us], operator, position, itemStyle: { color: of(operator) } });
      now += us;
    });
    const narrow = isNarrow();
    parent.append(h("p", { class: "lead" },
      `${format.several(bars.length, "call")} in ${format.time(now)}, in the order in which the model makes them. Drag or scroll to look closer; a click opens the operator.`),
    h("div", { class: "controls" }, choice("Colour by", offered, colour, (way) => { colour = way; redraw(parent, model); }), ramp(colour)));
    chart(parent, "Calls of one run over time", Math.max(200, 90 + kinds.length * 30), {
      grid: { left: narrow ? 12 : 190, right: 16, top: 8, bottom: 82 },
      tooltip: tooltip({ formatter: ({ data }) => hint(data.operator.title, [
        ["call", `${data.position + 1} of ${times.length}`],
        ["from", format.time(data.value[1])],
        ["takes", format.time(data.value[2] - data.value[1])],
        ["output", data.operator.outputs[0]],
        ["layers", (data.operator.layers?.[data.operator.calls.indexOf(data.position)] ?? []).join(", ")],
      ]) }),
      dataZoom: [
        { type: "inside", filterMode: "weakFilter" },
        { type: "slider", height: 18, bottom: 8, filterMode: "weakFilter", borderColor: css("--line"), textStyle: { color: css("--soft") },
          labelFormatter: (value) => format.time(value), showDataShadow: false },
      ],
      xAxis: axis("", { type: "value", min: 0, max: now, axisLabel: { color: css("--soft"), hideOverlap: true, formatter: (value) => (value ? format.time(value) : "0") } }),
      yAxis: axis("", { type: "category", data: kinds, inverse: true, axisTick: { show: false }, splitLine: { show: true, lineStyle: { color: css("--faint") } },
        axisLabel: { show: true, formatter: format.kind, color: narrow ? css("--ink") : css("--soft"), inside: narrow, width: narrow ? undefined : 176, overflow: "truncate", fontSize: narrow ? 10 : 12,
          verticalAlign: narrow ? "bottom" : "middle", padding: narrow ? [0, 0, 6, 0] : 0 }, z: narrow ? 10 : 0 }),
      series: [{
        type: "custom",
        clip: true,
        encode: { x: [1, 2], y: 0 },
        data: bars,
        cursor: "pointer",
        renderItem(_, api) {
          const start = api.coord([api.value(1), api.value(0)]);
          const end = api.coord([api.value(2), api.value(0)]);
          const height = api.size([0, 1])[1] * (narrow ? 0.42 : 0.66);
          return { type: "rect", shape: { x: start[0], y: start[1] - height / 2 + (narrow ? 5 : 0), width: Math.max(end[0] - start[0] - 0.3, 0.7), height }, style: api.style() };
        },
      }],
    }, { click: ({ data }) => { if (data?.operator) goTo(data.operator); } });
  },
};

function redraw(parent, model) {
  clear(parent);
  section.render(parent, model);
}
