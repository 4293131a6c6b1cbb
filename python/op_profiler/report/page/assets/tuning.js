// Searches for schedules: how far they came, which factor matters, what was won.

import { axis, chart, hint, isNarrow, legend, tooltip } from "#chart";
import { h, operatorLink, table } from "#dom";
import * as format from "#format";
import { shareOf } from "#state";
import { css, SERIES } from "#theme";

export const section = {
  id: "tuning",
  title: "Tuning",
  there: (model) => (model.tunings ?? []).length > 0,
  render(parent, model) {
    const owners = (tuning) => model.operators.filter((operator) => tuning.operators.includes(operator.key));
    const share = (tuning) => owners(tuning).reduce((sum, operator) => sum + (shareOf(model, operator) ?? 0), 0);
    const all = [...model.tunings].sort((a, b) => share(b) - share(a));
    const place = h("div");
    const select = h("select", { "aria-label": "Heavy op", onchange: () => draw(all[Number(select.value)]) },
      all.map((tuning, i) => h("option", { value: i }, `${format.kind(tuning.anchor)}  ${tuning.shape}`)));
    parent.append(
      h("p", { class: "lead" }, "Trials measure the heavy op in isolation. The finalists, the best of each template, were measured again in turns at the end: the least of many noisy times is too small."),
      summary(all, owners), h("div", { class: "controls" }, select), place);
    draw(all[0]);

    function draw(tuning) {
      place.replaceChildren();
      place.append(h("p", {}, "In ", owners(tuning).flatMap((operator, i) => [i ? ", " : "", operatorLink(operator)])));
      for (const search of tuning.searches) {
        place.append(h("h3", {}, `${format.several(search.trials, "trial")}, ${format.several(search.threads, "thread")}, ${search.cache} caches`));
        progress(place, search);
      }
      if (tuning.factors?.length) factors(place, tuning.factors);
      else place.append(h("p", { class: "unknown" }, "There are too few trials to show which factor matters."));
    }
  },
};

function summary(all, owners) {
  const rows = all.flatMap((tuning) => tuning.searches.map((search) => ({ tuning, search })));
  return table(["heavy op", "operators", "conditions", "trials", "failed", "TVM's template, µs", "best finalist, µs", "gain", "best trial, µs"],
    rows.map(({ tuning, search }) => [
      h("span", { title: tuning.shape }, `${format.kind(tuning.anchor)} ${format.shape(tuning.shape.split(" · ").at(-1))}`), owners(tuning).length, `${format.several(search.threads, "thread")}, ${search.cache}`, search.trials, search.failed,
      format.microseconds(search.default_us), format.microseconds(search.best_us),
      search.default_us && search.best_us ? `${(search.default_us / search.best_us).toFixed(2)} ×` : "–",
      format.microseconds(search.best[0]?.us),
    ]), [1, 3, 4, 5, 6, 7, 8]);
}

function progress(place, search) {
  const templates = Object.keys(search.progress);
  const lines = [["TVM's template", search.default_us], ["best finalist", search.best_us]].filter(([, us]) => us);
  chart(place, "Best time over trials, by template", 300, {
    grid: { left: 64, right: isNarrow() ? 20 : 150, top: 34, bottom: 46 },
    legend: legend({ data: templates }),
    tooltip: tooltip({ formatter: ({ seriesName, value }) => hint(seriesName, [["trial", String(value[0])], ["best so far", format.time(value[1])]]) }),
    xAxis: axis("trial", { type: "value", min: 0, max: search.trials, nameGap: 28 }),
    yAxis: axis("µs", { type: "log", nameGap: 48, min: ({ min }) => Math.min(min, ...lines.map(([, us]) => us)) * 0.9, axisLabel: { color: css("--soft"), formatter: (value) => format.microseconds(value) } }),
    series: templates.map((template, i) => ({
      type: "line", step: "end", name: template, data: search.progress[template], symbolSize: 5, lineStyle: { color: SERIES[i % SERIES.length], width: 2 }, itemStyle: { color: SERIES[i % SERIES.length] },
      markLine: i ? undefined : { silent: true, symbol: "none", data: lines.map(([name, us]) => ({ yAxis: us, lineStyle: { color: css("--ink"), type: name === "best finalist" ? "solid" : "dashed", opacity: 0.6 },
        label: { formatter: `${name} ${format.time(us)}`, color: css("--soft"), position: isNarrow() ? "insideStartTop" : "end" } })) },
    })),
  });
}

function factors(place, all) {
  const shown = all.slice(0, 14).reverse();
  place.append(h("h3", {}, "Which factor matters"),
    h("p", { class: "label" }, "Spearman's correlation of the time with each factor over the trials of one template: to the left more makes it faster, to the right slower. Pale: it may be chance (p above 0.01). Of more than 5,000 trials, 5,000 at most are drawn by chance."));
  chart(place, "Correlation of time and factors", 60 + shown.length * 26, {
    grid: { left: 108, right: 24, top: 8, bottom: 44 },
    tooltip: tooltip({ formatter: ({ dataIndex }) => hint(shown[dataIndex].name, [["Spearman", shown[dataIndex].spearman.toFixed(2)], ["p", shown[dataIndex].p < 1e-4 ? "below 0.0001" : shown[dataIndex].p.toPrecision(2)], ["trials", String(shown[dataIndex].trials)]]) }),
    xAxis: axis("Spearman's correlation", { type: "value", min: -1, max: 1, nameGap: 26 }),
    yAxis: axis("", { type: "category", data: shown.map((factor) => factor.name), axisTick: { show: false } }),
    series: [{ type: "bar", data: shown.map((factor) => ({ value: factor.spearman, itemStyle: { color: factor.spearman < 0 ? SERIES[0] : SERIES[1], opacity: factor.p > 0.01 ? 0.35 : 1 } })) }],
  });
}
