// The words and numbers that say what lengths and colours show.

export const SIGN = { positive: "+", negative: "−" };
export const SPEAKS = { positive: "speaks for it", negative: "speaks against it" };
export const MARK_TITLE = {
  own: "typical of this reason alone",
  shared: "typical of several reasons",
  positive: "matches a reason for it",
  negative: "matches a reason against it",
  matched: "also counted in the reasons",
  counts: "count most here",
  about: "are about this",
};
export const TURNED_ROUND = {
  positive: "Its degree is below zero, so it takes away from the rating.",
  negative: "Its degree is below zero, so it adds to the rating.",
};

export const known = (value) => typeof value === "number" && Number.isFinite(value);

/** A number as people read it; what is missing is unknown. */
export function number(value, digits = 2) {
  return known(value) ? value.toFixed(digits).replace("-", "−") : "unknown";
}

/** An amount with its sign, as "+0.43"; what rounds to nothing has none. */
export function signed(value, digits = 2) {
  const shown = number(value, digits);
  if (!known(value) || Number(value.toFixed(digits)) === 0) return known(value) ? number(0, digits) : shown;
  return value > 0 ? `+${shown}` : shown;
}

/** The sentiment of an amount: none where it is nothing. */
export const toneOf = (amount) => (amount > 0 ? "positive" : amount < 0 ? "negative" : null);

/** A share as per cent, as "16 %". */
export const percent = (share) => (known(share) ? `${Math.round(100 * share)} %` : "unknown");

export const count = (value) => (known(value) ? value.toLocaleString("en") : "unknown");
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);
export const plain = (value) => (known(value) ? String(+value.toFixed(2)).replace("-", "−") : "unknown");

export function likelihood(length) {
  if (!known(length)) return "unknown";
  return step(length, [
    [0.2, "very unlikely"],
    [0.4, "unlikely"],
    [0.6, "as likely as not"],
    [0.8, "likely"],
    [Infinity, "very likely"],
  ]);
}

export function extent(relativeDegree) {
  if (!known(relativeDegree)) return "unknown";
  return step(Math.abs(relativeDegree), [
    [0.1, "hardly at all"],
    [0.3, "a little"],
    [0.6, "clearly"],
    [0.85, "strongly"],
    [Infinity, "very strongly"],
  ]);
}

/** How much one reason counts beside the strongest one. */
export function counting(share) {
  if (!known(share)) return "";
  return step(share, [
    [0.25, "counts a little"],
    [0.6, "counts less than the strongest"],
    [0.95, "counts nearly as much as the strongest"],
    [Infinity, "counts most"],
  ]);
}

const step = (value, steps) => steps.find(([limit]) => value < limit)[1];

/** A difference in words: "0.42 above the average". */
export function against(difference, what) {
  if (!known(difference)) return "";
  if (Math.abs(difference) < 0.005) return `the same as ${what}`;
  return `${number(Math.abs(difference))} ${difference > 0 ? "above" : "below"} ${what}`;
}

const SAYS = { positive: ["complains", "complain"], negative: ["praises", "praise"] };

/** Where sentences say the opposite of what they are shown as, a sentence that says so; nothing otherwise. */
export function doubt({ sentiment, opposed, sentences = [] }) {
  if (!opposed || !(sentiment in SAYS)) return "";
  const [one, many] = SAYS[sentiment];
  let who = `the sentences ${many}`;
  if (sentences.length <= 1) who = `the sentence ${one}`;
  else if (opposed < sentences.length) who = opposed === 1 ? `one of the sentences ${one}` : `${opposed} of the sentences ${many}`;
  return `The model counts this ${sentiment === "positive" ? "for" : "against"} it, though ${who}.`;
}

export const person = (user) => user ?? "a newcomer";

/** What a viewpoint or an aspect is called: by its best words, which say more than its number. */
export function sideName(side, kind) {
  const [phrase] = side.phrases ?? [];
  return numbered(side, kind) === side.name || !side.name ? phrase || numbered(side, kind) : side.name;
}

/** Its place among its kind, as the heat maps count. */
export const numbered = (side, kind) => `${kind} ${side.index}`;
