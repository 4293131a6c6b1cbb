// The roofline: what each operator attains, under what the machine gives.

import { axis, chart, clear, hint, isNarrow, legend, tooltip } from "#chart";
import { h, unknown } from "#dom";
import * as format from "#format";
import { goTo, rooflineOf, shareOf, timeOf, view } from "#state";
import { css, kindColours } from "#theme";

let redraw = null;

export const section = {
  id: "roofline",
  title: "Roofline",
  there: () => true,
  render(parent, model) {
    const line = rooflineOf(model, view.threads);
    if (!line) {
      parent.append(unknown(model.unknown?.roofline
        ?? `The peaks at ${format.several(view.threads, "thread")} are not known; the probe of this device ran at other counts.`));
      return;
    }
    const timed = model.operators.filter((operator) => timeOf(operator) > 0);
    const points = timed.filter((operator) => operator.flops > 0 && operator.bytes > 0);
    const left = timed.filter((operator) => !points.includes(operator));
    const colours = kindColours(model, view.threads);
    const kinds = [...colours.keys()].filter((kind) => points.some((operator) => operator.anchor === kind));
    const x = points.map((operator) => operator.flops / operator.bytes);
    const memory = line.roofs.find((roof) => roof.level === "memory").bytes_per_us;
    const ridge = line.flops_per_us / memory;
    const [least, most] = [Math.min(0.05, ...x) / 1.5, Math.max(ridge * 4, ...x) * 1.5];
    const [lowest, highest] = [Math.min(...points.map((one) => one.flops / timeOf(one) / 1e3), memory * least / 1e3) / 1.5, line.flops_per_us / 1e3 * 2];
    const [height, top] = isNarrow() ? [420, 40] : [520, 48];
    const slope = Math.atan2((height - top - 52) / Math.log(highest / lowest), (parent.clientWidth - 88) / Math.log(most / least)) * 180 / Math.PI;
    redraw = () => { clear(parent); section.render(parent, model); };
    parent.append(h("p", { class: "lead" },
      `At ${format.several(view.threads, "thread")} this machine gives ${format.flopRate(line.flops_per_us)} and reads `
      + `${format.byteRate(memory)} from memory, as ${line.attained_by ? `its probe or, more than that, ${line.attained_by}` : "its probe"} attained them. A point is an operator; its area is its share of the time. `
      + "On the slope the memory limits, under the flat roof the arithmetic."));
    chart(parent, "Roofline of all operators", height, {
      grid: { left: 64, right: 24, top, bottom: 52 },
      legend: legend({ data: kinds, formatter: format.kind }),
      tooltip: tooltip({ trigger: "item" }),
      xAxis: axis("FLOP a byte", { type: "log", min: least, max: most, axisLabel: { color: css("--soft"), formatter: plain } }),
      yAxis: axis("GFLOP/s", { type: "log", nameGap: 46, axisLabel: { color: css("--soft"), formatter: plain },
        min: lowest, max: highest }),
      series: [
        ...line.roofs.map((roof) => roofSeries(roof, line, least, most, slope)),
        ...kinds.map((kind) => ({
          type: "scatter",
          name: kind,
          itemStyle: { color: colours.get(kind), opacity: 0.78, borderColor: css("--paper"), borderWidth: 1 },
          data: points.filter((operator) => operator.anchor === kind).map((operator) => ({
            value: [operator.flops / operator.bytes, operator.flops / timeOf(operator) / 1e3],
            symbolSize: Math.min(Math.max(7, Math.sqrt(shareOf(model, operator) ?? 0) * 110), 56),
            operator,
          })),
          tooltip: { formatter: ({ data }) => pointHint(model, data.operator, line, memory) },
          cursor: "pointer",
        })),
      ],
    }, { click: ({ data }) => { if (data?.operator) goTo(data.operator); } });
    if (left.length) {
      const share = left.reduce((sum, operator) => sum + (shareOf(model, operator) ?? 0), 0);
      parent.append(h("p", { class: "label" },
        `${format.several(left.length, "operator")} without arithmetic (${format.percent(share)} of the time) have no place here.`));
    }
    if (line.roofs.length === 1) {
      parent.append(h("p", { class: "label" }, "The bandwidths of this device's caches were not measured, so memory is the only slope."));
    }
  },
  clear() { redraw = null; },
  resize: () => redraw?.(), // the labels turn with the slopes
};

const plain = (value) => (value >= 1 ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : String(Number(value.toPrecision(1))));

function roofSeries(roof, line, least, most, slope) {
  const ridge = line.flops_per_us / roof.bytes_per_us;
  const memory = roof.level === "memory";
  const ends = memory ? [[least, least * roof.bytes_per_us / 1e3], [ridge, line.flops_per_us / 1e3], [most, line.flops_per_us / 1e3]]
    : [[least, least * roof.bytes_per_us / 1e3], [ridge, line.flops_per_us / 1e3]];
  return {
    type: "line",
    name: `roof ${roof.level}`,
    symbol: "none",
    silent: true,
    lineStyle: { color: css("--ink"), width: memory ? 2 : 1, type: memory ? "solid" : "dashed", opacity: memory ? 0.8 : 0.5 },
    data: ends.filter(([x]) => x >= least),
    markPoint: {
      symbol: "rect", symbolSize: [0.1, 0.1], silent: true,
      label: { show: true, color: css("--soft"), fontSize: 11, position: [0, -3], verticalAlign: "bottom" },
      data: [
        { coord: [least * 1.1, least * 1.1 * roof.bytes_per_us / 1e3], label: { align: "left", rotate: slope, formatter: `${roof.level} ${format.byteRate(roof.bytes_per_us)}` } },
        ...(memory ? [{ coord: [ridge, line.flops_per_us / 1e3], label: { align: "left", formatter: format.flopRate(line.flops_per_us) } }] : []),
      ],
    },
  };
}

function pointHint(model, operator, line, memory) {
  const us = timeOf(operator);
  return hint(operator.title, [
    ["kind", operator.anchor],
    ["output", operator.outputs[0]],
    ["time of a call", format.time(us)],
    ["share", format.percent(shareOf(model, operator))],
    ["attains", `${format.flopRate(operator.flops / us)}, ${format.percent(operator.flops / us / line.flops_per_us, 0)} of the arithmetic`],
    ["moves", `${format.byteRate(operator.bytes / us)}, ${format.percent(operator.bytes / us / memory, 0)} of the memory`],
  ]);
}
