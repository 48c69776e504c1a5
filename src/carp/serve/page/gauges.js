// The rating scale, the two capsules and the counts of ratings, each with the words that say the same.

import { h, svg } from "./dom.js";
import { SIGN, TURNED_ROUND, against, capital, count, extent, known, likelihood, number, plain } from "./words.js";

const SHAPES = {
  predicted: (x, y) => svg("circle", { class: "predicted-sign", cx: x, cy: y, r: 8 }),
  actual: (x, y) => svg("circle", { class: "actual-sign", cx: x, cy: y, r: 6 }),
  baseline: (x, y) =>
    svg("rect", { class: "baseline-sign", x, y, width: 10, height: 10, transform: "translate(-5 -5)" }),
  average: (x, y) =>
    svg("rect", { class: "average-sign", x, y, width: 3, height: 20, transform: "translate(-1.5 -10)" }),
};

const icon = (kind) => svg("svg", { class: "icon", "aria-hidden": "true", width: 18, height: 20 }, SHAPES[kind](9, 10));

/** What a prediction can be held against; values nobody knows are left out. */
export function factsOf(explanation) {
  const { rating, item_mean: average, target, texts_move: moved } = explanation;
  const baseline = known(moved) ? rating - moved : explanation.baseline;
  return [
    { kind: "average", label: "Its average", value: average, remark: "of all its ratings" },
    {
      kind: "baseline",
      label: "By averages alone",
      value: baseline,
      remark: movedWords(rating - baseline),
    },
    {
      kind: "actual",
      label: "Really given",
      value: target?.rating,
      remark: target && `predicted is ${against(rating - target.rating, "that")}`,
    },
  ].filter((fact) => known(fact.value));
}

const movedWords = (step) =>
  Math.abs(step) < 0.005
    ? "what was written does not move it"
    : `what was written moves it ${number(Math.abs(step))} ${step > 0 ? "up" : "down"}`;

/** Predicted rating, scale and comparison: the answer in one look. */
export function ratingBlock(explanation, range) {
  const [low, high] = range;
  const facts = factsOf(explanation);
  return h(
    "div",
    { class: "rating" },
    h(
      "p",
      { class: "verdict" },
      h("span", { class: "figure" }, number(explanation.rating)),
      h(
        "span",
        { class: "verdict-words" },
        icon("predicted"),
        "predicted, ",
        known(explanation.item_mean) ? h("strong", null, againstAverage(explanation)) : "no average to hold it against",
        h("span", { class: "soft" }, ` on a scale from ${plain(low)} to ${plain(high)}`),
      ),
    ),
    scale([{ kind: "predicted", value: explanation.rating }, ...facts], range, { band: explanation }),
    rangeLine(explanation),
    facts.length > 0 && h("dl", { class: "facts" }, facts.map(factRow)),
  );
}

/** How sure the prediction is, in words; nothing where nobody knows. */
export function rangeLine({ low, high }) {
  if (!known(low) || !known(high)) return null;
  return h(
    "p",
    { class: "range", "data-part": "range", tabindex: -1 },
    h("span", { class: "range-sign", "aria-hidden": "true" }),
    h("strong", null, `Likely between ${number(low, 1)} and ${number(high, 1)}`),
    h("span", { class: "soft" }, ": of ten such predictions, nine come true within the shaded range."),
  );
}

export const againstAverage = ({ rating, item_mean: average }) => against(rating - average, "its average");

const factRow = ({ kind, label, value, remark }) =>
  h(
    "div",
    null,
    h("dt", null, icon(kind), label),
    h("dd", null, h("strong", null, number(value)), " ", h("span", { class: "soft" }, remark)),
  );

export function scale(facts, [low, high], { small = false, band } = {}) {
  const place = (value) => `${(high > low ? Math.max(0, Math.min((value - low) / (high - low), 1)) : 0.5) * 100}%`;
  const labels = { predicted: "predicted", actual: "really given", baseline: "by averages alone", average: "average" };
  const said = facts.map(({ kind, value }) => `${labels[kind]} ${number(value)}`).join(", ");
  const middle = small ? 12 : 14;
  const ticks = stepsOf(low, high).map((step) => [
    svg("line", { class: "tick", x1: place(step), x2: place(step), y1: middle + 9, y2: middle + 14 }),
    svg("text", { x: place(step), y: middle + 29, "text-anchor": "middle" }, plain(step)),
  ]);
  // Drawn last, the prediction is never hidden by what it is compared with.
  const shapes = [...facts].reverse().map(({ kind, value }) => SHAPES[kind](place(value), middle));
  return svg(
    "svg",
    { class: small ? "scale small" : "scale", role: "img", "aria-label": `Rating scale: ${said}` },
    svg("line", { class: "rail", x1: 0, x2: "100%", y1: middle, y2: middle }),
    known(band?.low) &&
      known(band?.high) &&
      svg("line", { class: "band", x1: place(band.low), x2: place(band.high), y1: middle, y2: middle }),
    small ? null : ticks,
    shapes,
  );
}

// At most ten steps of a round width between the ends, so that their numbers stay apart on a phone.
function stepsOf(low, high) {
  const steps = new Set([low, high]);
  const width = [1, 2, 5, 10, 20, 50, 100].find((one) => high - low <= 10 * one);
  if (width === undefined) return [...steps];
  const first = (high - low) % width === 0 ? low : Math.ceil(low / width) * width;
  for (let step = first; step < high; step += width) {
    if (step - low > width / 2 && high - step > width / 2) steps.add(step);
  }
  return [...steps];
}

/** The sign of a sentiment, for the eye: the words beside it say the same. */
export const sign = (sentiment) => h("span", { class: "sign", "aria-hidden": "true" }, SIGN[sentiment]);

/** The two capsules as bars: how likely the sentiment is, and how strong. */
export function capsules(explanation) {
  if (!explanation.positive || !explanation.negative) return null;
  return h("div", { class: "capsules" }, capsule("positive", explanation), capsule("negative", explanation));
}

function capsule(sentiment, explanation) {
  const { length, degree, relative_degree: relative } = explanation[sentiment];
  const feeling = sentiment === "positive" ? "to like it" : "to dislike it";
  const longer = explanation.prevailing === sentiment;
  return h(
    "div",
    { class: `capsule ${sentiment}` },
    h(
      "h3",
      null,
      sign(sentiment),
      `${capital(likelihood(length))} ${feeling}`,
      longer && h("span", { class: "longer" }, "the stronger feeling"),
    ),
    gauge("How likely", length, number(length), `length ${number(length, 3)}`, "length"),
    signedGauge("How strongly", relative, capital(extent(relative)), `degree ${number(degree, 3)}`),
    degree < 0 && h("p", { class: "soft small" }, TURNED_ROUND[sentiment]),
  );
}

export function gauge(label, share, words, title, kind = "length") {
  const size = known(share) ? Math.max(0, Math.min(share, 1)) : 0;
  return h(
    "div",
    { class: "gauge", title },
    h("span", { class: "gauge-label" }, label),
    h("b", null, words),
    h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, h("span", { css: { width: `${size * 100}%` } })),
  );
}

/** A gauge with a zero line in its middle: what is below zero stands to the left of it. */
function signedGauge(label, share, words, title) {
  return h(
    "div",
    { class: "gauge", title },
    h("span", { class: "gauge-label" }, label),
    h("b", null, words),
    zeroBar(share, "degree"),
  );
}

/** The bar of a share between −1 and 1; the words beside it say the same. */
export function zeroBar(share, kind = "signed") {
  const size = known(share) ? Math.min(Math.abs(share), 1) * 50 : 0;
  const place = { left: `${share < 0 ? 50 - size : 50}%`, width: `${size}%` };
  return h(
    "span",
    { class: `bar zero ${kind} ${share < 0 ? "below" : "above"}`, "aria-hidden": "true" },
    h("span", { css: place }),
  );
}

/** How often each rating was given. */
export function histogram(ratings, range) {
  const rows = Object.entries(ratings ?? {}).sort(([one], [other]) => Number(other) - Number(one));
  if (!rows.length) return null;
  const most = Math.max(...rows.map(([, times]) => times), 1);
  return h(
    "table",
    { class: "histogram" },
    h("caption", null, `Ratings given, on a scale from ${plain(range[0])} to ${plain(range[1])}`),
    h(
      "tbody",
      null,
      rows.map(([rating, times]) =>
        h(
          "tr",
          null,
          h("th", { scope: "row" }, plain(Number(rating))),
          h("td", { class: "wide" }, bar(times / most)),
          h("td", null, count(times)),
        ),
      ),
    ),
  );
}

const bar = (share) =>
  h("span", { class: "bar plain", "aria-hidden": "true" }, h("span", { css: { width: `${share * 100}%` } }));
