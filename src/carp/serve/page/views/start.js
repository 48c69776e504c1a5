// The first look: what this is, an example that can be held against the truth, and ten questions to go on with.

import { get } from "../api.js";
import { h } from "../dom.js";
import { scale } from "../gauges.js";
import { thumbnail } from "../pictures.js";
import { linkTo } from "../state.js";
import { called, thingName } from "../titles.js";
import { count, known, number, plain, toneOf } from "../words.js";

export const start = {
  label: "Start",
  needs: {},
  title: () => "What would you like to know?",
  question: () => ({ node: null, fields: {}, update() {} }),

  async load(state, about, signal) {
    const pair = about.example;
    const explained = about.explains && pair ? get("explain", pair, { signal }).catch(() => null) : null;
    const [{ items }, told] = await Promise.all([get("items", { limit: 2 }, { signal }), explained]);
    signal.throwIfAborted();
    return { items, told };
  },

  show({ items, told }, state, { about }) {
    return {
      said: "Ten questions to begin with.",
      nodes: [
        h(
          "div",
          { class: told ? "hero beside-example" : "hero" },
          h(
            "div",
            null,
            h("h2", { class: "hero-title" }, "Ratings with their reasons"),
            h(
              "p",
              { class: "hero-words" },
              `From ${count(about.reviews)} reviews by ${count(about.users)} people of ${count(about.items)} things, this ` +
                "page predicts how somebody would rate something, and shows the sentences that speak for and against it.",
            ),
            h("p", { class: "hero-words soft" }, "Choose a question, or pick your own person and thing in any view."),
          ),
          told && example(told, about),
        ),
        questions(about, items),
      ],
    };
  },
};

function example(told, about) {
  const facts = [{ kind: "predicted", value: told.rating }];
  if (known(told.target?.rating)) facts.push({ kind: "actual", value: told.target.rating });
  const range = told.rating_range ?? about.rating_range;
  const first = (told.findings?.[0]?.sentences ?? told.units?.[0]?.aspect?.sentences ?? [])[0];
  const tone = told.findings?.length ? toneOf(told.findings[0].amount) : told.units?.[0]?.sentiment;
  return h(
    "article",
    { class: "card example" },
    h("p", { class: "soft small" }, "An example"),
    h(
      "div",
      { class: "named" },
      thumbnail(told.facts, called(told.item)),
      h("h3", null, h("a", { href: linkTo("why", { user: told.user, item: told.item }) }, thingName(told.item))),
    ),
    h(
      "p",
      { class: "example-numbers" },
      h("span", { class: "figure small" }, number(told.rating, 1)),
      ` predicted for ${told.user}`,
      known(told.target?.rating) && h("span", { class: "soft" }, `, who really gave ${plain(told.target.rating)}`),
    ),
    scale(facts, range, { small: true }),
    told.told?.summary && h("p", { class: "summary", dir: "auto" }, told.told.summary),
    first && h("blockquote", { class: tone, dir: "auto" }, "“", first.text, "”"),
    h(
      "p",
      { class: "help" },
      "Their review was hidden from the model. The example is chosen by a rule: somebody and something of which much is " +
        "written, that is liked, predicted better than most, and where the words helped most.",
    ),
  );
}

function questions(about, items) {
  const pair = about.example ?? { user: undefined, item: items[0]?.id };
  const best = items[0]?.id ?? pair.item;
  const other = items.find(({ id }) => id !== pair.item)?.id;
  const user = pair.user ?? "somebody";
  const customer = [
    ["why", pair, `Would ${user} like ${called(pair.item)}, and why?`, "The rating, and the sentences behind it."],
    ["why", { ...pair, part: "range" }, "How sure is that?", "The range in which nine of ten such ratings lie."],
    ["offers", { user: pair.user }, `What else would suit ${user}?`, "Of everything, or of one category."],
    ["compare", { ...pair, other }, "Why this and not that?", "Two things side by side, and what makes the difference."],
    ["thing", { item: pair.item }, `What do people like and dislike about ${called(pair.item)}?`, "By what they write about."],
    ["whatif", { item: pair.item }, "I am new here. What would suit me?", "Tell it in your own words."],
  ];
  const owner = [
    ["overview", {}, "What do people praise, and what do they complain of?", "Over all things, with their sentences."],
    ["thing", { item: best, part: "disliked" }, "What do people dislike about our best seller?", `That is ${called(best)}.`],
    ["thing", { item: pair.item, part: "audience" }, `Whom would ${called(pair.item)} suit?`, "People who have not rated it yet."],
    ["overview", { part: "at-risk" }, "What is at risk, and who has left?", "Things that disappoint, and people who went quiet."],
  ];
  return h(
    "div",
    { class: "asked" },
    questionList("As a customer", customer.filter(([view]) => view !== "whatif" || about.newcomers)),
    questionList("As the owner", owner),
  );
}

const questionList = (title, rows) =>
  h(
    "section",
    null,
    h("h2", null, title),
    h(
      "ul",
      { class: "question-cards" },
      rows.map(([view, state, words, more]) =>
        h("li", null, h("a", { class: "card", href: linkTo(view, state) }, h("strong", null, words), h("span", { class: "soft" }, more))),
      ),
    ),
  );
