// The head of a model: the verdict, the whole model at each thread count, what to be careful about, where it ran.

import { facts, h, put, table } from "#dom";
import * as format from "#format";

export const section = {
  id: "overview",
  title: "Overview",
  there: () => true,
  render(parent, model) {
    const [first, ...others] = model.verdict;
    put(parent,
      h("div", { class: "beside" },
        notices("warning", "Take care", model.warnings ?? []),
        h("div", {},
          h("p", { class: "verdict" }, first),
          h("div", { class: "cards" }, (model.runs ?? []).map((run) => card(run, model.predicted))),
          others.length ? h("ul", { class: "sentences" }, others.map((text) => h("li", {}, text))) : null,
          notices("note", "Good to know", model.notes ?? []))),
      model.predicted ? null : h("details", {}, h("summary", {}, "All figures of the whole model"), runs(model)),
      h("details", {}, h("summary", {}, "Device and build"), facts([
        ...model.device.facts, ...(model.about ?? []),
        ["source", model.source], ["batch", model.batch_size], ["precision", model.precision],
        ["executor", model.executor], ["model key", model.key], ["first stored", format.date(model.added_at)],
      ])),
    );
  },
};

function card(run, predicted) {
  const whole = run.whole;
  return h("div", { class: "card" },
    h("div", { class: "label" }, [run.threads ? format.several(run.threads, "thread") : "whole model", predicted ? ", predicted" : ""]),
    h("div", { class: "figure" }, whole.error ? "failed" : format.time(whole.median_us)),
    h("div", { class: "label" }, [
      format.halfWidth(whole.median_us, whole.low_us, whole.high_us),
      run.ratio ? `operators ${format.percent(run.ratio)} of it` : "",
    ].filter(Boolean).join(" · ")));
}

function notices(kind, title, texts) {
  if (!texts.length) return null;
  return h("div", { class: `notice ${kind}` }, h("strong", {}, title), h("ul", {}, texts.map((text) => h("li", {}, text))));
}

function runs(model) {
  return table(
    ["threads", "median, µs", "95 % interval, µs", "between-run interval, µs", "before, µs", "after, µs", "sum of operators, µs",
      "sum / whole", "rounds", "energy, mJ", "measured"],
    (model.runs ?? []).map((run) => [
      run.threads || "–", format.microseconds(run.whole.median_us), format.interval(run.whole.low_us, run.whole.high_us),
      format.interval(run.whole.again_low_us, run.whole.again_high_us), format.microseconds(run.before_us),
      format.microseconds(run.after_us), format.microseconds(run.sum_us), run.ratio ? run.ratio.toFixed(3) : "–",
      (run.whole.rounds_us ?? []).length || "–", run.whole.energy_mj?.toFixed(2) ?? "–", format.date(run.whole.measured_at),
    ]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}
