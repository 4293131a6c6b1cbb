// How latency goes with factors, and where more of one stops paying.

import { axis, chart, hint, tooltip } from "#chart";
import { h, table } from "#dom";
import * as format from "#format";
import { SERIES } from "#theme";

export const section = {
  id: "analysis",
  title: "Factors",
  of: "page",
  there: (data) => Boolean(data.analysis),
  render(parent, data) {
    const { relations = [], turns = [] } = data.analysis;
    const anchors = [...new Set(relations.map((one) => one.anchor))];
    const place = h("div");
    const select = h("select", { "aria-label": "Kind of operator to analyse", onchange: () => draw(select.value) }, anchors.map((anchor) => h("option", { value: anchor }, format.kind(anchor))));
    parent.append(
      h("p", { class: "lead" }, "Rank correlation (Spearman) of the latency with each factor: to the left more of it is faster, to the right slower. Factors of schedules and settings are compared within an operator, sizes between operators. Pale: it may be chance (p above 0.01)."),
      ...(data.analysis.drawn ? [h("p", { class: "unknown" }, data.analysis.drawn)] : []),
      h("div", { class: "controls" }, select), place);
    if (anchors.length) draw(anchors[0]);
    if (turns.length) {
      parent.append(h("h3", {}, "Turnaround points"), h("p", { class: "label" }, "The value of a factor from which on more of it does not pay."),
        table(["factor", "kind", "operators", "at", "why"], turns.map((one) => [one.factor, format.kind(one.anchor), one.operators, one.value ?? "none", one.reason ?? ""]), [2, 3]));
    }

    function draw(anchor) {
      place.replaceChildren();
      const mine = relations.filter((one) => one.anchor === anchor);
      const ordered = mine.filter((one) => format.isNumber(one.spearman)).sort((a, b) => Math.abs(a.spearman) - Math.abs(b.spearman));
      if (ordered.length) {
        chart(place, `Correlation of latency and factors of ${anchor}`, 60 + ordered.length * 26, {
          grid: { left: 150, right: 24, top: 8, bottom: 44 },
          tooltip: tooltip({ formatter: ({ dataIndex }) => {
            const one = ordered[dataIndex];
            return hint(one.factor, [["Spearman", one.spearman.toFixed(2)], ["p", chance(one.p)], ["compared", one.compared], ["samples", `${one.samples} of ${format.several(one.operators, "operator")}`],
              ["mutual information", format.isNumber(one.information) ? `${one.information.toFixed(2)} nats` : ""]]);
          } }),
          xAxis: axis("Spearman's correlation", { type: "value", min: -1, max: 1, nameGap: 26 }),
          yAxis: axis("", { type: "category", data: ordered.map((one) => one.factor), axisTick: { show: false } }),
          series: [{ type: "bar", data: ordered.map((one) => ({ value: one.spearman, itemStyle: { color: one.spearman < 0 ? SERIES[0] : SERIES[1], opacity: one.p > 0.01 ? 0.35 : 1 } })) }],
        });
      }
      const categories = mine.filter((one) => !format.isNumber(one.spearman) && !one.not_enough);
      if (categories.length) {
        place.append(h("h3", {}, "Categories"), table(["factor", "eta", "p", "mutual information, nats", "samples"],
          categories.map((one) => [one.factor, one.eta?.toFixed(2) ?? "–", chance(one.p), one.information?.toFixed(2) ?? "–", one.samples]), [1, 2, 3, 4]));
      }
      const missing = mine.filter((one) => one.not_enough);
      if (missing.length) place.append(h("details", {}, h("summary", {}, `${missing.length} factors that were not analyzed`), table(["factor", "why"], missing.map((one) => [one.factor, one.not_enough]))));
    }
  },
};

const chance = (p) => (!format.isNumber(p) ? "–" : p < 1e-4 ? "below 0.0001" : p.toPrecision(2));
