// Tables that are sorted by a column when its heading is pressed: once from small to large, again from large to small.

import { h } from "./dom.js";

/** Give every heading of a table a button that sorts by its column. */
export function sortable(table) {
  const headings = [...table.querySelectorAll("thead th")];
  headings.forEach((heading, column) => {
    const sort = () => {
      const falling = heading.getAttribute("aria-sort") === "ascending";
      for (const one of headings) one.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      sortRows(table.tBodies[0], column, falling ? -1 : 1);
    };
    const words = [...heading.childNodes];
    heading.replaceChildren(h("button", { type: "button", class: "sort", on: { click: sort } }, words));
  });
  return table;
}

function sortRows(body, column, direction) {
  const rows = [...(body?.rows ?? [])].map((row) => [worth(row.cells[column]?.textContent.trim() ?? ""), row]);
  rows.sort(([a], [b]) => compared(a, b, direction));
  body?.append(...rows.map(([, row]) => row));
}

/** A cell as what it is sorted by: the number it begins with, else its words; null where it is empty. */
function worth(text) {
  const number = /^[+-]?[\d,]*\.?\d+/.exec(text);
  if (number) return Number(number[0].replaceAll(",", ""));
  return text === "" ? null : text;
}

/** Numbers before words, and empty cells last in either direction. */
function compared(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return direction * (typeof a === "number" ? a - b : a.localeCompare(b));
}
