// The two heat maps of viewpoint × aspect. A touched, focused or hovered cell lights up the sentences it stands for.

import { h, name } from "./dom.js";
import { sign } from "./gauges.js";
import { capital, number } from "./words.js";
import { SIDE_TITLE, isNamed, sideBlock } from "./sentences.js";

const CAPTION = { positive: "Heard as speaking for it", negative: "Heard as speaking against it" };
const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

/** Both maps with all viewpoints and aspects beside them; `pinned` is told each cell that is chosen for good. */
export function heatMaps(explanation, { cell, pinned, skipUser }) {
  const chosen = readCell(cell, explanation) ?? strongest(explanation);
  const viewpoints = sideColumn("viewpoint", explanation.viewpoints, skipUser);
  const aspects = sideColumn("aspect", explanation.aspects, "item");
  const said = h("p", { class: "cell-said", role: "status" });
  const maps = [];
  let held = chosen;

  function light(place) {
    for (const map of maps) map.light(place);
    viewpoints.light(place[0]);
    aspects.light(place[1]);
    said.textContent = cellWords(explanation, place);
  }
  function pin(place) {
    held = place;
    for (const map of maps) map.hold(place);
    light(place);
    pinned?.(place.map((index) => index + 1).join("."));
  }
  const touch = { light, pin, leave: () => light(held) };
  maps.push(heatMap("positive", explanation, touch), heatMap("negative", explanation, touch));
  for (const map of maps) map.hold(chosen);
  light(chosen);
  return h(
    "div",
    { class: "meeting" },
    h(
      "div",
      { class: "maps" },
      maps.map((map) => map.node),
      said,
    ),
    h("div", { class: "sides" }, viewpoints.node, aspects.node),
  );
}

function readCell(cell, { coupling_positive: coupling }) {
  const found = /^(\d+)\.(\d+)$/.exec(cell ?? "");
  const place = found && [Number(found[1]) - 1, Number(found[2]) - 1];
  return place && coupling[place[0]]?.[place[1]] !== undefined ? place : null;
}

/** The first reason's cell, or else the cell that either capsule listens to most. */
function strongest(explanation) {
  const [unit] = explanation.units;
  if (unit) return [unit.viewpoint.index - 1, unit.aspect.index - 1];
  let best = [0, 0, -Infinity];
  for (const map of [explanation.coupling_positive, explanation.coupling_negative]) {
    map.forEach((row, x) => row.forEach((value, y) => (value > best[2] ? (best = [x, y, value]) : null)));
  }
  return best.slice(0, 2);
}

function cellWords(explanation, [x, y]) {
  const pro = number(explanation.coupling_positive[x][y]);
  const contra = number(explanation.coupling_negative[x][y]);
  const reason =
    explanation.units.findIndex((unit) => unit.viewpoint.index === x + 1 && unit.aspect.index === y + 1) + 1;
  const named = reason ? ` This is reason ${reason}.` : "";
  const [one, other] = [axis("viewpoint", explanation.viewpoints, x), axis("aspect", explanation.aspects, y)];
  return `${capital(one.whole)} meets ${other.whole}. For it they count ${pro}, against it ${contra}; all cells of a map are on one scale.${named}`;
}

/** What stands beside a row or over a column: the name of the side, short and whole, or its letter and number. */
function axis(kind, sides, at) {
  const side = sides.find(({ index }) => index === at + 1);
  if (!side || !isNamed(side, kind)) return { short: `${kind[0]}${at + 1}`, whole: `${kind} ${at + 1}` };
  return { short: side.name.split(",")[0].trim() || side.name, whole: `“${side.name}”` };
}

function heatMap(sentiment, explanation, touch) {
  const rows = explanation[`coupling_${sentiment}`];
  const span = spanOf(explanation);
  const reasons = reasonsOf(explanation, sentiment);
  const named = { x: (at) => axis("viewpoint", explanation.viewpoints, at), y: (at) => axis("aspect", explanation.aspects, at) };
  const cells = rows.map((row, x) =>
    row.map((value, y) => cellOf({ value, x, y, span, reasons, sentiment, touch, named })),
  );
  const columns = rows[0]?.length ?? 0;
  const table = h(
    "table",
    { role: "grid", class: `heat ${sentiment}`, "aria-label": `${CAPTION[sentiment]}: viewpoints by aspects` },
    h("caption", null, sign(sentiment), CAPTION[sentiment]),
    h("thead", null, h("tr", null, h("td", null), headings(columns, named.y))),
    h(
      "tbody",
      null,
      cells.map((row, x) => h("tr", null, head("row", "viewpoint ", named.x(x)), row)),
    ),
  );
  table.addEventListener("keydown", (event) => walk(event, cells));
  table.addEventListener("pointerleave", touch.leave);
  table.addEventListener("focusout", (event) => table.contains(event.relatedTarget) || touch.leave());
  return {
    node: h("div", { class: "map" }, table),
    light: ([x, y]) => each(cells, (cell, row, column) => cell.classList.toggle("lit", row === x && column === y)),
    hold: ([x, y]) =>
      each(cells, (cell, row, column) => {
        const held = row === x && column === y;
        cell.setAttribute("aria-selected", String(held));
        cell.tabIndex = held ? 0 : -1;
      }),
  };
}

const headings = (columns, called) => Array.from({ length: columns }, (_, y) => head("col", "aspect ", called(y)));
const head = (scope, kind, { short, whole }) => h("th", { scope, title: whole }, unseen(kind), name(short));
const unseen = (words) => h("span", { class: "unseen" }, words);

function each(cells, act) {
  cells.forEach((row, x) => row.forEach((cell, y) => act(cell, x, y)));
}

function cellOf({ value, x, y, span, reasons, sentiment, touch, named }) {
  const reason = reasons.get(`${x}.${y}`);
  const direction = sentiment === "positive" ? "for" : "against";
  const listed = reason ? `, reason ${reason}` : "";
  const words = `${named.x(x).whole}, ${named.y(y).whole}: ${number(value)} ${direction}${listed}`;
  const share = span[1] > span[0] ? (value - span[0]) / (span[1] - span[0]) : 0;
  const act = () => touch.light([x, y]);
  return h(
    "td",
    {
      class: reason ? "listed" : null,
      "aria-label": words,
      title: words,
      tabindex: -1,
      css: { "--share": share.toFixed(3) },
      on: {
        pointerenter: act,
        focus: act,
        click: () => touch.pin([x, y]),
        keydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          touch.pin([x, y]);
        },
      },
    },
    number(value),
  );
}

function walk(event, cells) {
  const step = STEPS[event.key];
  if (!step && event.key !== "Home" && event.key !== "End") return;
  event.preventDefault();
  const x = cells.findIndex((row) => row.includes(event.target));
  if (x < 0) return;
  const y = cells[x].indexOf(event.target);
  const last = cells[x].length - 1;
  const row = step ? Math.max(0, Math.min(x + step[0], cells.length - 1)) : x;
  const column = step ? Math.max(0, Math.min(y + step[1], last)) : event.key === "Home" ? 0 : last;
  cells[row][column].focus();
}

function spanOf(explanation) {
  const values = [...explanation.coupling_positive, ...explanation.coupling_negative].flat().filter(Number.isFinite);
  return values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
}

function reasonsOf(explanation, sentiment) {
  const found = new Map();
  explanation.units.forEach((unit, at) => {
    if (unit.sentiment === sentiment) found.set(`${unit.viewpoint.index - 1}.${unit.aspect.index - 1}`, at + 1);
  });
  return found;
}

/** All viewpoints (aspects) of the pair; the lit one stands out. */
export function sideColumn(kind, sides, skip) {
  const blocks = sides.map((side) =>
    h("li", { class: "side-card", "data-index": side.index }, sideBlock(side, kind, { skip, byPlace: true })),
  );
  const node = h(
    "section",
    { class: `side-column ${kind}s` },
    h("h3", null, capital(SIDE_TITLE[kind])),
    blocks.length ? h("ul", null, blocks) : h("p", { class: "soft" }, `No ${kind} was read from the reviews.`),
  );
  const light = (place) =>
    sides.forEach((side, at) => {
      const lit = side.index === place + 1;
      blocks[at].classList.toggle("lit", lit);
      if (lit) blocks[at].setAttribute("aria-current", "true");
      else blocks[at].removeAttribute("aria-current");
    });
  return { node, light };
}
