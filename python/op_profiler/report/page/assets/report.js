// The page of the command "report": builds it, and keeps it to what is shown.

import { section as analysis } from "#analysis";
import { clear, resize } from "#chart";
import { section as coruns } from "#coruns";
import { section as comparison } from "#comparison";
import { section as devices } from "#devices";
import { choice, h } from "#dom";
import * as format from "#format";
import { section as explain } from "#explain";
import { section as graph } from "#graph";
import { closeOperator, openOperator } from "#operator";
import { section as operators } from "#operators";
import { section as overview } from "#overview";
import { section as prediction } from "#prediction";
import { section as roofline } from "#roofline";
import { section as runs } from "#runs";
import { addressed, addressOf, counts, current, data, onChange, runName, show, view } from "#state";
import { applyTheme, toggleTheme } from "#theme";
import { section as timeline } from "#timeline";
import { section as treemap } from "#treemap";
import { section as tuning } from "#tuning";

const SECTIONS = [comparison, coruns, analysis, overview, devices, runs, operators, explain, treemap, graph, roofline, timeline, tuning, prediction];
const places = new Map();
const waiting = new Set();

const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target.dataset.section);
}, { rootMargin: "400px" });

function build() {
  applyTheme();
  const page = document.getElementById("page");
  page.append(header(), h("main", { id: "content" }, SECTIONS.map(frame)), footer());
  onChange(renew);
  show({});
  addEventListener("resize", () => requestAnimationFrame(fit));
  addEventListener("hashchange", route);
  addEventListener("keydown", keys);
  addEventListener("beforeprint", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { applyTheme(); renew(); });
  route();
}

/** The title; of several with one title also which run it is. */
function nameAmong(models, model) {
  return models.filter((one) => one.title === model.title).length > 1 ? `${model.title}, ${runName(model)}` : model.title;
}

function header() {
  const models = data.models ?? [];
  const select = models.length > 1
    ? h("select", { "aria-label": "Model", onchange: (event) => { show({ model: Number(event.target.value) }); history.replaceState(null, "", addressOf()); } },
      models.map((model, i) => h("option", { value: i }, nameAmong(models, model))))
    : null;
  return h("header", {},
    h("a", { class: "skip", href: "#content" }, "Skip to the content"),
    h("div", { class: "top" },
      h("span", { class: "brand" }, "op_profiler"), select, h("span", { id: "threads" }),
      h("button", { type: "button", class: "icon", title: "Light or dark", "aria-label": "Light or dark", onclick: () => { toggleTheme(); renew(); } }, "◐"),
      h("button", { type: "button", class: "icon", title: "Print, or save as PDF", "aria-label": "Print", onclick: () => print() }, "PDF")),
    h("nav", { "aria-label": "Sections" }, SECTIONS.map((section) => h("a", { href: `#${section.id}`, "data-of": section.id }, section.title))));
}

function frame(section) {
  const place = h("div", { "data-section": section.id });
  places.set(section.id, { section, place });
  return h("section", { id: section.id, "aria-labelledby": `${section.id}-title` },
    h("h2", { id: `${section.id}-title` }, section.title), place);
}

function footer() {
  return h("footer", {}, `Made by op_profiler ${data.version} on ${format.date(data.made_at)}. This file needs no network.`);
}

/** Show another model or thread count: what is near the screen now, the rest when it comes near. */
function renew() {
  const model = current();
  document.getElementById("overview-title").textContent = model ? model.title : data.title;
  document.getElementById("threads").replaceChildren(counts().length > 1
    ? choice("Threads", counts().map((n) => [n, String(n)]), view.threads, (threads) => show({ threads }))
    : "");
  for (const [id, { section, place }] of places) {
    const there = section.of === "page" ? section.there(data) : Boolean(model) && section.there(model);
    place.closest("section").hidden = !there;
    document.querySelector(`nav [data-of="${id}"]`).hidden = !there;
    if (!there) continue;
    place.style.minHeight = `${place.offsetHeight}px`; // so that nothing moves while it is drawn anew
    section.clear?.();
    clear(place);
    waiting.add(id);
    observer.unobserve(place);
    observer.observe(place);
  }
}

function draw(id) {
  if (!waiting.delete(id)) return;
  const { section, place } = places.get(id);
  section.render(place, section.of === "page" ? data : current());
  place.style.minHeight = "";
}

function drawAll() {
  [...waiting].forEach(draw);
  resize();
}

let width = innerWidth;

/** To a new width; a telephone changes the height all the time. */
function fit() {
  if (innerWidth === width) return;
  width = innerWidth;
  resize();
  for (const { section } of places.values()) section.resize?.();
}

function route() {
  const { model, key } = addressed(location.hash);
  if (model >= 0 && model !== view.model) {
    show({ model });
    document.querySelector("header select").value = model;
  }
  const operator = key && model >= 0 && current()?.operators.find((one) => one.key === key);
  if (operator) openOperator(operator);
  else closeOperator();
}

function keys(event) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName ?? "");
  if (event.key === "/" && !typing && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    draw("operators");
    document.getElementById("search")?.focus();
  }
}

build();
