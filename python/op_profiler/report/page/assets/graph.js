// The graph of a model: who reads whose output, coloured by time or by what it says of efficiency.

import { colouring, ramp, ways } from "#colouring";
import { choice, h, put, unknown } from "#dom";
import * as format from "#format";
import { layout } from "#layout";
import { goTo, timeOf } from "#state";
import { amountColour, css, inkOn } from "#theme";

const LARGE = 300; // boxes, from which on what is drawn for each of them is felt

let shown = null;
let depth = 0;
let colour = "time";
let turn = 0;

export const section = {
  id: "graph",
  title: "Model graph",
  there: (model) => !model.predicted,
  render(parent, model) {
    const calls = callsOf(model);
    const deepest = Math.min(Math.max(0, ...calls.map((call) => call.path.length)), 4);
    const search = h("input", { type: "search", placeholder: "Find in the graph", "aria-label": "Find in the graph", oninput: () => find(search.value, status),
      onkeydown: (event) => { if (event.key === "Enter") centre(search.value); } });
    const status = h("span", { class: "label", role: "status" });
    const place = h("div", { class: "graph", role: "application", tabindex: 0, "aria-label": "Graph of the model. Plus and minus zoom, arrow keys move.", onkeydown: keys });
    const levels = deepest ? [...Array.from({ length: deepest }, (_, i) => [i + 1, i + 1 === 1 ? "outermost" : String(i + 1)]), [0, "every call"]] : [];
    const offered = ways(model, ["time", "efficiency", "loss"]);
    const meaning = h("span");
    let opened = new Set();
    if (depth > deepest) depth = 0;
    if (!offered.some(([way]) => way === colour)) colour = "time";
    if (!model.reads) parent.append(unknown(model.unknown?.graph ?? "Who reads whose output is not known."));
    put(parent,
      h("p", { class: "lead" }, "A box is a call of an operator, its colour the time it takes, how near it is to the peak, or what it loses. Drag to move, scroll to zoom; a click opens the operator."
        + (deepest ? " Groups are layers of the model: a click opens one." : "")),
      h("div", { class: "controls" }, search,
        levels.length ? choice("Layers", levels, depth, (value) => { depth = value; show(new Set()); }) : null,
        choice("Colour by", offered, colour, (value) => { colour = value; show(opened); }),
        h("button", { type: "button", onclick: () => shown?.fit(undefined, 20) }, "Fit"), meaning, status),
      place);
    show(new Set());

    /** Draw it with some groups open. */
    async function show(open) {
      opened = open;
      const mine = ++turn;
      status.textContent = "Laying it out …";
      const { nodes, edges } = grouped(calls, depth, open);
      const most = Math.max(...nodes.map((node) => node.us), 1e-9);
      meaning.replaceChildren(ramp(colour, colour === "time" ? format.time(most) : undefined));
      const { ofAll } = colouring(colour, model);
      const colourOf = (node) => (colour === "time" ? amountColour(node.us / most) : ofAll(node.operators));
      const places = await layout(nodes.map((node) => [node.id, node.width, node.height]), edges);
      if (mine !== turn || !place.isConnected) return;
      shown?.destroy();
      shown = cytoscape({
        container: place,
        elements: [
          ...nodes.map((node) => ({ data: { ...node, colour: colourOf(node), ink: inkOn(colourOf(node)) }, position: places.get(node.id) })),
          ...edges.map(([source, target]) => ({ data: { id: `${source}>${target}`, source, target } })),
        ],
        layout: { name: "preset" },
        style: style(),
        minZoom: 0.02, maxZoom: 3,
        boxSelectionEnabled: false, autoungrabify: true, hideEdgesOnViewport: nodes.length > LARGE, textureOnViewport: nodes.length > LARGE,
      });
      start();
      place.dataset.boxes = nodes.length;
      status.textContent = format.several(nodes.length, "box").replace("boxs", "boxes");
      shown.on("tap", "node", ({ target }) => {
        if (target.data("group")) show(new Set([...open, target.data("group")]));
        else goTo(target.data("operators")[0]);
      });
      shown.on("mouseover", "node", ({ target }) => { place.title = target.data("hint"); place.style.cursor = "pointer"; });
      shown.on("mouseout", "node", () => { place.title = ""; place.style.cursor = ""; });
      if (search.value) find(search.value, status);
    }

    /** The whole of a small graph; of a deep one its beginning, at a size that can be read. */
    function start() {
      shown.fit(undefined, 20);
      if (shown.zoom() > 1) { shown.zoom(1); shown.center(); }
      if (shown.zoom() < 0.4) {
        const first = shown.nodes()[0];
        shown.zoom(0.75);
        shown.center(first);
        shown.panBy({ x: 0, y: 60 - place.clientHeight / 2 });
      }
    }
  },
  clear() {
    turn += 1;
    shown?.destroy();
    shown = null;
  },
  resize: () => shown?.resize(),
};

/** The graph that is shown, for tests. */
export const current = () => shown;

function callsOf(model) {
  const calls = [];
  for (const operator of model.operators) {
    for (const position of operator.calls) {
      const layers = operator.layers?.[operator.calls.indexOf(position)] ?? [];
      calls[position] = { position, operator, us: timeOf(operator) ?? 0, layers, path: format.path(layers[0] ?? ""), reads: model.reads?.[position] ?? (position ? [position - 1] : []) };
    }
  }
  return calls.filter(Boolean);
}

/** Boxes and edges, calls of one layer in a box where that is closed. */
function grouped(calls, depth, open) {
  const groups = new Map();
  const boxOf = new Map();
  for (const call of calls) {
    let group = null;
    for (let n = depth; depth && n <= call.path.length; n += 1) {
      const name = call.path.slice(0, n).join(".");
      if (!open.has(name)) { group = name; break; }
    }
    const id = group === null ? `c${call.position}` : `g${group}`;
    boxOf.set(call.position, id);
    if (group === null) {
      groups.set(id, box(id, call.operator.title, call.layers[0] ?? format.shape(call.operator.outputs[0]), call.us, { operators: [call.operator], shape: format.shape(call.operator.outputs[0]), text: textOf(call) }));
    } else {
      const known = groups.get(id) ?? { us: 0, count: 0, operators: [], text: "" };
      groups.set(id, box(id, group, format.several(known.count + 1, "call"), known.us + call.us, { group, count: known.count + 1, operators: [...known.operators, call.operator], text: `${known.text} ${textOf(call)}` }));
    }
  }
  const edges = new Map();
  for (const call of calls) {
    for (const source of call.reads) {
      const [from, to] = [boxOf.get(source), boxOf.get(call.position)];
      if (from && to && from !== to) edges.set(`${from}>${to}`, [from, to]);
    }
  }
  return { nodes: [...groups.values()], edges: [...edges.values()] };
}

const textOf = (call) => `${call.operator.title} ${call.operator.anchor} ${call.operator.key} ${call.layers.join(" ")} ${call.operator.outputs[0] ?? ""}`.toLowerCase();

function box(id, name, more, us, rest) {
  const short = name.length > 30 ? `${name.slice(0, 29)}…` : name;
  const where = more.length > 26 ? `…${more.slice(-25)}` : more;
  const label = `${short}\n${where}${where ? " · " : ""}${format.time(us)}`;
  return { id, label, us, width: Math.min(Math.max(short.length, where.length + 10) * 6.7 + 20, 236), height: 42, hint: [name, more, rest.shape, format.time(us)].filter(Boolean).join("\n"), ...rest };
}

function find(words, status) {
  if (!shown) return;
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = shown.nodes().filter((node) => wanted.length && wanted.every((word) => node.data("text").includes(word)));
  shown.batch(() => {
    shown.nodes(".hit").difference(hits).removeClass("hit");
    hits.addClass("hit");
    const faded = wanted.length && shown.nodes().length <= LARGE ? shown.nodes().difference(hits) : shown.collection();
    shown.nodes(".faded").difference(faded).removeClass("faded");
    faded.addClass("faded");
  });
  status.textContent = wanted.length ? `${hits.length} found${hits.length ? ", Enter shows them" : ""}` : `${shown.nodes().length} boxes`;
}

function centre() {
  const hits = shown?.nodes(".hit");
  if (hits?.length) { shown.fit(hits, 80); if (shown.zoom() > 1) { shown.zoom(1); shown.center(hits); } }
}

function keys(event) {
  if (!shown || event.target !== event.currentTarget) return;
  const moves = { ArrowUp: [0, 80], ArrowDown: [0, -80], ArrowLeft: [80, 0], ArrowRight: [-80, 0] };
  const zooms = { "+": 1.25, "=": 1.25, "-": 0.8 };
  if (moves[event.key]) shown.panBy({ x: moves[event.key][0], y: moves[event.key][1] });
  else if (zooms[event.key]) shown.zoom({ level: shown.zoom() * zooms[event.key], renderedPosition: { x: event.currentTarget.clientWidth / 2, y: event.currentTarget.clientHeight / 2 } });
  else return;
  event.preventDefault();
}

function style() {
  return [
    { selector: "node", style: { shape: "round-rectangle", width: "data(width)", height: "data(height)", "background-color": "data(colour)", color: "data(ink)", label: "data(label)",
      "text-wrap": "wrap", "text-valign": "center", "font-size": 11, "font-family": "system-ui, sans-serif", "line-height": 1.25, "border-width": 1, "border-color": css("--line") } },
    { selector: "node[group]", style: { "border-width": 3, "border-style": "double", "border-color": css("--ink") } },
    { selector: "edge", style: { width: 1.4, "curve-style": "bezier", "line-color": css("--soft"), "target-arrow-color": css("--soft"), "target-arrow-shape": "triangle", "arrow-scale": 0.8, opacity: 0.7 } },
    { selector: ".faded", style: { opacity: 0.18 } },
    { selector: ".hit", style: { "border-width": 4, "border-color": "#d55e00", opacity: 1 } },
  ];
}
