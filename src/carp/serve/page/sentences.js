// Sentences of reviews with their phrases marked, and the viewpoints and aspects they stand for.

import { h, name } from "./dom.js";
import { MARK_TITLE, SIGN, capital, doubt, numbered, percent, plain, sideName } from "./words.js";
import { linkTo } from "./state.js";
import { thingName } from "./titles.js";

export const SIDE_TITLE = { viewpoint: "What the person cares about", aspect: "What people say of the thing" };

/** A text cut where its marks change: [words, set of kinds], in order. Marks count characters, not UTF-16 units. */
export function cut(text, marks) {
  const letters = Array.from(text);
  const kinds = letters.map(() => new Set());
  for (const mark of marks ?? []) {
    for (let at = Math.max(mark.start, 0); at < Math.min(mark.end, letters.length); at += 1) kinds[at].add(mark.kind);
  }
  for (const set of kinds) if (set.has("shared")) set.delete("own");
  leaveSpacesBetween(letters, kinds);
  const parts = [];
  letters.forEach((letter, at) => {
    const key = [...kinds[at]].sort().join(" ");
    const last = parts.at(-1);
    if (last?.key === key) last.words += letter;
    else parts.push({ words: letter, key, kinds: key ? key.split(" ") : [] });
  });
  return parts;
}

// A space belongs to a phrase only where the words on both sides do.
function leaveSpacesBetween(letters, kinds) {
  const blank = letters.map((letter) => /\s/.test(letter));
  for (let start = 0; start < letters.length; start += 1) {
    if (!blank[start]) continue;
    let end = start;
    while (end < letters.length && blank[end]) end += 1;
    const before = kinds[start - 1] ?? new Set();
    const after = kinds[end] ?? new Set();
    for (let at = start; at < end; at += 1) {
      kinds[at] = new Set([...kinds[at]].filter((kind) => before.has(kind) && after.has(kind)));
    }
    start = end - 1;
  }
}

/** The text as nodes; where a mark carries a sentiment its sign stands behind it, for eyes that see no colour. */
export function marked(text, marks) {
  return cut(text, marks).map(({ words, kinds }) => {
    if (!kinds.length) return words;
    const signs = kinds.filter((kind) => kind in SIGN);
    return [
      h("mark", { class: kinds.join(" "), title: kinds.map((kind) => MARK_TITLE[kind]).join("; ") }, words),
      signs.map((kind) => h("sup", { class: kind }, SIGN[kind])),
    ];
  });
}

export function legend(...kinds) {
  const example = (kind) => [h("mark", { class: kind }, "words"), SIGN[kind] && h("sup", { class: kind }, SIGN[kind])];
  const rows = kinds.map((kind) => h("li", null, example(kind), ` ${MARK_TITLE[kind]}`));
  return h("ul", { class: "legend", "aria-label": "What the marks mean" }, rows);
}

/** One sentence and where it comes from; `skip` names what the reader knows already: "user" or "item". */
export function quote(sentence, { skip, before } = {}) {
  const words = sentence.text?.trim() ? marked(sentence.text, sentence.marks) : h("i", null, "an empty sentence");
  const source = [];
  if (skip !== "user") {
    source.push(sentence.user ? h("a", { href: linkTo("person", sentence) }, name(sentence.user)) : "your own words");
  }
  if (skip !== "item" && sentence.item) {
    source.push(["about ", h("a", { href: linkTo("thing", { item: sentence.item }) }, thingName(sentence.item))]);
  }
  if (typeof sentence.rating === "number") source.push(`rated ${plain(sentence.rating)}`);
  const caption = source.map((part, at) => [at ? " · " : "", part]);
  return h(
    "figure",
    { class: "quote" },
    before,
    h("blockquote", { dir: "auto" }, words),
    source.length && h("figcaption", null, caption),
  );
}

/** Whether a viewpoint or an aspect has a name of its own, the same for everybody, and not just a number. */
export const isNamed = (side, kind) => Boolean(side.name) && side.name !== numbered(side, kind);

/** What people (one person) write about, by its name; `remark` says how often. */
export function namedBlock(side, remark, { skip, shown = 2 } = {}) {
  const quotes = (side.sentences ?? []).slice(0, shown).map((sentence) => quote(marksAs("about", sentence), { skip }));
  const title = h(
    "h3",
    { class: "side-title" },
    name(capital(side.name)),
    h("span", { class: "soft side-tag" }, remark),
  );
  return [title, quotes.length ? quotes : h("p", { class: "soft" }, "No sentence says it clearly.")];
}

/** The sentence with its marks said to be of this kind. */
export const marksAs = (kind, sentence) => ({
  ...sentence,
  marks: (sentence.marks ?? []).map((mark) => ({ ...mark, kind })),
});

/** A viewpoint or an aspect: its name, its best sentences, its further phrases. */
export function sideBlock(side, kind, { skip, shown = 2, level = "h4", titled = true, byPlace = false } = {}) {
  const called = byPlace ? side.name || numbered(side, kind) : sideName(side, kind);
  const tags = [called !== numbered(side, kind) && numbered(side, kind), weight(side)].filter(Boolean);
  const title =
    titled &&
    h(
      level,
      { class: "side-title" },
      name(capital(called)),
      tags.length > 0 && h("span", { class: "soft side-tag" }, tags.join(" · ")),
    );
  const sentences = (side.sentences ?? []).slice(0, shown);
  const quotes = sentences.length
    ? sentences.map((sentence) => quote(sentence, { skip }))
    : h("p", { class: "soft" }, `No sentence stands for this ${kind}.`);
  const doubtful = doubt(side);
  return [title, quotes, doubtful && h("p", { class: "soft small doubt" }, doubtful), furtherPhrases(side, sentences)];
}

function weight(side) {
  return typeof side.weight === "number" ? `${percent(side.weight)} of what counts` : "";
}

function furtherPhrases(side, sentences) {
  const seen = sentences.map((sentence) => sentence.text.toLowerCase());
  const further = (side.phrases ?? []).filter((phrase) => !seen.some((text) => text.includes(phrase.toLowerCase())));
  if (!further.length) return null;
  const rows = further.slice(0, 12).map((phrase) => h("li", null, name(phrase)));
  return h("details", { class: "further" }, h("summary", null, "Other phrases"), h("ul", null, rows));
}
