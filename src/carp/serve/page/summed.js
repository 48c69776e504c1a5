// The reasons of a model that is a sum: what speaks for and against, the sum itself, earlier cases, who met whom.
// The words come from the service, which says the same in the terminal and on its pages.

import { h, help, name } from "./dom.js";
import { sign, zeroBar } from "./gauges.js";
import { legend, marksAs, quote } from "./sentences.js";
import { number, signed, toneOf } from "./words.js";

const MEETINGS_SAY =
  "Rows: what this person writes about. Columns: what people write about this thing. Each cell is what the two add to " +
  "the rating or take from it; a dot is next to nothing.";

/** The rating as a sum: its lines add up to it as it is shown. */
export function sumTable({ told, rating }) {
  const largest = Math.max(...told.sum.filter(({ kind }) => kind !== "mean").map(({ amount }) => Math.abs(amount)), 0);
  return h(
    "table",
    { class: "sum" },
    h("caption", null, "How the rating comes about", help("Begin with the mean of all ratings and add line by line.")),
    h(
      "tbody",
      null,
      told.sum.map((row) => sumRow(row, largest, told.digits)),
    ),
    h("tfoot", null, h("tr", null, sumCells("predicted", null, number(rating, told.digits)))),
  );
}

function sumRow({ kind, name: called, amount }, largest, digits) {
  if (kind === "mean") return h("tr", null, sumCells(called, null, number(amount, digits)));
  const bar = zeroBar(largest > 0 ? amount / largest : 0);
  return h("tr", { class: toneOf(amount) }, sumCells(called, bar, signed(amount, digits)));
}

const sumCells = (called, bar, amount) => [
  h("th", { scope: "row" }, name(called)),
  h("td", { class: "drawn" }, bar),
  h("td", { class: "amount" }, amount),
];

/** What makes two sums differ, line by line, the largest difference first. The lines add up to the difference of the
 * two ratings as they are shown, so what rounding leaves is in the last one. */
export function differences(before, after, most = 7) {
  const amounts = ({ parts }) => new Map(parts.map(({ name: called, amount }) => [called, amount]));
  const [one, other] = [amounts(before), amounts(after)];
  const total = hundredths(after.rating) - hundredths(before.rating);
  const rows = [...new Set([...one.keys(), ...other.keys()])]
    .map((called) => ({ called, amount: hundredths((other.get(called) ?? 0) - (one.get(called) ?? 0)) }))
    .filter(({ amount }) => amount !== 0)
    .sort((a, b) => Math.abs(b.amount) - Math.abs(a.amount))
    .slice(0, most);
  const rest = total - rows.reduce((sum, { amount }) => sum + amount, 0);
  const all = rest ? [...rows, { called: "smaller differences", amount: rest }] : rows;
  return { total: total / 100, rows: all.map(({ called, amount }) => ({ called, amount: amount / 100 })) };
}

const hundredths = (value) => Math.round(value * 100);

/** The same as a table. */
export function differenceTable({ rows, total }, { caption, said, digits = 2 }) {
  const largest = Math.max(...rows.map(({ amount }) => Math.abs(amount)), 0);
  return h(
    "table",
    { class: "sum difference" },
    h("caption", null, caption, help(said)),
    h(
      "tbody",
      null,
      rows.map(({ called, amount }) =>
        h(
          "tr",
          { class: toneOf(amount) },
          sumCells(called, zeroBar(largest > 0 ? amount / largest : 0), signed(amount, digits)),
        ),
      ),
    ),
    h("tfoot", null, h("tr", null, sumCells("in all", null, signed(total, digits)))),
  );
}

/** All that follows the answer; the real review stands beside the findings. */
export function summedSections({ findings, told, user }, heldOut) {
  return [
    told.findings.length ? foundSection(findings, told, user, heldOut) : heldOut,
    told.cases.length > 0 && casesSection(told.cases),
    told.meetings && meetingsSection(told.meetings, told.digits + 1),
  ];
}

function foundSection(findings, told, user, heldOut) {
  return h(
    "section",
    { class: heldOut ? "why beside" : "why" },
    h(
      "div",
      { class: "reasons" },
      h("h2", null, "What speaks for it and what against it"),
      legend("counts"),
      told.findings.map((said, at) => findingCard(findings[at], said, told.digits, user)),
    ),
    heldOut,
  );
}

function findingCard(finding, said, digits, user) {
  const tone = toneOf(said.amount);
  return h(
    "article",
    { class: `card reason finding ${tone ?? ""}` },
    h(
      "header",
      null,
      tone && sign(tone),
      h("h3", null, name(finding.aspect)),
      h("b", { class: "amount" }, signed(said.amount, digits)),
    ),
    h("p", { class: "finding-words", dir: "auto" }, said.words),
    quotes(finding.sentences, "item"),
    said.own && h("p", { class: "soft side-label own-words", dir: "auto" }, said.own),
    said.own && quotes(finding.own_sentences, user && "user"),
    said.shares && h("p", { class: "soft small shares" }, said.shares),
  );
}

/** The strongest finding that speaks for (against) it, for a comparison. */
export function strongestFinding({ findings, told }, tone) {
  const at = told.findings.findIndex(({ amount }) => toneOf(amount) === tone);
  if (at < 0) return null;
  return h(
    "section",
    { class: `strongest ${tone}` },
    h("h3", null, sign(tone), name(findings[at].aspect), " ", signed(told.findings[at].amount, told.digits)),
    h("p", { class: "finding-words", dir: "auto" }, told.findings[at].words),
    quotes(findings[at].sentences.slice(0, 1), "item"),
  );
}

const quotes = (sentences, skip) =>
  sentences.map((sentence) => quote(marksAs("counts", sentence), { skip }));

function casesSection(cases) {
  const rows = cases.map((words) => h("li", { dir: "auto" }, words));
  return h("section", null, h("h2", null, "Rated before"), h("ul", { class: "cases" }, rows));
}

function meetingsSection({ viewpoints, aspects, amounts }, digits) {
  const largest = Math.max(...amounts.flat().map(Math.abs));
  const rows = shortNames(viewpoints);
  return h(
    "section",
    { class: "every-pair" },
    h("h2", null, "Where the two meet"),
    h("p", { class: "soft lead" }, MEETINGS_SAY),
    h(
      "div",
      { class: "map card", tabindex: 0, role: "region", "aria-label": "Where the two meet" },
      h(
        "table",
        { class: "meetings" },
        h(
          "thead",
          null,
          h("tr", null, h("td", null), shortNames(aspects).map((called, at) => head("col", called, aspects[at]))),
        ),
        h(
          "tbody",
          null,
          amounts.map((row, at) =>
            h("tr", null, head("row", rows[at], viewpoints[at]), row.map((amount) => amountCell(amount, largest, digits))),
          ),
        ),
      ),
    ),
  );
}

const head = (scope, called, whole) => h("th", { scope, title: whole }, name(called));

function amountCell(amount, largest, digits) {
  const shown = signed(amount, digits);
  if (!/^[+−]/.test(shown)) return h("td", { class: "none" }, "·");
  return h("td", { class: toneOf(amount), css: { "--share": (Math.abs(amount) / largest).toFixed(3) } }, shown);
}

/** The first word of each name where that keeps them apart, the whole names otherwise. */
function shortNames(names) {
  const short = names.map((whole) => whole.split(",")[0].trim() || whole);
  return short.map((one, at) => (short.filter((other) => other === one).length === 1 ? one : names[at]));
}
