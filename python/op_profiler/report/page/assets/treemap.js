// Where the time goes: areas or a flame graph, by kind or by layer.

import { chart, clear, hint, isNarrow, tooltip } from "#chart";
import { colouring, ramp, ways } from "#colouring";
import { choice, h, unknown } from "#dom";
import { flame } from "#flame";
import * as format from "#format";
import { goTo, shareOf, timeOf, totalOf, view } from "#state";
import { css, inkOn, kindColours } from "#theme";

let grouping = null;
let form = "areas";
let colour = "kind";

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
    const offered = ways(model, ["kind", "efficiency", "loss"]);
    if (!offered.some(([way]) => way === colour)) colour = "kind";
    const place = h("div");
    const meaning = h("span");
    parent.append(
      h("div", { class: "controls" }, layered
        ? choice("Group by", [["layer", "layer"], ["kind", "kind"]], grouping ?? "layer", (value) => { grouping = value; draw(); })
        : h("span", { class: "label" }, "The layers of this model are not known, so operators are grouped by kind."),
      choice("View as", [["areas", "areas"], ["flame", "flame graph"]], form, (value) => { form = value; draw(); }),
      choice("Colour by", offered, colour, (value) => { colour = value; draw(); }), meaning), place);
    draw();

    function draw() {
      clear(place);
      meaning.replaceChildren(ramp(colour) ?? "");
      const { of } = colouring(colour, model);
      const byLayers = layered && grouping !== "kind";
      const leaves = timed.map((operator) => leaf(operator, of(operator), byLayers));
      const tree = !byLayers ? byKind(leaves, kindColours(model, view.threads)) : byLayer(leaves, form === "flame" ? Infinity : 3);
      const share = (value) => format.percent(value / total(leaves));
      const hintOf = ({ name, value, operator }) => (operator ? leafHint(model, operator) : hint(name, [["time", format.time(value)], ["share", share(value)]]));
      if (form === "flame") {
        flame(place, { name: model.title, value: total(tree), children: tree }, ({ name, value }, width) => fitted(name, share(value), width - PADDING), hintOf, goTo);
        return;
      }
      chart(place, "Areas by time", isNarrow() ? 460 : 560, {
        tooltip: tooltip({ formatter: ({ data, name, value }) => hintOf({ ...data, name, value }) }),
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
            formatter: ({ name, value, dataIndex }) => inside(place, dataIndex, name, format.time(value)) },
          upperLabel: { show: true, height: 20, color: css("--ink"), fontSize: 12, overflow: "truncate",
            formatter: ({ name, value, dataIndex }) => fitted(name, share(value), areaOf(place, dataIndex).width - PADDING) },
          itemStyle: { borderColor: css("--paper"), borderWidth: 1, gapWidth: 1 },
          levels: [
            { itemStyle: { borderWidth: 0, gapWidth: 4 }, upperLabel: { show: false } },
            { itemStyle: { borderColor: css("--faint"), borderWidth: 3, gapWidth: 1 } },
            { itemStyle: { borderColor: css("--faint"), borderWidth: 2, gapWidth: 1 } },
          ],
        }],
      }, { click: ({ data }) => { if (data?.operator) goTo(data.operator); } });
    }
  },
};

const total = (leaves) => leaves.reduce((sum, one) => sum + one.value, 0);

const PADDING = 18;
const LINE = 14;
const pen = document.createElement("canvas").getContext("2d");

function widthOf(text, size) {
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Width and height of an area, as the chart has laid it out. */
const areaOf = (place, index) => echarts.getInstanceByDom(place.querySelector(".chart")).getModel().getSeriesByIndex(0).getData().getItemLayout(index);

/** A name over its figure. A figure for which there is no room is left out: a cut one would be another. */
function inside(place, index, name, figure) {
  const { width, height } = areaOf(place, index);
  if (widthOf(figure, 11) > width - PADDING || height < LINE + PADDING) return "";
  return height < 2 * LINE + PADDING || width < 48 ? figure : `${name}\n${figure}`;
}

/** A name with its figure behind it, the name as short as the pixels make it. */
function fitted(name, figure, room) {
  if (room < LINE) return "";
  if (widthOf(`${name}  ${figure}`, 12) <= room) return `${name}  ${figure}`;
  let short = name;
  while (short && widthOf(`${short}…  ${figure}`, 12) > room) short = short.slice(0, -1);
  return short ? `${short}…  ${figure}` : widthOf(figure, 12) <= room ? figure : widthOf(name, 12) <= room ? name : "";
}

/** Inside its layer an operator has its name, inside its kind the layer. */
function leaf(operator, colour, byLayers) {
  return {
    name: `${(!byLayers && format.layer(operator)) || operator.title} | ${format.shape(operator.outputs[0])}`, value: totalOf(operator), operator,
    itemStyle: { color: colour }, label: { color: inkOn(colour) },
  };
}

function byKind(leaves, colours) {
  return [...colours.keys()].map((kind) => [format.kind(kind), leaves.filter((one) => one.operator.anchor === kind)])
    .filter(([, children]) => children.length).map(([name, children]) => group(name, children));
}

/** If its children are too small to be drawn, it has the colour of the largest. */
function group(name, children) {
  const largest = children.reduce((most, one) => (one.value > most.value ? one : most));
  return { name, children, value: total(children), itemStyle: { color: largest.itemStyle.color } };
}

/** By the first parts of the layer that a call belongs to, which is that of its heavy op. */
function byLayer(leaves, depth) {
  const root = { children: new Map() };
  for (const one of leaves) {
    const calls = one.operator.calls.map((_, i) => one.operator.layers?.[i]?.[0] ?? "not known");
    for (const layer of new Set(calls)) {
      let node = root;
      for (const name of format.path(layer).slice(0, depth)) {
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
  return hint(operator.title, [
    ["kind", operator.anchor],
    ["output", operator.outputs[0]],
    ["in one run", `${format.time(totalOf(operator))} in ${format.several(operator.calls.length, "call")}`],
    ["share", format.percent(shareOf(model, operator))],
    ["layers", format.layers(operator).join(", ")],
  ]);
}
