// What people like and dislike about a thing, and what of it matters to one person.

import { get, part } from "../api.js";
import { h, help, name } from "../dom.js";
import { notes } from "../explanation.js";
import { gauge, sign } from "../gauges.js";
import { isNamed, legend, marksAs, namedBlock, quote, sideBlock } from "../sentences.js";
import { thingStrip } from "../pictures.js";
import { linkTo } from "../state.js";
import { called } from "../titles.js";
import { SIGN, capital, counted, counting, number } from "../words.js";
import { printButton } from "./overview.js";
import { portrait } from "./person.js";
import { jumps, sentence } from "./question.js";

const HEADING = { positive: "What people like", negative: "What people dislike" };

export const thing = {
  label: "Thing",
  needs: { item: "thing" },
  title: (state) => (state.item ? `What do people say of ${called(state.item)}?` : "Thing"),
  question: (state, go) =>
    sentence(state, go, [
      "What do people say of ",
      { item: "Thing" },
      " and what of it matters to ",
      { user: "Person" },
      "?",
    ]),

  async load({ user, item }, about, signal) {
    const profile = get(`items/${part(item)}/profile`, {}, { signal });
    const summary = user ? get(`items/${part(item)}/summary`, { user }, { signal }) : null;
    const suited = get(`items/${part(item)}/audience`, {}, { signal });
    // A model that cannot sum up still shows the profile; what went wrong is said in its place.
    const [told, chosen, { people }] = await Promise.all([
      profile,
      summary?.catch((problem) => ({ problem })),
      suited.catch(() => ({ people: [] })),
    ]);
    signal.throwIfAborted();
    return { profile: told, summary: chosen, people };
  },

  show({ profile, summary, people }, state, { about }) {
    return {
      said: `${called(state.item)}: ${counted(profile.reviews, "review")}, average ${number(profile.mean)}.`,
      nodes: [
        h("h2", { class: "print-only" }, called(state.item)),
        thingStrip(profile.facts, called(state.item)),
        portrait(profile, about, { reviews: "Reviews received", average: "Average rating" }),
        summary ? summarySection(summary, state, readsSentences(profile)) : chooseReader(),
        notes(profile.notes),
        opinionsPair(profile),
        audience(people, state.item),
        h("div", { class: "tools" }, printButton()),
        state.user &&
          jumps([
            [linkTo("why", state), `How would ${state.user} rate it?`],
            [linkTo("compare", { user: state.user, item: state.item }), "Compare with another thing"],
          ]),
      ],
    };
  },
};

/** People who have not rated it and would like it more than the averages say. */
function audience(people, item) {
  return h(
    "section",
    { "data-part": "audience" },
    h("h2", { tabindex: -1 }, "Whom would it suit?"),
    h("p", { class: "soft lead" }, "People who have not rated it, and who would like it better than the averages alone would say."),
    people.length
      ? h(
          "ul",
          { class: "columns people" },
          people.map((one) => personSuited(one, item)),
        )
      : h("p", { class: "empty" }, "Nobody stands out."),
  );
}

function personSuited({ user, rating, usual, reviews, writes_about: themes }, item) {
  return h(
    "li",
    { class: "card" },
    h("h3", null, h("a", { href: linkTo("why", { user, item }) }, name(user))),
    h("p", null, h("strong", null, number(rating)), " predicted", usual !== null && `; they usually give ${number(usual)}`),
    themes.length > 0 && h("p", { class: "soft small" }, "Writes about ", themes.map((theme, at) => [at ? ", " : "", name(theme)])),
    h("p", { class: "soft small" }, counted(reviews, "review")),
  );
}

function opinionsPair(profile) {
  const { liked = [], disliked = [] } = profile;
  if (!liked.length && !disliked.length && profile.notes?.length) return null; // the notes say why
  return h(
    "div",
    { class: "two opinions-pair" },
    legend(...(readsSentences(profile) ? ["about"] : ["own", "shared"])),
    opinions("positive", liked, profile),
    opinions("negative", disliked, profile),
  );
}

const chooseReader = () =>
  help("Choose a person above to read what of these reviews matters to them.");

function summarySection(summary, state, named) {
  const heading = h("h2", null, "What matters to ", name(state.user));
  if (summary.problem) {
    const { title, detail } = summary.problem;
    return h("section", null, heading, h("p", { class: "empty" }, [title, detail].filter(Boolean).join(": ")));
  }
  const sentences = (summary.sentences ?? []).map((found) => (named ? marksAs("counts", found) : found));
  return h(
    "section",
    { class: "summary-section" },
    heading,
    h("p", { class: "soft lead" }, "Sentences of its reviews that count most for this person."),
    sentences.some(({ marks }) => marks?.length) && legend(...(named ? ["counts"] : ["own", "shared"])),
    sentences.length
      ? h(
          "ol",
          { class: "summary-list card" },
          sentences.map((found) =>
            h("li", { class: found.sentiment ?? "" }, quote(found, { skip: "item", before: signOf(found, named) })),
          ),
        )
      : h("p", { class: "empty" }, "No sentence of its reviews stands out for this person."),
  );
}

function signOf({ sentiment, aspect, tone, turned }, named) {
  if (!(sentiment in SIGN)) return null;
  const speaks = sentiment === "positive" ? "speaks for it" : "speaks against it";
  const other = tone === (sentiment === "positive" ? "complaint" : "praise");
  const who = turned ? "for this person" : "to the model";
  const words = other ? `${speaks} ${who}, though it ${tone === "praise" ? "praises" : "complains"}` : speaks;
  const label = typeof aspect === "number" && !named ? `${words}, aspect ${aspect}` : words;
  return h("span", { class: "sign", role: "img", "aria-label": label, title: label }, SIGN[sentiment]);
}

function opinions(sentiment, rows, profile) {
  const most = Math.max(...rows.map((row) => row.strength), Number.EPSILON);
  return h(
    "section",
    { class: `opinions ${sentiment}`, "data-part": sentiment === "positive" ? "liked" : "disliked" },
    h("h2", { tabindex: -1 }, sign(sentiment), HEADING[sentiment]),
    rows.length
      ? rows.map((row) => (bySentences(row) ? namedOpinion(row, sentiment, profile) : opinionCard(row, most, profile)))
      : h("p", { class: "empty" }, "Nothing stands out."),
  );
}

/** An opinion read off the sentences themselves, which no viewpoint has to meet. */
const bySentences = ({ aspect, viewpoints }) => isNamed(aspect, "aspect") && !viewpoints?.length;

const readsSentences = ({ liked = [], disliked = [] }) => [...liked, ...disliked].some(bySentences);

function namedOpinion({ aspect, raters }, sentiment, profile) {
  const of = `${raters} of ${counted(profile.raters ?? profile.reviews, "rater")}`;
  const words = sentiment === "positive" ? `${of} praise this` : `${of} complain of this`;
  return h("article", { class: "card" }, namedBlock(aspect, words, { skip: "item" }));
}

function opinionCard({ aspect, raters, strength, viewpoints }, most, profile) {
  const people = `${raters} of ${counted(profile.raters ?? profile.reviews, "rater")}`;
  const phrases = [...new Set((viewpoints ?? []).flatMap((viewpoint) => viewpoint.phrases ?? []))].slice(0, 4);
  return h(
    "article",
    { class: "card" },
    sideBlock(aspect, "aspect", { skip: "item", level: "h3" }),
    gauge(people, strength / most, capital(counting(strength / most))),
    phrases.length > 0 &&
      h(
        "p",
        { class: "small soft" },
        "Matters to those who write ",
        phrases.map((phrase, at) => [at ? ", " : "", "“", name(phrase), "”"]),
      ),
  );
}
