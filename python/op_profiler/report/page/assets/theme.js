// Colours: light and dark, and for kinds and amounts the palettes that colour-blind people can distinguish.

/** Okabe and Ito, Color Universal Design (2008); the last is for all that have no colour of their own. */
const KINDS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800"];
export const OTHERS = "#8a8f98";

/** Cividis (Nuñez, Anderton & Renslow 2018), from little to much. */
const AMOUNTS = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];

const stored = () => { try { return localStorage.getItem("op-profiler-theme"); } catch { return null; } };

export function applyTheme(theme = stored()) {
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return dark;
}

export function toggleTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("op-profiler-theme", theme); } catch { /* a browser that keeps nothing */ }
  applyTheme(theme);
}

/** A colour of the style sheet. */
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Colours of kinds of operators, those that take most of the time first. */
export function kindColours(model, threads) {
  const totals = new Map();
  for (const operator of model.operators) {
    const us = (operator.times?.[threads]?.median_us ?? 0) * operator.calls.length;
    totals.set(operator.anchor, (totals.get(operator.anchor) ?? 0) + us);
  }
  const ranked = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a));
  return new Map(ranked.map((kind, i) => [kind, KINDS[i] ?? OTHERS]));
}

/** A colour for an amount from 0 to 1. */
export function amountColour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (AMOUNTS.length - 1);
  const low = Math.min(Math.floor(place), AMOUNTS.length - 2);
  const channels = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  const [from, to] = [channels(AMOUNTS[low]), channels(AMOUNTS[low + 1])];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * (place - low))).join(",")})`;
}

/** Black or white, whichever is read better on a colour. */
export function inkOn(colour) {
  const parts = colour.startsWith("#")
    ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
    : colour.match(/\d+/g).map(Number);
  const [r, g, b] = parts.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.3 ? "#111" : "#fff";
}

export const SERIES = KINDS;
