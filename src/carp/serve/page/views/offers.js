// What would suit this person, with a reason each.

import { get } from "../api.js";
import { categoryField } from "../categories.js";
import { h, help, name } from "../dom.js";
import { againstAverage, scale } from "../gauges.js";
import { categoryList, thumbnail } from "../pictures.js";
import { linkTo } from "../state.js";
import { called, thingName } from "../titles.js";
import { known, number } from "../words.js";
import { jumps, sentence } from "./question.js";

const STEP = 10;
const SUITED = "Things they have not reviewed, those that suit them best first.";

export const offers = {
  label: "Recommendations",
  needs: { user: "person" },
  title: (state) => (state.user ? `What would suit ${state.user}?` : "Recommendations"),
  question: (state, go) => sentence(state, go, ["What would suit ", { user: "Person" }, "?"]),
  load: ({ user, category }, about, signal) => get("recommend", { user, n: STEP, category }, { signal }),

  show({ recommendations, note }, state, { about, go }) {
    const narrowed = categoryField(state, about, go);
    if (!recommendations.length) {
      return {
        said: "Nothing to recommend.",
        nodes: [narrowed, h("p", { class: "empty" }, "There is nothing here they have not rated.")],
      };
    }
    return {
      said: `${recommendations.length} recommendations for ${state.user}.`,
      nodes: [
        h("p", { class: "soft lead", dir: "auto" }, note ? strangers(state.user) : SUITED),
        narrowed,
        help("The large number is the predicted rating; on the line it is the dot, and the average of the thing is the bar."),
        offerList(recommendations, about.rating_range, note ? null : (item) => linkTo("why", { user: state.user, item }), state.user),
        !note &&
          recommendations.length > 1 &&
          jumps([
            [
              linkTo("compare", { user: state.user, item: recommendations[0].item, other: recommendations[1].item }),
              "Compare the first two",
            ],
            [linkTo("person", state), `About ${state.user}`],
          ]),
      ],
    };
  },
};

/** For somebody of whom nothing is known: what they see, and what would make it theirs. */
const strangers = (user) => [
  "Nobody here is called ",
  name(user),
  ", so these are things that are popular with everybody. ",
  h("a", { href: linkTo("whatif") }, "Say in your own words what you like"),
  " to get what suits you, or choose a person above.",
];

/** Recommendations in order; `reasonLink` leads to the full reasons of one, if there are any. */
export function offerList(recommendations, range, reasonLink, user) {
  return h(
    "ol",
    { class: "offers" },
    recommendations.map((offer) => offerRow(offer, range, reasonLink, user)),
  );
}

function offerRow(offer, range, reasonLink, user) {
  const opinions = linkTo("thing", reasonLink ? { item: offer.item, user } : { item: offer.item });
  const facts = [{ kind: "predicted", value: offer.rating }];
  if (known(offer.item_mean)) facts.push({ kind: "average", value: offer.item_mean });
  return h(
    "li",
    { class: "card offer" },
    thumbnail(offer.facts, called(offer.item)),
    h(
      "div",
      { class: "offer-words" },
      h("h2", null, h("a", { href: reasonLink?.(offer.item) ?? opinions }, thingName(offer.item))),
      offer.facts?.categories?.length > 0 && categoryList(offer.facts.categories.slice(0, 3), user),
      offer.reason && h("p", { class: "offer-reason", dir: "auto" }, offer.reason),
      h(
        "p",
        { class: "small soft" },
        reasonLink && [
          h("a", { href: reasonLink(offer.item) }, "All reasons", h("span", { class: "unseen" }, ` for ${called(offer.item)}`)),
          " · ",
        ],
        h(
          "a",
          { href: opinions },
          "What people say",
          h("span", { class: "unseen" }, ` of ${called(offer.item)}`),
        ),
      ),
    ),
    h(
      "div",
      { class: "offer-rating" },
      h("span", { class: "figure small" }, number(offer.rating)),
      known(offer.item_mean) && h("span", { class: "soft small" }, againstAverage(offer)),
      scale(facts, range, { small: true }),
    ),
  );
}
