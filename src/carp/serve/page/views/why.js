// How would this person rate this thing, and why?

import { get, post } from "../api.js";
import { explanationBlocks, spoken } from "../explanation.js";
import { h } from "../dom.js";
import { thingStrip } from "../pictures.js";
import { linkTo } from "../state.js";
import { called } from "../titles.js";
import { person } from "../words.js";
import { jumps, sentence } from "./question.js";

export const why = {
  label: "Why this rating",
  needs: { user: "person", item: "thing" },
  title: (state) => (state.user && state.item ? `How would ${state.user} rate ${called(state.item)}?` : "Why this rating"),

  question: (state, go) => sentence(state, go, ["How would ", { user: "Person" }, " rate ", { item: "Thing" }, "?"]),

  async load({ user, item }, about, signal) {
    if (about.explains) return get("explain", { user, item }, { signal });
    const { predictions } = await post("predict", { user, item }, { signal });
    const profile = await get(`items/${encodeURIComponent(item)}/profile`, {}, { signal }).catch(() => ({}));
    const notes = [predictions[0].note, `the model ${about.model} gives ratings without reasons`].filter(Boolean);
    return { ...predictions[0], item_mean: profile.mean, notes, units: [] };
  },

  show(explanation, state, { about, remember }) {
    const range = explanation.rating_range ?? about.rating_range;
    const pinned = (cell) => remember({ ...state, cell });
    return {
      said: spoken(explanation),
      nodes: [
        thingStrip(explanation.facts, called(state.item)),
        explanationBlocks(explanation, { range, cell: state.cell, pinned }),
        jumps([
          [linkTo("offers", state), `What else would suit ${person(state.user)}?`],
          [linkTo("person", state), `About ${state.user}`],
          [linkTo("thing", state), `About ${called(state.item)}`],
          [linkTo("compare", { user: state.user, item: state.item }), "Why this and not another?"],
        ]),
        h("p", { class: "soft small" }, `Predicted and explained by the model ${explanation.model ?? about.model}.`),
      ],
    };
  },
};
