// Tables that leave the page: as a file, or for a spreadsheet through the clipboard.

import { h } from "#dom";

/** Buttons that save and copy what `rows` returns, under these headings. */
export function saveButtons(name, headings, rows) {
  const cell = (value, separator) => {
    const text = String(value ?? "");
    return text.includes(separator) || /["\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const text = (separator) => [headings, ...rows()].map((row) => row.map((value) => cell(value, separator)).join(separator)).join("\n") + "\n";
  return [
    h("button", { type: "button", onclick: () => save(`${name}.csv`, text(",")) }, "CSV"),
    copyButton(() => text("\t"), "Copy", "Copy the table, for a spreadsheet"),
  ];
}

/** A button that puts a text into the clipboard, and says so. */
export function copyButton(text, label = "Copy", title = "Copy it") {
  return h("button", { type: "button", title, onclick: async ({ currentTarget: button }) => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  } }, label);
}

function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}
