// What the colour of an operator says: its kind, its time, how near the peak it is, or what it loses.

import { h } from "#dom";
import { shareOfPeak, timeOf, view } from "#state";
import { amountColour, kindColours, OTHERS } from "#theme";

const MOST = { efficiency: "100 % of the peak", loss: "all of its time" };

/** Pairs for `choice`, of the ways that this model has data for. */
export function ways(model, wanted) {
  const there = { efficiency: model.operators.some((one) => shareOfPeak(model, one)), loss: model.operators.some((one) => one.explained) };
  return wanted.filter((way) => there[way] ?? true).map((way) => [way, way]);
}

/** From 0 to 1: share of the peak that limits an operator, or of its time that its largest loss takes; null where that is not known. */
function amountOf(way, model, operator) {
  if (way === "efficiency") return shareOfPeak(model, operator)?.share ?? null;
  const found = operator.explained?.found;
  return found ? (found.losses[0]?.lost_us ?? 0) / found.time_us : null;
}

/** Colours of one way: of an operator, and of operators together, each weighed by its time. */
export function colouring(way, model) {
  const kinds = kindColours(model, view.threads);
  if (way === "kind") return { of: (operator) => kinds.get(operator.anchor) };
  const ofAll = (operators) => {
    const known = operators.filter((one) => amountOf(way, model, one) !== null && timeOf(one));
    const time = known.reduce((sum, one) => sum + timeOf(one), 0);
    return time ? amountColour(known.reduce((sum, one) => sum + amountOf(way, model, one) * timeOf(one), 0) / time) : OTHERS;
  };
  return { of: (operator) => ofAll([operator]), ofAll };
}

/** What the colours of amounts mean; nothing for kinds. */
export const ramp = (way, most = MOST[way]) => (way === "kind" ? null : h("span", { class: "ramp label" }, "0", h("i"), most,
  MOST[way] ? h("span", {}, "· grey: not known") : null));
