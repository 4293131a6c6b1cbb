// Where the time goes: areas by kind or by layer.

import { chart, hint, isNarrow, tooltip } from "#chart";
import { choice, h, unknown } from "#dom";
import * as format from "#format";
import { shareOf, timeOf, totalOf, view } from "#state";
import { css, inkOn, kindColours } from "#theme";

let grouping = null;

export const section = {
  id: "treemap",
  title: "Where the time goes",
  there: () => true,
  render(parent, model) {
    const timed = model.operators.filter((operator) => timeOf(operator) > 0);
    if (!timed.length) {
      parent.append(unknown("No operator has a time."));
      return;
    }
    const layered = timed.some((operator) => operator.layers?.flat().length);
    const chosen = grouping ?? (layered ? "layer" : "kind");
    const place = h("div");
    parent.append(
      h("div", { class: "controls" }, layered
        ? choice("Group by", [["layer", "layer"], ["kind", "kind"]], chosen, (value) => { grouping = value; draw(value); })
        : h("span", { class: "label" }, "The layers of this model are not known, so operators are grouped by kind.")), place);
    draw(layered ? chosen : "kind");

    function draw(by) {
      place.replaceChildren();
      const colours = kindColours(model, view.threads);
      const leaves = timed.map((operator) => leaf(model, operator, colours.get(operator.anchor)));
      const tree = by === "kind" ? byKind(leaves, colours) : byLayer(leaves);
      chart(place, "Areas by time", isNarrow() ? 460 : 560, {
        tooltip: tooltip({ formatter: ({ data, name, value }) => (data.operator ? leafHint(model, data.operator)
          : hint(name, [["time", format.time(value)], ["share", format.percent(value / total(leaves))]])) }),
        series: [{
          type: "treemap",
          data: tree,
          left: 0, right: 0, top: 0, bottom: 32,
          nodeClick: "zoomToNode",
          roam: false,
          leafDepth: null,
          visibleMin: 60,
          breadcrumb: { bottom: 0, left: 0, itemStyle: { color: css("--raised"), borderColor: css("--line"), textStyle: { color: css("--ink") } },
            emphasis: { itemStyle: { color: css("--faint") } } },
          label: { show: true, overflow: "truncate", fontSize: 11, lineHeight: 14, padding: [3, 4],
            formatter: ({ name, value }) => `${name}\n${format.time(value)}` },
          upperLabel: { show: true, height: 20, color: css("--ink"), fontSize: 12, overflow: "truncate",
            formatter: ({ name, value }) => `${name}  ${format.percent(value / total(leaves))}` },
          itemStyle: { borderColor: css("--paper"), borderWidth: 1, gapWidth: 1 },
          levels: [
            { itemStyle: { borderWidth: 0, gapWidth: 4 }, upperLabel: { show: false } },
            { itemStyle: { borderColor: css("--faint"), borderWidth: 3, gapWidth: 1 } },
            { itemStyle: { borderColor: css("--faint"), borderWidth: 2, gapWidth: 1 } },
          ],
        }],
      }, { click: ({ data }) => { if (data?.operator) location.hash = `op=${data.operator.key}`; } });
    }
  },
};

const total = (leaves) => leaves.reduce((sum, one) => sum + one.value, 0);

function leaf(model, operator, colour) {
  return {
    name: `${format.title(operator)}  ${format.shape(operator.outputs[0])}`, value: totalOf(operator), operator,
    itemStyle: { color: colour }, label: { color: inkOn(colour) },
  };
}

function byKind(leaves, colours) {
  return [...colours.keys()].map((kind) => [format.kind(kind), leaves.filter((one) => one.operator.anchor === kind)])
    .filter(([, children]) => children.length).map(([name, children]) => group(name, children));
}

/** Where its children are too small to be drawn, it has the colour of the largest. */
function group(name, children) {
  const largest = children.reduce((most, one) => (one.value > most.value ? one : most));
  return { name, children, value: total(children), itemStyle: { color: largest.itemStyle.color } };
}

/** By the first three parts of the layer that a call belongs to, which is that of its heavy op. */
function byLayer(leaves) {
  const root = { children: new Map() };
  for (const one of leaves) {
    const calls = one.operator.calls.map((_, i) => one.operator.layers?.[i]?.[0] ?? "not known");
    for (const layer of new Set(calls)) {
      let node = root;
      for (const name of format.path(layer).slice(0, 3)) {
        if (!node.children.has(name)) node.children.set(name, { children: new Map(), leaves: [] });
        node = node.children.get(name);
      }
      node.leaves.push({ ...one, value: one.value * calls.filter((name) => name === layer).length / calls.length });
    }
  }
  const build = ([name, node]) => {
    const inner = [...node.children];
    if (inner.length === 1 && !node.leaves.length) return build([`${name}.${inner[0][0]}`, inner[0][1]]);
    return group(name, [...inner.map(build), ...node.leaves]);
  };
  return [...root.children].map(build);
}

function leafHint(model, operator) {
  return hint(format.title(operator), [
    ["kind", operator.anchor],
    ["output", operator.outputs[0]],
    ["in one run", `${format.time(totalOf(operator))} in ${format.several(operator.calls.length, "call")}`],
    ["share", format.percent(shareOf(model, operator))],
    ["layers", format.layers(operator).join(", ")],
  ]);
}
