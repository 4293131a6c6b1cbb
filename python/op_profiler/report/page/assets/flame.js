// A flame graph: a row for each level of a tree, each node as wide as its share of the time and below what it is part of.

import { chart, clear, tooltip } from "#chart";
import { css, inkOn } from "#theme";

const ROW = 22;

/**
 * @param {object} root the tree; a node has `name`, `value`, `itemStyle.color`, and `children` or `operator`
 * @param {Function} text of a node and the pixels there are for it
 * @param {Function} hintOf the tooltip of a node
 * @param {Function} open what a click on an operator does; one on a group shows that group alone, or all again
 */
export function flame(place, root, text, hintOf, open, shown = root) {
  const bars = [];
  const add = (node, depth, start) => {
    bars.push({ value: [start, start + node.value, depth], node });
    for (const child of node.children ?? []) {
      add(child, depth + 1, start);
      start += child.value;
    }
  };
  add(shown, 0, 0);
  const rows = Math.max(...bars.map(({ value }) => value[2])) + 1;
  chart(place, "Flame graph: share of the time by layer", rows * ROW + 8, {
    grid: { left: 0, right: 0, top: 4, bottom: 4 },
    tooltip: tooltip({ formatter: ({ dataIndex }) => hintOf(bars[dataIndex].node) }),
    xAxis: { type: "value", min: 0, max: shown.value, show: false },
    yAxis: { type: "value", min: 0, max: rows, inverse: true, show: false },
    series: [{
      type: "custom",
      encode: { x: [0, 1], y: 2 },
      data: bars.map(({ value, node: { name, itemStyle } }) => ({ value, name, itemStyle })),
      cursor: "pointer",
      emphasis: { disabled: true }, // else a bar is drawn anew under the pointer, and a browser drops a click meanwhile
      renderItem({ dataIndex }, api) {
        const { node } = bars[dataIndex];
        const [x, y] = api.coord([api.value(0), api.value(2)]);
        const width = api.coord([api.value(1), 0])[0] - x;
        const colour = node.itemStyle?.color ?? css("--faint");
        return {
          type: "rect",
          shape: { x, y, width: Math.max(width - 1, 0.5), height: ROW - 1 },
          style: { fill: colour, opacity: node.operator ? 1 : 0.4 },
          textContent: { style: { text: text(node, width), fill: node.operator ? inkOn(colour) : css("--ink"), fontSize: 12 } },
          textConfig: { position: "insideLeft" },
        };
      },
    }],
  }, { click: ({ dataIndex }) => {
    const { node } = bars[dataIndex];
    if (node.operator) return open(node.operator);
    clear(place);
    return flame(place, root, text, hintOf, open, node === shown ? root : node);
  } });
}
