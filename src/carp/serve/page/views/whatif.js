// What if I were somebody who writes this? Edit the reviews and see rating and reasons change.

import { get, part, post } from "../api.js";
import { picker } from "../combobox.js";
import { fill, freshId, h, say } from "../dom.js";
import { explanationBlocks } from "../explanation.js";
import { fits, linkTo } from "../state.js";
import { against, counted, known, number } from "../words.js";
import { offerList } from "./offers.js";
import { sentence } from "./question.js";
import { problemCard } from "../problem.js";

const PAUSE = 450;
const MOST_BORROWED = 5;
const OFFERED = 5;
const EXAMPLE = "I need it light, and it has to last.";

export const whatif = {
  label: "What if I were…",
  needs: {},
  own: true, // keeps its own results, so that typing is never interrupted
  title: () => "What if I were…",
  question: (state, go) =>
    sentence(state, go, ["What if I wrote the reviews below, and looked at ", { item: "Thing" }, "?"]),

  load: async () => null,

  show(_, state, context) {
    if (!context.about.newcomers) {
      const words = `The model ${context.about.model} knows people by their ids alone: it has nothing to say to a newcomer.`;
      return { said: words, nodes: h("p", { class: "empty" }, words) };
    }
    const desk = makeDesk(state, context);
    return { said: "", nodes: desk.node, update: desk.update, stop: desk.stop };
  },
};

function makeDesk(state, context) {
  const reviews = h("div", { class: "drafts" });
  const linkNote = h("p", { class: "soft small", role: "status" });
  const results = h("div", { class: "results", "aria-busy": "false" });
  const desk = { state, context, reviews, linkNote, results, before: null, timer: 0, asking: null };
  fill(
    reviews,
    (state.reviews ?? [""]).map((text) => draft(desk, text)),
  );
  const source = picker("user", { label: "Person to start from", choose: (user) => borrow(desk, user) });
  const node = h(
    "div",
    { class: "desk" },
    h(
      "section",
      { class: "editor", "aria-label": "Your reviews" },
      h("h2", null, "Your reviews"),
      h("p", { class: "soft lead" }, "Write what you would say of things you know. Nothing is kept."),
      reviews,
      h(
        "div",
        { class: "editor-tools" },
        h("button", { type: "button", on: { click: () => addDraft(desk) } }, "Add another review"),
        h("button", { type: "button", class: "quiet", on: { click: () => start(desk, [EXAMPLE]) } }, "Try an example"),
      ),
      h("div", { class: "borrow" }, h("span", { class: "soft" }, "Or start from the words of "), source.node),
      linkNote,
    ),
    results,
  );
  if (state.user && !state.reviews) borrow(desk, state.user);
  else ask(desk, 0);
  return {
    node,
    stop: () => stop(desk),
    update(next) {
      const drafts = textsOf(desk);
      const texts = next.reviews ?? drafts; // a link without reviews leaves what was typed
      if (next.item !== desk.state.item) desk.before = null;
      desk.state = { ...next, reviews: texts };
      if (texts.join("\n") !== drafts.join("\n"))
        fill(
          reviews,
          texts.map((text) => draft(desk, text)),
        );
      if (!next.reviews) context.remember(desk.state);
      ask(desk, 0);
    },
  };
}

function draft(desk, text) {
  const id = freshId("review");
  const area = h("textarea", { id, rows: 4, dir: "auto", placeholder: EXAMPLE, value: text });
  const node = h(
    "div",
    { class: "draft" },
    h("label", { for: id }, "Review"),
    area,
    h("button", { type: "button", class: "quiet remove", on: { click: () => removeDraft(desk, node) } }, "Remove"),
  );
  area.addEventListener("input", () => edited(desk));
  return node;
}

const textsOf = (desk) =>
  [...desk.reviews.querySelectorAll("textarea")].map((area) => area.value).filter((text) => text.trim());

function addDraft(desk) {
  const added = draft(desk, "");
  desk.reviews.append(added);
  added.querySelector("textarea").focus();
}

function removeDraft(desk, node) {
  node.remove();
  if (!desk.reviews.children.length) desk.reviews.append(draft(desk, ""));
  desk.reviews.querySelector("textarea").focus();
  edited(desk);
}

function start(desk, texts) {
  desk.before = null;
  fill(
    desk.reviews,
    texts.map((text) => draft(desk, text)),
  );
  edited(desk, 0);
}

/** Somebody's best sentences, gathered by the thing they are about, as reviews to edit. */
async function borrow(desk, user) {
  const { signal } = begin(desk);
  try {
    const profile = await get(`users/${part(user)}/profile`, {}, { signal });
    const texts = borrowed(profile);
    if (texts.length) start(desk, texts);
    else fill(desk.results, h("p", { class: "empty" }, `This model shows no sentence of ${user} to start from.`));
  } catch (problem) {
    if (!signal.aborted)
      fill(
        desk.results,
        problemCard(problem, () => borrow(desk, user)),
      );
  }
}

function borrowed(profile) {
  const byThing = new Map();
  for (const { text, item } of (profile.viewpoints ?? []).flatMap((side) => side.sentences ?? [])) {
    const known = byThing.get(item) ?? [];
    if (!known.includes(text)) byThing.set(item, [...known, text]);
  }
  return [...byThing.values()].slice(0, MOST_BORROWED).map((texts) => texts.join(" "));
}

function edited(desk, pause = PAUSE) {
  const reviews = textsOf(desk);
  desk.state = { ...desk.state, reviews };
  desk.context.remember(desk.state);
  desk.linkNote.textContent = fits(reviews)
    ? ""
    : "So much text does not fit into the link: a copied link opens without it.";
  ask(desk, pause);
}

function begin(desk) {
  stop(desk);
  desk.asking = new AbortController();
  return desk.asking;
}

function stop(desk) {
  clearTimeout(desk.timer);
  desk.asking?.abort();
}

function ask(desk, pause) {
  const { signal } = begin(desk);
  const reviews = textsOf(desk);
  if (!reviews.length) {
    desk.before = null;
    desk.results.setAttribute("aria-busy", "false");
    fill(desk.results, h("p", { class: "empty" }, "Write or paste a review, and the answer appears here."));
    return;
  }
  desk.results.setAttribute("aria-busy", "true");
  desk.timer = setTimeout(() => answer(desk, reviews, signal), pause);
}

async function answer(desk, reviews, signal) {
  const { item } = desk.state;
  const explains = desk.context.about.explains;
  const body = { reviews, n: OFFERED, ...(item && { items: [item] }), ...(item && explains && { explain: item }) };
  try {
    const found = await post("newcomer", body, { signal });
    if (!signal.aborted) showAnswer(desk, found, reviews);
  } catch (problem) {
    if (signal.aborted) return;
    fill(
      desk.results,
      problemCard(problem, () => ask(desk, 0)),
    );
  }
  desk.results.setAttribute("aria-busy", "false");
}

function showAnswer(desk, { predictions, explanation, recommendations }, reviews) {
  const { about } = desk.context;
  const { item } = desk.state;
  const predicted = item && (predictions ?? []).find((row) => row.item === item);
  const told = explanation ?? (predicted && { ...predicted, units: [], notes: [predicted.note].filter(Boolean) });
  const moved = told && changeWords(desk, told.rating);
  const range = told?.rating_range ?? about.rating_range;
  const link = (offered) => linkTo("whatif", { item: offered, reviews });
  const offered = recommendations ?? [];
  fill(
    desk.results,
    moved && h("p", { class: "moved" }, moved),
    told && explanationBlocks(told, { range }),
    !item && h("p", { class: "empty" }, "Choose a thing above to see how you would rate it, and why."),
    offered.length > 0 &&
      h("section", null, h("h2", null, "What would suit you"), offerList(offered, about.rating_range, link)),
  );
  say(told ? `Predicted rating ${number(told.rating)}. ${moved}` : counted(offered.length, "recommendation"));
}

/** What the last edit did to the rating. */
function changeWords(desk, rating) {
  const { before } = desk;
  desk.before = rating;
  return known(before)
    ? `After your edit: ${number(rating)}, ${against(rating - before, `the ${number(before)} of before`)}.`
    : "";
}
