// Elements. Text that comes from a model goes in as text, never as HTML.

import { addressOf } from "#state";

/** An element; children are elements, text, or null for nothing. Attributes that begin with "on" are listeners. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return put(element, ...children);
}

/** Put children into an element: elements, text, or null for nothing. */
export function put(element, ...children) {
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table of facts, name and value. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A plain table. Cells that are numbers of any kind are named by their column, counted from 0. */
export function table(headers, rows, numbers = []) {
  const align = (i) => (numbers.includes(i) ? "number" : null);
  return h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": headers.join(", ") },
    h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, headers.map((name, i) => h("th", { scope: "col", class: align(i) }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: align(i) }, cell)))))));
}

/** One of a few, as buttons side by side. */
export function choice(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) => h("button", {
    type: "button",
    "aria-pressed": String(value === chosen),
    onclick: () => {
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(options[i][0] === value)));
      choose(value);
    },
  }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, h("span", { class: "label" }, label), buttons);
}

/** Why something is not here. */
export function unknown(text) {
  return h("p", { class: "unknown" }, text);
}

/** Text whose parts between backticks are code. */
export const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

/** A link that opens the page of an operator. */
export function operatorLink(operator, text = operator.title) {
  return h("a", { href: addressOf(operator), class: "operator" }, text);
}
