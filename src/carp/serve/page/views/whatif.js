// What if I were somebody who writes this? Edit the reviews and see rating and reasons change.

import { get, part, post } from "../api.js";
import { picker } from "../combobox.js";
import { fill, freshId, h, say } from "../dom.js";
import { explanationBlocks } from "../explanation.js";
import { fits, linkTo } from "../state.js";
import { differenceTable, differences } from "../summed.js";
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
    const service = makeDesk(state, context);
    return { said: "", nodes: service.node, update: service.update, stop: service.stop };
  },
};

function makeDesk(state, context) {
  const reviews = h("div", { class: "drafts" });
  const linkNote = h("p", { class: "soft small", role: "status" });
  const results = h("div", { class: "results", "aria-busy": "false" });
  const service = { state, context, reviews, linkNote, results, before: null, timer: 0, asking: null };
  fill(
    reviews,
    (state.reviews ?? [""]).map((text) => draft(service, text)),
  );
  const source = picker("user", { label: "Person to start from", choose: (user) => borrow(service, user) });
  const node = h(
    "div",
    { class: "service" },
    h(
      "section",
      { class: "editor", "aria-label": "Your reviews" },
      h("h2", null, "Your reviews"),
      h("p", { class: "soft lead" }, "Write what you would say of things you know. Nothing is kept."),
      reviews,
      h(
        "div",
        { class: "editor-tools" },
        h("button", { type: "button", on: { click: () => addDraft(service) } }, "Add another review"),
        h("button", { type: "button", class: "quiet", on: { click: () => start(service, [EXAMPLE]) } }, "Try an example"),
      ),
      h("div", { class: "borrow" }, h("span", { class: "soft" }, "Or start from the words of "), source.node),
      linkNote,
    ),
    results,
  );
  if (state.user && !state.reviews) borrow(service, state.user);
  else ask(service, 0);
  return {
    node,
    stop: () => stop(service),
    update(next) {
      const drafts = textsOf(service);
      const texts = next.reviews ?? drafts; // a link without reviews leaves what was typed
      if (next.item !== service.state.item) service.before = null;
      service.state = { ...next, reviews: texts };
      if (texts.join("\n") !== drafts.join("\n"))
        fill(
          reviews,
          texts.map((text) => draft(service, text)),
        );
      if (!next.reviews) context.remember(service.state);
      ask(service, 0);
    },
  };
}

function draft(service, text) {
  const id = freshId("review");
  const area = h("textarea", { id, rows: 4, dir: "auto", placeholder: EXAMPLE, value: text });
  const node = h(
    "div",
    { class: "draft" },
    h("label", { for: id }, "Review"),
    area,
    h("button", { type: "button", class: "quiet remove", on: { click: () => removeDraft(service, node) } }, "Remove"),
  );
  area.addEventListener("input", () => edited(service));
  return node;
}

const textsOf = (service) =>
  [...service.reviews.querySelectorAll("textarea")].map((area) => area.value).filter((text) => text.trim());

function addDraft(service) {
  const added = draft(service, "");
  service.reviews.append(added);
  added.querySelector("textarea").focus();
}

function removeDraft(service, node) {
  node.remove();
  if (!service.reviews.children.length) service.reviews.append(draft(service, ""));
  service.reviews.querySelector("textarea").focus();
  edited(service);
}

function start(service, texts) {
  service.before = null;
  fill(
    service.reviews,
    texts.map((text) => draft(service, text)),
  );
  edited(service, 0);
}

/** Somebody's best sentences, gathered by the thing they are about, as reviews to edit. */
async function borrow(service, user) {
  const { signal } = begin(service);
  try {
    const profile = await get(`users/${part(user)}/profile`, {}, { signal });
    const texts = borrowed(profile);
    if (texts.length) start(service, texts);
    else fill(service.results, h("p", { class: "empty" }, `This model shows no sentence of ${user} to start from.`));
  } catch (problem) {
    if (!signal.aborted)
      fill(
        service.results,
        problemCard(problem, () => borrow(service, user)),
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

function edited(service, pause = PAUSE) {
  const reviews = textsOf(service);
  service.state = { ...service.state, reviews };
  service.context.remember(service.state);
  service.linkNote.textContent = fits(reviews)
    ? ""
    : "So much text does not fit into the link: a copied link opens without it.";
  ask(service, pause);
}

function begin(service) {
  stop(service);
  service.asking = new AbortController();
  return service.asking;
}

function stop(service) {
  clearTimeout(service.timer);
  service.asking?.abort();
}

function ask(service, pause) {
  const { signal } = begin(service);
  const reviews = textsOf(service);
  if (!reviews.length) {
    service.before = null;
    service.results.setAttribute("aria-busy", "false");
    fill(service.results, h("p", { class: "empty" }, "Write or paste a review, and the answer appears here."));
    return;
  }
  service.results.setAttribute("aria-busy", "true");
  service.timer = setTimeout(() => answer(service, reviews, signal), pause);
}

async function answer(service, reviews, signal) {
  const { item } = service.state;
  const explains = service.context.about.explains;
  const body = { reviews, n: OFFERED, ...(item && { items: [item] }), ...(item && explains && { explain: item }) };
  try {
    const found = await post("newcomer", body, { signal });
    if (signal.aborted) return;
    service.context.rename(); // the answer may have told what the thing is called
    showAnswer(service, found, reviews);
  } catch (problem) {
    if (signal.aborted) return;
    fill(
      service.results,
      problemCard(problem, () => ask(service, 0)),
    );
  }
  service.results.setAttribute("aria-busy", "false");
}

function showAnswer(service, { predictions, explanation, recommendations }, reviews) {
  const { about } = service.context;
  const { item } = service.state;
  const predicted = item && (predictions ?? []).find((row) => row.item === item);
  const told = explanation ?? (predicted && { ...predicted, units: [], notes: [predicted.note].filter(Boolean) });
  const changed = told && whatChanged(service, told);
  const moved = told && changeWords(service, told.rating);
  const range = told?.rating_range ?? about.rating_range;
  const link = (offered) => linkTo("whatif", { item: offered, reviews });
  const offered = recommendations ?? [];
  fill(
    service.results,
    moved && h("p", { class: "moved" }, moved),
    changed,
    told && explanationBlocks(told, { range }),
    !item && h("p", { class: "empty" }, "Choose a thing above to see how you would rate it, and why."),
    offered.length > 0 &&
      h("section", null, h("h2", null, "What would suit you"), offerList(offered, about.rating_range, link)),
  );
  say(told ? `Predicted rating ${number(told.rating)}. ${moved}` : counted(offered.length, "recommendation"));
}

/** What the last edit did, reason by reason: the lines add up to how far the rating moved. */
function whatChanged(service, told) {
  const { before, toldBefore } = service;
  service.toldBefore = told;
  if (!known(before) || !toldBefore?.parts?.length || !told.parts?.length) return null;
  const found = differences(toldBefore, told);
  if (!found.rows.length) return null;
  return h(
    "section",
    { class: "card what-differs" },
    differenceTable(found, {
      caption: "What your edit changed",
      said: "Each line is a reason that counts more or less than before.",
    }),
  );
}

/** What the last edit did to the rating. */
function changeWords(service, rating) {
  const { before } = service;
  service.before = rating;
  return known(before)
    ? `After your edit: ${number(rating)}, ${against(rating - before, `the ${number(before)} of before`)}.`
    : "";
}
