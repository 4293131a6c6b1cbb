// Charts: what all of them share, over Apache ECharts.

import { css } from "#theme";
import { h } from "#dom";

const charts = new Set();

/**
 * A chart in an element of its own.
 *
 * @param {string} label what it shows, for those who cannot see it
 * @param {number} height in pixels
 * @param {object} option of ECharts
 * @param {object} handlers by event of ECharts, such as `click`
 */
export function chart(parent, label, height, option, handlers = {}) {
  const element = h("div", { class: "chart", role: "img", "aria-label": label, style: `height:${height}px` });
  parent.append(element);
  const made = echarts.init(element, null, { renderer: "svg" });
  made.setOption({ ...base(), ...option });
  for (const [event, handler] of Object.entries(handlers)) made.on(event, handler);
  charts.add(made);
  scalable(made);
  return made;
}

/** On paper a chart is as wide as the paper is, and keeps its shape. */
function scalable(made) {
  made.getDom().querySelector("svg")?.setAttribute("viewBox", `0 0 ${made.getWidth()} ${made.getHeight()}`);
}

/** Let go of the charts inside an element. */
export function clear(parent) {
  for (const one of charts) {
    if (parent.contains(one.getDom())) {
      one.dispose();
      charts.delete(one);
    }
  }
  parent.replaceChildren();
}

export function resize() {
  for (const one of charts) {
    one.resize();
    scalable(one);
  }
}

/** The charts of a page, for tests. */
export const all = () => [...charts];

function base() {
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: css("--ink") },
    backgroundColor: "transparent",
    tooltip: tooltip(),
    aria: { enabled: true, decal: { show: false } },
  };
}

export function tooltip(more = {}) {
  return {
    confine: true,
    backgroundColor: css("--raised"),
    borderColor: css("--line"),
    textStyle: { color: css("--ink"), fontSize: 12 },
    extraCssText: "max-width:min(28rem,90vw);white-space:normal;",
    ...more,
  };
}

/** What a tooltip shows: a title and facts, as elements. */
export function hint(title, pairs) {
  return h("div", { class: "hint" }, h("strong", {}, title),
    pairs.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("span", {}, name), " ", value)));
}

export function axis(name, more = {}) {
  return {
    name,
    nameLocation: "middle",
    nameGap: 30,
    nameTextStyle: { color: css("--soft") },
    axisLine: { lineStyle: { color: css("--line") } },
    axisLabel: { color: css("--soft"), hideOverlap: true },
    splitLine: { lineStyle: { color: css("--faint") } },
    minorSplitLine: { show: false },
    ...more,
  };
}

export const legend = (more = {}) => ({
  type: "scroll", top: 0, left: 0, right: 0, textStyle: { color: css("--ink") },
  pageTextStyle: { color: css("--soft") }, pageIconColor: css("--accent"), pageIconInactiveColor: css("--faint"),
  inactiveColor: css("--faint"), ...more,
});

export const isNarrow = () => document.documentElement.clientWidth < 700;
