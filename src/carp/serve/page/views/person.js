// What a person cares about, from what they wrote.

import { get, part } from "../api.js";
import { h } from "../dom.js";
import { notes } from "../explanation.js";
import { histogram } from "../gauges.js";
import { legend, namedBlock, sideBlock } from "../sentences.js";
import { linkTo } from "../state.js";
import { counted, number, percent } from "../words.js";
import { jumps, sentence } from "./question.js";

export const person = {
  label: "Person",
  needs: { user: "person" },
  title: (state) => (state.user ? `What does ${state.user} care about?` : "Person"),
  question: (state, go) => sentence(state, go, ["What does ", { user: "Person" }, " care about?"]),
  load: ({ user }, about, signal) => get(`users/${part(user)}/profile`, {}, { signal }),

  show(profile, state, { about }) {
    const sides = profile.viewpoints ?? [];
    const named = profile.weights_are === "sentences";
    return {
      said: `${state.user}: ${counted(profile.reviews, "review")}, ${counted(sides.length, "viewpoint")}.`,
      nodes: [
        portrait(profile, about, { reviews: "Reviews written", average: "Average rating given" }),
        notes(profile.notes),
        h(
          "section",
          null,
          h("h2", null, named ? "What they write about" : "Viewpoints"),
          h("p", { class: "soft lead" }, "What their reviews come back to, each by its own best sentences."),
          sides.length > 0 && legend(...(named ? ["about"] : ["own", "shared"])),
          sides.length
            ? h(
                "div",
                { class: "columns" },
                sides.map((side) => viewpointCard(side, named)),
              )
            : h("p", { class: "empty" }, "This model names none for a person alone."),
        ),
        jumps([
          [linkTo("offers", state), "What would suit them?"],
          [linkTo("whatif", { item: state.item, user: state.user }), "What if I were like them?"],
        ]),
      ],
    };
  },
};

function viewpointCard(side, named) {
  const block = named
    ? namedBlock(side, `in ${percent(side.weight)} of their sentences`, { skip: "user" })
    : sideBlock(side, "viewpoint", { skip: "user", shown: 3, level: "h3" });
  return h("article", { class: "card" }, block);
}

/** How many reviews, their average, and how often each rating was given. */
export function portrait(profile, about, words) {
  return h(
    "section",
    { class: "portrait card", "aria-label": "In numbers" },
    h(
      "dl",
      { class: "facts" },
      h("div", null, h("dt", null, words.reviews), h("dd", null, h("strong", null, String(profile.reviews)))),
      h(
        "div",
        null,
        h("dt", null, words.average),
        h("dd", null, h("strong", null, number(profile.mean)), " ", beside(profile.mean, about.mean)),
      ),
    ),
    histogram(profile.ratings, about.rating_range),
  );
}

function beside(mean, overall) {
  if (typeof mean !== "number" || typeof overall !== "number") return null;
  return h("span", { class: "soft" }, `everybody's is ${number(overall)}`);
}
