// Why operators take what they take: what "op-profiler explain" found, for the whole model and for one operator.

import { axis, chart, hint, isNarrow, legend, tooltip } from "#chart";
import { facts, h, operatorLink, table, withCode, unknown } from "#dom";
import * as format from "#format";
import { goTo, shareOf } from "#state";
import { css, SERIES } from "#theme";

const MOST_BARS = 15;
const LITTLE = 0.05;

/** The largest loss, where it is worth acting on. */
const first = ({ found }) => found.losses.find((loss) => loss.lost_us >= LITTLE * found.time_us);

export const section = {
  id: "explain",
  title: "Largest losses, and what would help",
  there: (model) => !model.predicted,
  render(parent, model) {
    const all = model.operators.filter((operator) => operator.explained);
    if (!all.length) {
      parent.append(unknown(withCode(`Why its operators take this long is not known yet. ${model.unknown?.explain ?? ""}`)));
      return;
    }
    const ofRun = ({ explained: { found } }, us) => us * found.calls;
    all.sort((a, b) => ofRun(b, b.explained.found.time_us) - ofRun(a, a.explained.found.time_us));
    const share = all.reduce((sum, operator) => sum + (shareOf(model, operator) ?? 0), 0);
    const counts = [...new Set(all.map(({ explained }) => explained.found.threads))].join(" and ");
    parent.append(h("p", { class: "lead" },
      `${format.several(all.length, "operator")} of ${model.operators.length} (${format.percent(share)} of the time) were explained at ${counts} ${counts === "1" ? "thread" : "threads"}. `
      + "The coloured part of a bar is the largest loss of all calls in one run, grey is the rest of their time. Losses overlap, so they do not add up."));
    bars(parent, all.slice(0, MOST_BARS));
    parent.append(table(["operator", "loses most to", "a run, µs", "sureness", "try", "should save a run, µs"], all.map((operator) => {
      const { found } = operator.explained;
      const loss = first(operator.explained);
      const advice = loss ? found.advice : null;
      return [[operatorLink(operator), h("div", { class: "label" }, [format.layer(operator), format.shape(operator.outputs[0])].filter(Boolean).join(" · "))], loss ? loss.cause : "no known cause", loss ? format.microseconds(ofRun(operator, loss.lost_us)) : "–",
        loss ? format.percent(found.sureness, 0) : "–", advice ? tried(advice) : "–",
        format.isNumber(advice?.gain_us) ? saved(advice, found.calls) : "–"];
    }), [2, 3, 5]));
  },
};

/** The command, or what to do where there is none. */
const tried = (advice) => h("div", { class: "words" }, advice.command ? h("code", {}, advice.command) : null, h("div", { class: "label" }, advice.text));

const saved = (advice, calls) => [format.microseconds(advice.gain_us * calls),
  h("div", { class: "label" }, `${format.microseconds(advice.gain_low_us * calls)} to ${format.microseconds(advice.gain_high_us * calls)}`)];

function bars(parent, shown) {
  const rows = [...shown].reverse();
  const causes = [...new Set(shown.map(({ explained }) => first(explained)?.cause).filter(Boolean))];
  const value = (operator, cause) => {
    const { found } = operator.explained;
    const loss = first(operator.explained);
    const lost = loss ? Math.min(loss.lost_us, found.time_us) : 0;
    return (cause === null ? found.time_us - lost : loss?.cause === cause ? lost : 0) * found.calls;
  };
  const series = (name, cause, colour) => ({ type: "bar", stack: "time", name, itemStyle: { color: colour }, cursor: "pointer",
    data: rows.map((operator) => ({ value: value(operator, cause), operator })) });
  const narrow = isNarrow();
  chart(parent, "Time of operators and their largest losses", 90 + rows.length * 28, {
    grid: { left: narrow ? 130 : 300, right: 24, top: 34, bottom: 44 },
    legend: legend({ data: [...causes, "the rest"] }),
    tooltip: tooltip({ formatter: ({ data: { operator } }) => lossHint(operator) }),
    xAxis: axis("of one run", { type: "value", nameGap: 26, axisLabel: { color: css("--soft"), hideOverlap: true, formatter: (us) => (us ? format.time(us) : "0") } }),
    yAxis: axis("", { type: "category", axisTick: { show: false }, data: rows.map((operator) => format.fullTitle(operator)),
      axisLabel: { color: css("--soft"), width: narrow ? 118 : 286, overflow: "truncate" } }),
    series: [...causes.map((cause, i) => series(cause, cause, SERIES[i % SERIES.length])), series("the rest", null, css("--line"))],
  }, { click: ({ data }) => goTo(data.operator) });
}

function lossHint(operator) {
  const { found } = operator.explained;
  return hint(operator.title, [["a call", format.time(found.time_us)], ["calls", String(found.calls)],
    ...found.losses.slice(0, 4).map((loss) => [loss.cause, `${format.time(loss.lost_us)} a call`])]);
}

/** On the page of an operator: elements. */
export function explanation(model, operator) {
  if (!operator.explained) return [unknown(withCode(`It was not explained yet. ${model.unknown?.explain ?? ""}`))];
  const { at, found } = operator.explained;
  const disturbed = found.foreign_load ? " Others used the machine meanwhile: take it with care." : "";
  return [
    h("p", {}, withCode(found.sentence)),
    found.advice ? tried(found.advice) : null,
    found.losses.length ? table(["lost to", "µs a call", "of its time", "interval, µs", "how it is known", "why"], found.losses.map((loss) => [
      loss.cause, format.microseconds(loss.lost_us), format.percent(loss.lost_us / found.time_us, 0),
      `${format.microseconds(loss.low_us)} to ${format.microseconds(loss.high_us)}`, loss.basis, h("div", { class: "label words" }, loss.because)]), [1, 2, 3]) : null,
    facts([
      ["of the peaks", [["arithmetic", found.compute_share], ...Object.entries(found.traffic_shares)].filter(([, share]) => format.isNumber(share))
        .map(([level, share]) => `${level} ${format.percent(share, 0)}`).join(", ")],
      ["hot, cold", [found.hot_us, found.cold_us].filter(format.isNumber).map(format.time).join(", ")],
      ["one thread", format.time(found.one_thread_us)],
      ["hottest loop", found.code ? loop(found.code) : null],
      ["not explained", format.time(found.unexplained_us)]]),
    h("p", { class: "label" }, `Measured with ${format.several(found.threads, "thread")} on ${format.date(at)}, all of it in one run.${disturbed}`),
  ];
}

const loop = (code) => [`${code.instructions} instructions`, `${format.percent(code.vector_share, 0)} on vectors of ${code.lanes.toFixed(1)} of ${code.lanes_of_target} lanes`,
  `${format.percent(code.fma_share, 0)} multiply-adds`, code.spills ? `${code.spills} use the stack` : "no spills",
  format.isNumber(code.cycles) ? `${code.cycles.toFixed(1)} cycles an iteration` : ""].filter(Boolean).join(", ");
