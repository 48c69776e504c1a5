// Two things side by side, for one person.

import { get } from "../api.js";
import { h } from "../dom.js";
import { completed } from "../explanation.js";
import { againstAverage, capsules, rangeLine, scale, sign } from "../gauges.js";
import { sideBlock } from "../sentences.js";
import { linkTo } from "../state.js";
import { thumbnail } from "../pictures.js";
import { differenceTable, differences, strongestFinding } from "../summed.js";
import { called, thingName } from "../titles.js";
import { SPEAKS, known, number, plain } from "../words.js";
import { jumps, sentence } from "./question.js";

const SAME = 0.05; // of the scale: what is closer is about the same

export const compare = {
  label: "Compare",
  needs: { user: "person", item: "first thing", other: "second thing" },
  title: (state) => (state.item && state.other ? `${called(state.item)} or ${called(state.other)}?` : "Compare two things"),
  question: (state, go) =>
    sentence(state, go, [
      "Would ",
      { user: "Person" },
      " prefer ",
      { item: "First thing" },
      " or ",
      { other: "Second thing" },
      "?",
    ]),
  load: ({ user, item, other }, about, signal) => get("compare", { user, first: item, second: other }, { signal }),

  show({ items, verdict }, state, { about }) {
    const best = Math.max(...items.map((row) => row.rating));
    const apart =
      best - Math.min(...items.map((row) => row.rating)) >= SAME * (about.rating_range[1] - about.rating_range[0]);
    return {
      said: verdict,
      nodes: [
        h("p", { class: "balance", dir: "auto" }, verdict),
        whatDiffers(items),
        h(
          "div",
          { class: "two" },
          items.map((row) => column(row, apart && row.rating === best, state, about)),
        ),
        jumps([[linkTo("compare", { user: state.user, item: state.other, other: state.item }), "Swap the two"]]),
      ],
    };
  },
};

/** For ratings that are sums: what sets the two apart, line by line. */
function whatDiffers([first, second]) {
  if (!first.explanation?.parts?.length || !second.explanation?.parts?.length) return null;
  const found = differences(second.explanation, first.explanation);
  if (!found.rows.length) return null;
  const [better, worse] = [called(first.item), called(second.item)];
  return h(
    "section",
    { class: "card what-differs" },
    differenceTable(found, {
      caption: "What makes the difference",
      said: `Above zero speaks for ${better}, below zero for ${worse}.`,
    }),
  );
}

function column(row, best, state, about) {
  const told = row.explanation && completed(row.explanation);
  const facts = [{ kind: "predicted", value: row.rating }];
  if (known(row.item_mean)) facts.push({ kind: "average", value: row.item_mean });
  const [low, high] = about.rating_range;
  return h(
    "article",
    { class: "card compared" },
    h(
      "div",
      { class: "named" },
      thumbnail(row.facts, called(row.item)),
      h("h2", null, thingName(row.item), best && h("span", { class: "longer" }, "the higher")),
    ),
    h(
      "p",
      { class: "verdict" },
      h("span", { class: "figure medium" }, number(row.rating)),
      h(
        "span",
        { class: "soft" },
        [
          known(row.item_mean) && `${againstAverage(row)} of ${number(row.item_mean)}, `,
          `on a scale from ${plain(low)} to ${plain(high)}`,
        ]
          .filter(Boolean)
          .join(""),
      ),
    ),
    scale(facts, about.rating_range, { band: row }),
    rangeLine(row),
    told?.parts?.length > 0 && h("p", { class: "summary", dir: "auto" }, told.told.summary),
    told && capsules(told),
    told && ["positive", "negative"].map((sentiment) => strongest(told, sentiment)),
    h(
      "p",
      { class: "small" },
      h(
        "a",
        { href: linkTo("why", { user: state.user, item: row.item }) },
        "All reasons",
        h("span", { class: "unseen" }, ` for ${called(row.item)}`),
      ),
    ),
  );
}

function strongest(explanation, sentiment) {
  const { units, user } = explanation;
  if (explanation.parts?.length) return strongestFinding(explanation, sentiment);
  const unit = units.find((found) => found.sentiment === sentiment);
  if (!unit) return null;
  return h(
    "section",
    { class: `strongest ${sentiment}` },
    h("h3", null, sign(sentiment), `What most ${SPEAKS[sentiment]}`),
    h("p", { class: "soft side-label" }, "Cares about"),
    sideBlock(unit.viewpoint, "viewpoint", { skip: user && "user", shown: 1, titled: false }),
    h("p", { class: "soft side-label" }, "People say"),
    sideBlock(unit.aspect, "aspect", { skip: "item", shown: 1, titled: false }),
  );
}
