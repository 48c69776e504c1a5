// An explanation on the page: how the person is likely to feel, the reasons, the real review, every pair.

import { h } from "./dom.js";
import { capsules, ratingBlock, sign } from "./gauges.js";
import { heatMaps, sideColumn } from "./heatmap.js";
import { SIDE_TITLE, legend, marked, sideBlock } from "./sentences.js";
import { sumTable, summedSections } from "./summed.js";
import { SPEAKS, capital, counting, number, numbered, plain } from "./words.js";

/** The whole of it, in the order in which people ask. */
export function explanationBlocks(explanation, { range, cell, pinned }) {
  const told = completed(explanation);
  const summed = told.parts?.length > 0;
  return [
    h(
      "section",
      { class: "answer card", "aria-label": "Predicted rating" },
      h("h2", { class: "unseen" }, "The predicted rating"),
      h("div", null, ratingBlock(told, range), h("p", { class: "summary", dir: "auto" }, told.told?.summary), notes(told.notes)),
      summed ? sumTable(told) : capsules(told),
    ),
    summed && summedSections(told, told.target && heldOut(told)),
    told.units.length > 0 && reasonsSection(told),
    !summed && told.units.length === 0 && told.target && heldOut(told),
    !summed && !told.little_known && (told.positive && told.coupling_positive?.length ? meeting(told, { cell, pinned }) : sidesOnly(told)),
  ];
}

/** An explanation in which every list is there; a model without capsules leaves some out. */
export function completed(explanation) {
  const units = (!explanation.little_known && explanation.units) || []; // where little is known, no reason is counted
  const gathered = (kind) => {
    const found = new Map(units.map((unit) => [unit[kind].index, unit[kind]]));
    return [...found.values()].sort((one, other) => one.index - other.index);
  };
  return {
    ...explanation,
    units,
    notes: explanation.notes ?? [],
    viewpoints: explanation.viewpoints?.length ? explanation.viewpoints : gathered("viewpoint"),
    aspects: explanation.aspects?.length ? explanation.aspects : gathered("aspect"),
  };
}

export function notes(list) {
  if (!list?.length) return null;
  const rows = list.map((note) => h("li", { dir: "auto" }, capital(note)));
  return h("aside", { class: "notes", "aria-label": "Notes" }, h("strong", null, "Good to know"), h("ul", null, rows));
}

function reasonsSection(explanation) {
  const { target, user } = explanation;
  return h(
    "section",
    { class: target ? "why beside" : "why" },
    h(
      "div",
      { class: "reasons" },
      h("h2", null, "Reasons"),
      h("p", { class: "soft lead" }, "Each is something the person cares about that met something people say."),
      legend("own", "shared"),
      explanation.units.map((unit, at) =>
        reasonCard(unit, explanation.told?.units?.[at], at + 1, user, strongestOf(explanation.units, unit.sentiment)),
      ),
    ),
    target && heldOut(explanation),
  );
}

const strongestOf = (units, sentiment) =>
  Math.max(...units.filter((unit) => unit.sentiment === sentiment).map((unit) => unit[sentiment]));

function reasonCard(unit, said, place, user, strongest) {
  const side = (kind) =>
    h(
      "div",
      { class: "side" },
      h("p", { class: "soft side-label" }, `${SIDE_TITLE[kind]} · ${unit[kind].name || numbered(unit[kind], kind)}`),
      sideBlock(unit[kind], kind, { skip: kind === "viewpoint" ? user && "user" : "item", titled: false }),
    );
  return h(
    "article",
    { class: `card reason ${unit.sentiment}` },
    h(
      "header",
      null,
      sign(unit.sentiment),
      h("h3", { dir: "auto" }, `Reason ${place} ${SPEAKS[unit.sentiment]}${said ? `: ${said.title}` : ""}`),
      h("p", { class: "soft coupling" }, counting(unit[unit.sentiment] / strongest)),
    ),
    h("div", { class: "pair" }, side("viewpoint"), side("aspect")),
  );
}

function heldOut({ target, positive, little_known: little }) {
  const marks = little ? [] : target.marks;
  const words = target.text.trim() ? marked(target.text, marks) : h("i", null, "The review has no words.");
  return h(
    "aside",
    { class: "held-out", "aria-label": "What they really wrote" },
    h("h2", null, "What they really wrote"),
    h("p", { class: "soft lead" }, `Hidden from the model. It came with a rating of ${plain(target.rating)}.`),
    h("figure", { class: "card wrote" }, h("blockquote", { dir: "auto" }, words)),
    !little && legend(...(positive ? ["positive", "negative"] : ["matched"])),
  );
}

const CELLS_SAY =
  "For the curious: rows are what the person cares about, columns what people say of the thing. The stronger its colour, " +
  "the more the two count together. Touch a cell, or walk with the arrow keys, to light up its sentences. A framed cell is " +
  "a reason above.";

function meeting(explanation, { cell, pinned }) {
  const maps = heatMaps(explanation, { cell, pinned, skipUser: explanation.user ? "user" : null });
  return everyPair("Every viewpoint with every aspect", CELLS_SAY, maps);
}

function everyPair(title, lead, ...parts) {
  return h("section", { class: "every-pair" }, h("h2", null, title), h("p", { class: "soft lead" }, lead), ...parts);
}

/** For models that read viewpoints and aspects without weighing every pair of them. */
function sidesOnly(explanation) {
  if (!explanation.viewpoints.length && !explanation.aspects.length) return null;
  const viewpoints = sideColumn("viewpoint", explanation.viewpoints, explanation.user ? "user" : null);
  const aspects = sideColumn("aspect", explanation.aspects, "item");
  return everyPair(
    "What the model read",
    explanation.meaning || "This model weighs no viewpoint against an aspect; these sentences count most.",
    legend("own", "shared"),
    h("div", { class: "sides only" }, viewpoints.node, aspects.node),
  );
}

/** The answer in one sentence, for those who hear the page. */
export function spoken(explanation) {
  const { rating, item_mean: average } = explanation;
  const beside = typeof average === "number" ? `, the average of the thing is ${number(average)}` : "";
  const why = explanation.told?.summary ? ` ${explanation.told.summary}` : "";
  return `Predicted rating ${number(rating)}${beside}.${why}`;
}
